//! Pushing: the blobs of an image that a registry does not have, and its manifest (OCI distribution specification,
//! *Push*).

mod error;

use std::io::{self, Read};

use http::{Response, Uri};
use serde::Deserialize;
use ureq::Body;

use crate::build::{Blob, BuiltImage};
use crate::exchange::{Access, Connection, Endpoint, Exchange, Fault, SendRequest, retry_after};
use crate::http_client::{Authorizations, Client, Failure, target};
use crate::options::PushOptions;
use crate::pull::Progress;
use crate::reference::Reference;
pub use error::PushError;

/// Bytes of a registry's explanation that are read, and characters of it that are shown.
const EXPLANATION_BYTES: u64 = 64 << 10;
const EXPLANATION_LENGTH: usize = 300;

/// In which a registry says what it has stored.
const STORED: &str = "docker-content-digest";

/// An image in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The reference with the digest: it names exactly this image.
    pub reference: Reference,
    /// Bytes that were sent. What the registry had was not sent.
    pub uploaded_bytes: u64,
}

/// Stores an image in the registry of a reference, under its tag. Blobs that the registry has are not sent.
///
/// The manifest is last: the tag stands for the image as a whole, or for what it stood for before.
///
/// # Errors
/// If the registry cannot be asked, or does not take the image; if the reference has another digest than the image.
pub fn push(
    image: &BuiltImage,
    reference: &Reference,
    options: &PushOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Pushed, PushError> {
    let name: Box<str> = reference.to_string().into();
    if let Some(expected) = reference.digest().filter(|digest| *digest != image.digest) {
        return Err(PushError::OtherDigest {
            image: name,
            expected,
            found: image.digest,
        });
    }
    let session = PushSession {
        image: name,
        endpoint: Endpoint::of(reference),
        exchange: Exchange::new(
            Access::Push,
            Connection {
                credentials: &options.credentials,
                proxies: &options.proxies,
                plain_http: options.plain_http,
                retries: &options.retries,
            },
        ),
    };
    let (mut before_bytes, mut uploaded_bytes) = (0, 0);
    for blob in image.blobs() {
        let size = blob.bytes.len() as u64;
        let mut report = |done| {
            progress(Progress {
                done_bytes: before_bytes + done,
                total_bytes: image.size_bytes(),
                what: &session.image,
            });
        };
        if !session.has(blob)? {
            session.upload(blob, &mut report)?;
            uploaded_bytes += size;
        }
        report(size);
        before_bytes += size;
    }
    session.tag(reference, image)?;
    Ok(Pushed {
        reference: reference.with_digest(image.digest),
        uploaded_bytes,
    })
}

/// What a registry is asked to store of one image.
struct PushSession<'a> {
    image: Box<str>,
    endpoint: Endpoint,
    exchange: Exchange<'a>,
}

