//! Why an image cannot be pulled, and what the user can do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::credentials::CredentialsError;
use crate::digest::Digest;
use crate::manifest::{DocumentError, Platform};

/// Why an image cannot be pulled. `image` is the reference, `registry` who was asked: the registry or its mirror.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry cannot be reached, or the connection broke before it answered.
    #[error(
        "cannot reach {registry} for {image}: {source}\n  \
         fix: check the network and HTTPS_PROXY, or give a binary with `--from PATH` or `program: PATH`"
    )]
    Unreachable {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What failed.
        source: io::Error,
    },
    /// This machine trusts no certificate authority.
    #[error(
        "there are no CA certificates to verify {registry} with\n  \
         fix: install them (Debian: `sudo apt-get install ca-certificates`), or set SSL_CERT_FILE"
    )]
    NoRoots {
        /// Who was to be asked.
        registry: Box<str>,
    },
    /// Plain HTTP was asked for, and the registry is not on this machine.
    #[error(
        "{registry} would be contacted without TLS, which is allowed only on this machine's loopback\n  \
         fix: give the registry a certificate, and name its authority in SSL_CERT_FILE"
    )]
    PlainHttp {
        /// The URL.
        registry: Box<str>,
    },
    /// The name of a mirror is not a host, with or without a path.
    #[error("`{mirror}` is not a mirror\n  fix: write it like mirror.example.com/docker-hub")]
    Mirror {
        /// The mirror as given.
        mirror: String,
    },
    /// A redirect is not followed.
    #[error(
        "{registry} redirects {image} to {target}: {reason}\n  \
         fix: ask the registry's operator, or give a binary with `--from PATH` or `program: PATH`"
    )]
    Redirect {
        /// The image.
        image: Box<str>,
        /// Who redirected.
        registry: Box<str>,
        /// Where to.
        target: String,
        /// Why it is not followed.
        reason: &'static str,
    },
    /// The registry has no such image.
    #[error(
        "{registry} has no {image}: {what} was not found\n  \
         fix: check its name and tag, name another with `--image IMAGE`, or give a binary with `--from PATH` or `program: PATH`"
    )]
    NotFound {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What was asked for.
        what: Box<str>,
    },
    /// The registry does not let this user read the image. Many say so of images that do not exist, too.
    #[error(
        "{registry} denies reading {image} ({status})\n  \
         fix: check the name, log in with `docker login {registry}` or `podman login {registry}`, or give a binary with `--from PATH` or `program: PATH`"
    )]
    Denied {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// 401 or 403.
        status: u16,
    },
    /// The registry wants to know who asks, and the credentials cannot be read.
    #[error("{registry} asks for credentials for {image}: {source}")]
    Credentials {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What is wrong with them.
        source: CredentialsError,
    },
    /// The registry's token service gives no token.
    #[error(
        "the token service {service} of {registry} issues no token for {image}: {reason}\n  \
         fix: check the credentials of {registry}, or try again later"
    )]
    NoToken {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// The service's URL.
        service: String,
        /// What it answered.
        reason: String,
    },
    /// The registry limits how often this address or user may ask.
    #[error(
        "{registry} limits requests for {image}{}\n  \
         fix: wait, log in with `docker login {registry}`, or configure a mirror",
        match retry_after { Some(wait) => format!("; try again in {} s", wait.as_secs()), None => String::new() }
    )]
    RateLimited {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The registry fails.
    #[error(
        "{registry} responds with {status} for {image}: {what}\n  fix: try again later, or configure a mirror"
    )]
    Server {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// The HTTP status.
        status: u16,
        /// What was asked for.
        what: Box<str>,
    },
    /// The connection ended early, again and again without progress. What arrived is kept for the next try.
    #[error(
        "{registry} sent only {received_bytes} of the {size_bytes} bytes of {what} of {image}: {source}\n  \
         fix: run again to continue there, or configure a mirror"
    )]
    Cut {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What was asked for.
        what: Box<str>,
        /// How much arrived.
        received_bytes: u64,
        /// How much there is.
        size_bytes: u64,
        /// How the connection ended.
        source: io::Error,
    },
    /// The content is not what its digest says. It is not kept.
    #[error(
        "{registry} sent wrong content for {what} of {image}: its digest is {found}, expected {expected}\n  \
         fix: run again; if it stays wrong, do not trust this registry or mirror"
    )]
    WrongDigest {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What was asked for.
        what: Box<str>,
        /// The digest that was asked for.
        expected: Digest,
        /// The digest of what was sent.
        found: Digest,
    },
    /// The content is longer than its manifest says. It is not kept.
    #[error(
        "{registry} sends more than the {size_bytes} bytes of {what} of {image}\n  \
         fix: run again; if it stays wrong, do not trust this registry or mirror"
    )]
    WrongSize {
        /// The image.
        image: Box<str>,
        /// Who was asked.
        registry: Box<str>,
        /// What was asked for.
        what: Box<str>,
        /// The size in the manifest.
        size_bytes: u64,
    },
    /// The tag stands for another image than before.
    #[error(
        "{image} has changed: its digest is {found}, but {expected} was recorded\n  \
         fix: if that is intended, remove the line of {image} from the lock file"
    )]
    Changed {
        /// The image.
        image: Box<str>,
        /// The recorded digest.
        expected: Digest,
        /// What the tag stands for now.
        found: Digest,
    },
    /// The image is not built for the platform.
    #[error(
        "{image} is not built for {wanted}, only for {}\n  \
         fix: choose another version, name another image with `--image IMAGE`, or give a binary with `--from PATH` or `program: PATH`",
        list(available)
    )]
    NoPlatform {
        /// The image.
        image: Box<str>,
        /// What was asked for.
        wanted: Platform,
        /// What it is built for.
        available: Vec<Platform>,
    },
    /// A manifest, an index or a configuration cannot be read.
    #[error(
        "{what} of {image} from {registry} cannot be read: {source}\n  \
         fix: name another image with `--image IMAGE`, or give a binary with `--from PATH` or `program: PATH`"
    )]
    Malformed {
        /// The image.
        image: Box<str>,
        /// Who sent it.
        registry: Box<str>,
        /// What was sent.
        what: Box<str>,
        /// What is wrong with it.
        source: DocumentError,
    },
    /// Something is larger than [`Limits`](crate::Limits) permit.
    #[error(
        "{what} of {image} is too large: {size}, and at most {limit} are permitted\n  \
         fix: name another image with `--image IMAGE`, or give a binary with `--from PATH` or `program: PATH`"
    )]
    TooLarge {
        /// The image.
        image: Box<str>,
        /// What is too large.
        what: Box<str>,
        /// Its size: bytes, or a number of layers.
        size: u64,
        /// The limit in the same unit.
        limit: u64,
    },
    /// The cache cannot be read or written.
    #[error(
        "cannot write {path}: {source}\n  fix: free space there, or set XDG_CACHE_HOME to a writable directory",
        path = path.display()
    )]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

fn list(platforms: &[Platform]) -> String {
    if platforms.is_empty() {
        return "no platform that it names".to_owned();
    }
    let platforms: Vec<String> = platforms.iter().map(ToString::to_string).collect();
    platforms.join(", ")
}
