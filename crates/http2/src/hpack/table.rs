//! The tables of header compression (RFC 7541, section 2.3).

use std::collections::VecDeque;

use crate::error::HpackError;

/// The size of an entry beyond its name and value, in bytes (RFC 7541, section 4.1).
pub(super) const ENTRY_BYTES: usize = 32;

/// The static table, followed by the dynamic one with the newest entry first.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) entries: VecDeque<Entry>,
    /// Evicted entries, whose memory is reused.
    pub(super) spare: Vec<Entry>,
    pub(super) bytes: usize,
    pub(super) max_bytes: usize,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The name, followed by the value.
    pub(super) bytes: Vec<u8>,
    pub(super) name_bytes: usize,
}

impl Entry {
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.name_bytes)
    }
}

/// Evicted entries that are kept for reuse; others are freed.
const MAX_SPARE: usize = 16;

impl Table {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            spare: Vec::new(),
            bytes: 0,
            max_bytes,
        }
    }

    pub(super) fn get(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|i| STATIC.get(i)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let dynamic = index.checked_sub(STATIC.len() + 1);
        let entry = dynamic.and_then(|i| self.entries.get(i));
        entry.map(Entry::parts).ok_or(HpackError::Index {
            index,
            entries: STATIC.len() + self.entries.len(),
        })
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let bytes = entry.bytes.len() + ENTRY_BYTES;
        self.make_room(bytes);
        // Larger than the whole table: the table is emptied, which is not an error (section 4.4).
        if bytes <= self.max_bytes {
            self.bytes += bytes;
            self.entries.push_front(entry);
        }
    }

    pub(super) fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > self.max_bytes {
            let Some(mut oldest) = self.entries.pop_back() else {
                return;
            };
            self.bytes -= oldest.bytes.len() + ENTRY_BYTES;
            if self.spare.len() < MAX_SPARE {
                oldest.bytes.clear();
                self.spare.push(oldest);
            }
        }
    }
}

/// RFC 7541, appendix A. The first entry has the number 1.
pub(super) const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