impl PushSession<'_> {
    /// Whether the registry has a blob.
    fn has(&self, blob: &Blob) -> Result<bool, PushError> {
        let what = format!("blob {}", blob.digest());
        let url = self.url(&format!("blobs/{}", blob.digest()));
        let response = self.ask(&what, &mut |client, known| client.head(&url, known))?;
        match response.status().as_u16() {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.refused(&what, response)),
        }
    }

    /// Sends a blob. Each try is an upload of its own: what a broken one left is the registry's to remove.
    fn upload(&self, blob: &Blob, report: &mut dyn FnMut(u64)) -> Result<(), PushError> {
        let what = format!("blob {}", blob.digest());
        let uploads = self.url("blobs/uploads/");
        let response = self.ask(&what, &mut |client, known| {
            let started = client.post(&uploads, known)?;
            if started.status() != 202 {
                return Ok(started);
            }
            put_blob(client, known, (&uploads, &started), blob, report)
        })?;
        match response.status().as_u16() {
            201 | 204 => Ok(()),
            _ => Err(self.refused(&what, response)),
        }
    }

    /// Stores the manifest under the tag, or under its digest if there is none.
    fn tag(&self, reference: &Reference, image: &BuiltImage) -> Result<(), PushError> {
        let (media_type, bytes) = image.manifest();
        let version = reference
            .tag()
            .map_or_else(|| image.digest.to_string(), str::to_owned);
        let url = self.url(&format!("manifests/{version}"));
        let response = self.ask("the manifest", &mut |client, known| {
            client.put(&url, known, media_type, bytes.len() as u64, &mut &*bytes)
        })?;
        if !matches!(response.status().as_u16(), 200..=202) {
            return Err(self.refused("the manifest", response));
        }
        let stored = response.headers().get(STORED);
        let stored = stored.and_then(|value| value.to_str().ok());
        match stored.filter(|stored| *stored != image.digest.to_string()) {
            None => Ok(()),
            Some(found) => Err(PushError::WrongDigest {
                image: self.image.clone(),
                registry: self.endpoint.name.clone(),
                expected: image.digest,
                found: found.to_owned(),
            }),
        }
    }

    fn url(&self, path: &str) -> Uri {
        self.exchange.url(&self.endpoint, path)
    }

    fn ask(&self, what: &str, send: &mut SendRequest<'_>) -> Result<Response<Body>, PushError> {
        let answer = self.exchange.ask(&self.endpoint, send);
        answer.map_err(|fault| self.failed(what, fault))
    }

    fn failed(&self, what: &str, fault: Fault) -> PushError {
        let (image, registry) = (self.image.clone(), self.endpoint.name.clone());
        let what = what.into();
        match fault {
            Fault::Request(Failure::Transport(source)) => PushError::Unreachable {
                image,
                registry,
                what,
                source,
            },
            Fault::Request(Failure::Redirect { target, reason }) => PushError::Redirect {
                image,
                registry,
                what,
                target,
                reason,
            },
            Fault::Request(Failure::PlainHttp { url }) => PushError::PlainHttp {
                registry: url.into(),
            },
            Fault::Request(Failure::NoRoots) => PushError::NoRoots { registry },
            Fault::Credentials(source) => PushError::Credentials {
                image,
                registry,
                source,
            },
            Fault::NoToken { service, reason } => PushError::NoToken {
                image,
                registry,
                service,
                reason,
            },
        }
    }

    /// The error for a response that is no success.
    fn refused(&self, what: &str, mut response: Response<Body>) -> PushError {
        let (image, registry) = (self.image.clone(), self.endpoint.name.clone());
        let reason = explanation(&mut response);
        match response.status().as_u16() {
            status @ (401 | 403) => PushError::Denied {
                image,
                registry,
                status,
                reason,
            },
            404 => PushError::NoRepository {
                image,
                registry,
                reason,
            },
            429 => PushError::RateLimited {
                image,
                registry,
                retry_after: retry_after(response.headers()),
            },
            status => PushError::Refused {
                image,
                registry,
                what: what.into(),
                status,
                reason,
            },
        }
    }
}

/// Sends the content of an upload that has begun, in one request.
fn put_blob(
    client: &Client,
    known: &Authorizations,
    (from, started): (&Uri, &Response<Body>),
    blob: &Blob,
    report: &mut dyn FnMut(u64),
) -> Result<Response<Body>, Failure> {
    let place = target(from, started)?;
    let url = with_digest(&place, blob)?;
    let mut content = Reported {
        rest: &blob.bytes,
        sent_bytes: 0,
        report,
    };
    let (media_type, length) = ("application/octet-stream", blob.bytes.len() as u64);
    // The place may be another host's, where the URL is the permission: nothing is known that authorizes it.
    client.put(&url, known, media_type, length, &mut content)
}

/// The URL that ends an upload: where it takes place, and what the digest must be. The place may have a query.
fn with_digest(place: &Uri, blob: &Blob) -> Result<Uri, Failure> {
    let separator = if place.query().is_some() { '&' } else { '?' };
    let url = format!("{place}{separator}digest={}", blob.digest());
    url.parse().map_err(|_| Failure::Redirect {
        target: url.clone(),
        reason: "it is no URL",
    })
}

/// Content that reports how much of it was sent.
struct Reported<'a> {
    rest: &'a [u8],
    sent_bytes: u64,
    report: &'a mut dyn FnMut(u64),
}

impl Read for Reported<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.rest.read(buffer)?;
        self.sent_bytes += length as u64;
        (self.report)(self.sent_bytes);
        Ok(length)
    }
}

/// OCI distribution specification, *Error Codes*.
#[derive(Deserialize)]
struct Explanation {
    errors: Vec<Explained>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Explained {
    code: String,
    message: String,
}

/// What the registry says of its refusal, in one line; empty: nothing that can be read.
fn explanation(response: &mut Response<Body>) -> String {
    let mut bytes = Vec::new();
    let body = response.body_mut().as_reader();
    // An explanation that is cut explains nothing, and the status is enough.
    let _ = body.take(EXPLANATION_BYTES).read_to_end(&mut bytes);
    let Ok(said) = serde_json::from_slice::<Explanation>(&bytes) else {
        return String::new();
    };
    let each = said.errors.into_iter().map(|error| {
        let parts = [error.code, error.message];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    });
    let text = each.collect::<Vec<_>>().join("; ");
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(EXPLANATION_LENGTH).collect()
}
