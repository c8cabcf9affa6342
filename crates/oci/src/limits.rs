//! How much an image may be.

/// What an image may need at most. What exceeds a limit is an error before it is stored.
///
/// The defaults are several times what the largest image of a data plane needs, and what no disk or memory is harmed
/// by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a manifest, an index or a configuration. A registry must accept manifests of 4 MiB
    /// (OCI distribution specification, *Pushing Manifests*), so no valid image is larger.
    pub manifest_bytes: u64,
    /// Layers of an image.
    pub layers: usize,
    /// Bytes of a layer as transferred.
    pub layer_bytes: u64,
    /// Bytes of the configuration and all layers together, as transferred.
    pub image_bytes: u64,
    /// Bytes of all layers together, unpacked.
    pub unpacked_bytes: u64,
    /// How many times larger a layer may become by unpacking. Up to [`Limits::FREE_BYTES`] it is not looked at: an
    /// empty file system of a few kilobytes compresses very well.
    pub expansion: u64,
    /// Files, directories and links of all layers together, with the directories that only the paths of others name.
    pub entries: u64,
    /// Bytes of a path, and of a link's target.
    pub path_bytes: usize,
    /// Components of a path, as written and with its links resolved. Whoever removes a directory with all that is in
    /// it needs a descriptor for each level.
    pub depth: usize,
}

impl Limits {
    /// Up to this many unpacked bytes, a layer's expansion is not limited.
    pub const FREE_BYTES: u64 = 64 << 20;

    /// How many bytes a layer of `size_bytes` may become.
    pub(crate) fn unpacked_bytes_of_layer(&self, size_bytes: u64) -> u64 {
        size_bytes
            .saturating_mul(self.expansion)
            .max(Self::FREE_BYTES)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            layers: 128,
            layer_bytes: 2 << 30,
            image_bytes: 4 << 30,
            unpacked_bytes: 8 << 30,
            expansion: 100,
            entries: 500_000,
            path_bytes: 4095,
            depth: 100,
        }
    }
}
