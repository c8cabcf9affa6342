//! Programs out of container images: pulled from a registry by digest, unpacked safely, with the libraries that they
//! need. And programs into images.
//!
//! [`resolve`] asks a registry what a [`Reference`] stands for and how large it is; [`Resolved::download`] brings it into
//! a cache of blobs; [`unpack`] turns the layers into a directory; [`extract_program`] takes out one program with its
//! loader and libraries. Nothing prints, and nothing is downloaded that was not asked for.
//!
//! The other way round, an [`ImageBuilder`] makes an image of a program and what it needs, and [`push`] stores it in a
//! registry.

mod build;
mod cache;
mod credentials;
mod digest;
mod error;
mod exchange;
mod http_client;
mod image;
mod limits;
mod manifest;
mod options;
mod program;
mod pull;
mod push;
mod reference;
mod registry;
mod token;
mod unpack;

pub use build::{BuildError, BuiltImage, ENTRYPOINT, ImageBuilder, Linkage};
pub use credentials::{Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use error::PullError;
pub use http_client::Proxies;
pub use image::{ImageConfig, Layer};
pub use limits::Limits;
pub use manifest::{DocumentError, Platform, PlatformError};
pub use options::{PullOptions, PushOptions, Retries};
pub use program::{ElfError, ExtractError, ProgramFiles, extract_program};
pub use pull::{Image, Progress, Resolved, pull, resolve};
pub use push::{PushError, Pushed, push};
pub use reference::{Reference, ReferenceError, ReferenceProblem};
pub use unpack::{LayerFault, UnpackError, Unpacker, unpack};
