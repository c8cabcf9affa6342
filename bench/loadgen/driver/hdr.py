"""Reads histograms in the HDR "V2" encoding, as meshtax writes them into its JSON."""

import base64
import struct

COOKIE = 0x1C849303


class Histogram:
    """The counts of an HDR histogram, as (highest value of the bucket, count)."""

    def __init__(self, text):
        data = base64.b64decode(text)
        cookie, length, _offset, digits, _low, _high, _ratio = struct.unpack_from(">IiiiqQd", data)
        if cookie & ~0xF0 != COOKIE & ~0xF0:
            raise ValueError("not an uncompressed HDR V2 histogram")
        # Buckets: the first is linear, each further one has half as many steps, twice as wide.
        sub_bits = (2 * 10**digits - 1).bit_length()
        half = 1 << (sub_bits - 1)
        self.counts = []
        index = 0
        for value in zigzag(data[40 : 40 + length]):
            if value < 0:
                index -= value
                continue
            if value > 0:
                bucket = max(0, index // half - 1)
                step = index - bucket * half
                self.counts.append((((step + 1) << bucket) - 1, value))
            index += 1
        self.total = sum(count for _, count in self.counts)

    def at(self, share):
        """The value below or at which this share of the samples lies; None without samples."""
        rank, seen = max(1.0, share * self.total), 0
        for value, count in self.counts:
            seen += count
            if seen >= rank - 1e-6:
                return value
        return None

    def max(self):
        return self.counts[-1][0] if self.counts else None


def zigzag(data):
    """The numbers of a ZigZag LEB128-64b9B stream."""
    at = 0
    while at < len(data):
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            if shift == 56:  # the ninth byte holds eight bits
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield (value >> 1) ^ -(value & 1)
