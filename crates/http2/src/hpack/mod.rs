//! Header compression (HPACK, RFC 7541).
//!
//! The decoder is complete. The encoder writes blocks that do not depend on the dynamic table, so that
//! they are encoded once and sent many times.

mod table;
#[cfg(test)]
mod tests;

pub use crate::error::{HpackError, MAX_LIST_BYTES};
use crate::huffman;
use table::{ENTRY_BYTES, STATIC, Table};

/// The initial size of the dynamic table, in bytes, whatever SETTINGS say later.
const DEFAULT_TABLE_BYTES: usize = 4096;

/// Decodes the header blocks of one direction of a connection, in order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The largest table that the peer may select, in bytes.
    max_table_bytes: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// `max_table_bytes`: this end's SETTINGS_HEADER_TABLE_SIZE, by default 4,096. The table has 4,096
    /// bytes at first, until the peer changes it (RFC 7541, section 4.2).
    #[must_use]
    pub fn new(max_table_bytes: usize) -> Self {
        Self {
            table: Table::new(DEFAULT_TABLE_BYTES),
            max_table_bytes: max_table_bytes.max(DEFAULT_TABLE_BYTES),
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes a whole block; `each` is called with the name and value of every header.
    ///
    /// # Errors
    /// When the block is malformed. `each` was called for the headers before the error.
    pub fn decode(
        &mut self,
        block: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackError> {
        let mut rest = block;
        let (mut list_bytes, mut size_may_change) = (0, true);
        while let Some(first) = rest.first().copied() {
            // RFC 7541, section 6: the highest bits determine the representation.
            let handed_out = if first & 0x80 != 0 {
                self.indexed(&mut rest, each)?
            } else if first & 0xc0 == 0x40 {
                self.remembered(&mut rest, each)?
            } else if first & 0xe0 == 0x20 {
                self.resize(&mut rest, size_may_change)?;
                continue;
            } else {
                self.literal(&mut rest, each)?
            };
            size_may_change = false;
            list_bytes += handed_out + ENTRY_BYTES;
            if list_bytes > MAX_LIST_BYTES {
                return Err(HpackError::ListTooLarge);
            }
        }
        Ok(())
    }

    /// Section 6.1: name and value are those of an entry.
    fn indexed(
        &self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let (name, value) = self.table.get(integer(rest, 7)?)?;
        each(name, value);
        Ok(name.len() + value.len())
    }

    /// Section 6.2.1: a header that becomes an entry.
    fn remembered(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let index = integer(rest, 6)?;
        // The name's entry may be evicted by the new one, so it is copied first.
        let mut entry = self.table.spare.pop().unwrap_or_default();
        match index {
            0 => {
                let name = string(rest, &mut self.name)?;
                entry.bytes.extend_from_slice(name);
            }
            _ => entry.bytes.extend_from_slice(self.table.get(index)?.0),
        }
        entry.name_bytes = entry.bytes.len();
        entry
            .bytes
            .extend_from_slice(string(rest, &mut self.value)?);
        let (name, value) = entry.parts();
        each(name, value);
        let bytes = entry.bytes.len();
        self.table.insert(entry);
        Ok(bytes)
    }

    /// Sections 6.2.2 and 6.2.3: a header that does not become an entry.
    fn literal(
        &mut self,
        rest: &mut &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize, HpackError> {
        let name = match integer(rest, 4)? {
            0 => string(rest, &mut self.name)?,
            index => self.table.get(index)?.0,
        };
        let value = string(rest, &mut self.value)?;
        each(name, value);
        Ok(name.len() + value.len())
    }

    /// Section 6.3: a change of the table's size, where section 4.2 allows it.
    fn resize(&mut self, rest: &mut &[u8], may_change: bool) -> Result<(), HpackError> {
        let bytes = integer(rest, 5)?;
        if !may_change || bytes > self.max_table_bytes {
            return Err(HpackError::TableSize { bytes });
        }
        self.table.max_bytes = bytes;
        self.table.make_room(0);
        Ok(())
    }
}

/// An integer with a prefix of `bits` bits (RFC 7541, section 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, HpackError> {
    let (first, others) = rest.split_first().ok_or(HpackError::Truncated)?;
    *rest = others;
    let most = (1_u8 << bits) - 1;
    let mut value = u32::from(first & most);
    if value < u32::from(most) {
        return Ok(value as usize);
    }
    // Four more bytes have 28 bits: more than any size that can occur.
    for shift in [0, 7, 14, 21] {
        let (next, others) = rest.split_first().ok_or(HpackError::Truncated)?;
        *rest = others;
        value += u32::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(value as usize);
        }
    }
    Err(HpackError::Integer)
}

/// A string (RFC 7541, section 5.2): a slice of the block, or decoded into `scratch`.
fn string<'s, 'i: 's>(
    rest: &mut &'i [u8],
    scratch: &'s mut Vec<u8>,
) -> Result<&'s [u8], HpackError> {
    let huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (bytes, others) = rest.split_at_checked(length).ok_or(HpackError::Truncated)?;
    *rest = others;
    if !huffman {
        return Ok(bytes);
    }
    scratch.clear();
    huffman::decode(bytes, scratch)?;
    Ok(scratch)
}

/// Appends a header to a block: by its index if the static table has it, otherwise as a literal that
/// does not enter the peer's table, without Huffman coding. `name` must be in lower case
/// (RFC 9113, section 8.2).
pub fn encode_literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut of_name = 0;
    for (at, (known, known_value)) in STATIC.iter().enumerate() {
        if known.as_bytes() == name {
            if known_value.as_bytes() == value {
                return encode_integer(out, 0x80, 7, at + 1);
            }
            if of_name == 0 {
                of_name = at + 1;
            }
        }
    }
    encode_integer(out, 0, 4, of_name);
    if of_name == 0 {
        encode_string(out, name);
    }
    encode_string(out, value);
}

fn encode_string(out: &mut Vec<u8>, text: &[u8]) {
    encode_integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// An integer behind the bits of `pattern` (RFC 7541, section 5.1).
fn encode_integer(out: &mut Vec<u8>, pattern: u8, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut left = value - most;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}
