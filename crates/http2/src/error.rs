//! Errors of header compression.

/// The limit for the decoded headers of a block, in bytes: a few bytes can refer to large table entries
/// many times.
pub const MAX_LIST_BYTES: usize = 256 * 1024;

/// A malformed header block. The tables of both ends no longer agree: the connection ends with
/// COMPRESSION_ERROR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// The block ends within a header.
    #[error("a header block ends within a header")]
    Truncated,
    /// A number beyond any reasonable size.
    #[error("a number in a header block is too large")]
    Integer,
    /// A string that is not valid Huffman code.
    #[error("a header's string is not valid Huffman code")]
    Huffman,
    /// An index beyond both tables.
    #[error("a header block refers to entry {index} of {entries}")]
    Index {
        /// The index.
        index: usize,
        /// The entries of both tables.
        entries: usize,
    },
    /// A table larger than agreed, or a change of its size after the first header.
    #[error("a header block resizes the table to {bytes} bytes, which is not allowed here")]
    TableSize {
        /// The requested size in bytes.
        bytes: usize,
    },
    /// The block decodes to more than [`MAX_LIST_BYTES`].
    #[error("a header block decodes to more than {MAX_LIST_BYTES} bytes")]
    ListTooLarge,
}
