//! Why an image cannot be pushed, and what the user can do about it.

use std::io;
use std::time::Duration;

use crate::credentials::CredentialsError;
use crate::digest::Digest;

/// Why an image cannot be pushed. `image` is the reference, `registry` its registry.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The reference has a digest that is not the image's.
    #[error(
        "{image} is to have the digest {expected}, but what was built has {found}\n  fix: leave out `@{expected}`"
    )]
    OtherDigest {
        /// The image.
        image: Box<str>,
        /// The digest of the reference.
        expected: Digest,
        /// The digest of what was built.
        found: Digest,
    },
    /// The registry cannot be reached, or the connection broke again and again.
    #[error(
        "cannot push {what} of {image} to {registry}: {source}\n  \
         fix: check the registry's name, the network and HTTPS_PROXY"
    )]
    Unreachable {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// What was sent.
        what: Box<str>,
        /// What failed.
        source: io::Error,
    },
    /// This machine trusts no certificate authority.
    #[error(
        "there are no CA certificates to verify {registry} with\n  \
         fix: install them (Debian: `sudo apt-get install ca-certificates`), or set SSL_CERT_FILE"
    )]
    NoRoots {
        /// The registry.
        registry: Box<str>,
    },
    /// The registry is not on this machine, and TLS would not be used.
    #[error(
        "{registry} would be contacted without TLS, which is allowed only on this machine's loopback\n  \
         fix: give the registry a certificate, and name its authority in SSL_CERT_FILE"
    )]
    PlainHttp {
        /// The URL.
        registry: Box<str>,
    },
    /// The registry sends the upload to where it is not sent.
    #[error(
        "{registry} redirects the upload of {what} of {image} to `{target}`: {reason}\n  \
         fix: name the registry by the host that accepts uploads, or ask its operator"
    )]
    Redirect {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// What was sent.
        what: Box<str>,
        /// Where to.
        target: String,
        /// Why it is not followed.
        reason: &'static str,
    },
    /// The registry does not let this user write there.
    #[error(
        "{registry} denies writing {image} ({status}{})\n  \
         fix: check the name, or log in with `docker login {registry}` or `podman login {registry}`",
        because(reason)
    )]
    Denied {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// 401 or 403.
        status: u16,
        /// What the registry says; empty: nothing.
        reason: String,
    },
    /// The registry wants to know who asks, and the credentials cannot be read.
    #[error("{registry} asks for credentials for {image}: {source}")]
    Credentials {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// What is wrong with them.
        source: CredentialsError,
    },
    /// The registry's token service gives no token.
    #[error(
        "the token service {service} of {registry} issues no token for pushing {image}: {reason}\n  \
         fix: log in with `docker login {registry}` as a user who may write there"
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
    /// The registry has no such repository, and does not create it.
    #[error(
        "{registry} has no repository for {image}{}\n  fix: check its name, or create the repository there",
        because(reason)
    )]
    NoRepository {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// What the registry says; empty: nothing.
        reason: String,
    },
    /// The registry limits how often this address or user may ask.
    #[error(
        "{registry} limits requests for {image}{}\n  fix: wait, or log in with `docker login {registry}`",
        match retry_after { Some(wait) => format!("; try again in {} s", wait.as_secs()), None => String::new() }
    )]
    RateLimited {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The registry does not take what is sent, or fails.
    #[error(
        "{registry} responds with {status} for {what} of {image}{}\n  \
         fix: try again later if it is 5xx, or else push to another registry or repository",
        because(reason)
    )]
    Refused {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// What was sent.
        what: Box<str>,
        /// The HTTP status.
        status: u16,
        /// What the registry says; empty: nothing.
        reason: String,
    },
    /// The registry has stored something else than what was sent.
    #[error(
        "{registry} stored {image} as {found} instead of {expected}\n  \
         fix: push again; if it stays wrong, do not trust this registry"
    )]
    WrongDigest {
        /// The image.
        image: Box<str>,
        /// The registry.
        registry: Box<str>,
        /// The digest of what was sent.
        expected: Digest,
        /// What the registry says.
        found: String,
    },
}

/// The end of a sentence with what a registry says.
fn because(reason: &str) -> String {
    match reason {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}
