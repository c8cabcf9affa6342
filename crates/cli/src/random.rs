//! Randomness that need not be secret.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A seed that differs from run to run; unsuitable for secrets.
pub(crate) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
