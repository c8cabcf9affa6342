//! Questions to a registry and its mirrors (OCI distribution specification, *Pull*).

use std::io::{self, Read as _};
use std::thread;

use http::header::{ACCEPT, RANGE};
use http::{HeaderName, Response};
use ureq::Body;

use crate::digest::Digest;
use crate::error::PullError;
use crate::exchange::{Access, Connection, Endpoint, Exchange, Fault, retry_after};
use crate::http_client::{Failure, answered_by};
use crate::manifest::ACCEPTED;
use crate::options::PullOptions;
use crate::reference::{Reference, is_component, is_registry};

/// Characters of the path of a mirror.
const PATH_LENGTH: usize = 255;

/// What a registry is asked about one image.
pub(crate) struct Session<'a> {
    pub(crate) image: Box<str>,
    reference: &'a Reference,
    pub(crate) options: &'a PullOptions,
    exchange: Exchange<'a>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        reference: &'a Reference,
        options: &'a PullOptions,
    ) -> Result<Self, PullError> {
        Ok(Self {
            image: reference.to_string().into(),
            reference,
            options,
            exchange: Exchange::new(
                Access::Pull,
                Connection {
                    credentials: &options.credentials,
                    proxies: &options.proxies,
                    plain_http: options.plain_http,
                    retries: &options.retries,
                },
            ),
            endpoints: endpoints(reference, options)?,
        })
    }

    /// Asks each endpoint until one has the answer. The last one is the registry itself, whose error counts.
    pub(crate) fn at_any_endpoint<T>(
        &self,
        ask: &mut dyn FnMut(&Endpoint) -> Result<T, PullError>,
    ) -> Result<T, PullError> {
        let (registry, mirrors) = self.endpoints.split_last().expect("the registry is one");
        for mirror in mirrors {
            match ask(mirror) {
                Ok(answer) => return Ok(answer),
                // No other endpoint helps against a full disk.
                Err(error @ PullError::Cache { .. }) => return Err(error),
                Err(_) => {}
            }
        }
        ask(registry)
    }

    /// The bytes of a manifest or index. `version` is a tag or a digest. It is small: after a cut it is asked for again.
    pub(crate) fn manifest(
        &self,
        endpoint: &Endpoint,
        version: &str,
    ) -> Result<Vec<u8>, PullError> {
        let path = format!("manifests/{version}");
        let limit = self.options.limits.manifest_bytes;
        let mut failures = 0;
        loop {
            let accept = (ACCEPT, ACCEPTED.to_owned());
            let mut response = self.get(endpoint, &path, &[accept])?;
            let body = response.body_mut().as_reader();
            let mut bytes = Vec::new();
            match body.take(limit + 1).read_to_end(&mut bytes) {
                Ok(_) if bytes.len() as u64 <= limit => return Ok(bytes),
                Ok(_) => {
                    return Err(PullError::TooLarge {
                        image: self.image.clone(),
                        what: "the manifest".into(),
                        size: bytes.len() as u64,
                        limit,
                    });
                }
                Err(source) => {
                    failures += 1;
                    if failures >= self.options.retries.tries {
                        return Err(self.unreachable(endpoint, source));
                    }
                    thread::sleep(self.options.retries.wait_after(failures));
                }
            }
        }
    }

    /// A blob from a byte to its last one. The registry may ignore the range, or reject it with 416.
    pub(crate) fn blob(
        &self,
        endpoint: &Endpoint,
        digest: &Digest,
        from: u64,
        last: u64,
    ) -> Result<Response<Body>, PullError> {
        let range = (from > 0).then(|| (RANGE, format!("bytes={from}-{last}")));
        self.get(endpoint, &format!("blobs/{digest}"), range.as_slice())
    }

    fn get(
        &self,
        endpoint: &Endpoint,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Response<Body>, PullError> {
        let url = self.exchange.url(endpoint, path);
        let response = self.exchange.ask(endpoint, &mut |client, known| {
            client.get(&url, headers, known)
        });
        match response {
            Ok(response) => self.accept(endpoint, path, response),
            Err(fault) => Err(self.failed(endpoint, fault)),
        }
    }

    fn failed(&self, endpoint: &Endpoint, fault: Fault) -> PullError {
        let (image, registry) = (self.image.clone(), endpoint.name.clone());
        match fault {
            Fault::Request(Failure::Transport(source)) => self.unreachable(endpoint, source),
            Fault::Request(Failure::Redirect { target, reason }) => PullError::Redirect {
                image,
                registry,
                target,
                reason,
            },
            Fault::Request(Failure::PlainHttp { url }) => PullError::PlainHttp {
                registry: url.into(),
            },
            Fault::Request(Failure::NoRoots) => PullError::NoRoots { registry },
            Fault::Credentials(source) => PullError::Credentials {
                image,
                registry,
                source,
            },
            Fault::NoToken { service, reason } => PullError::NoToken {
                image,
                registry,
                service,
                reason,
            },
        }
    }

    /// Passes on a response with content, and turns others into errors.
    fn accept(
        &self,
        endpoint: &Endpoint,
        path: &str,
        response: Response<Body>,
    ) -> Result<Response<Body>, PullError> {
        let status = response.status();
        let (image, registry) = (self.image.clone(), endpoint.name.clone());
        let what = path.into();
        Err(match status.as_u16() {
            200 | 206 | 416 => return Ok(response),
            401 | 403 => PullError::Denied {
                image,
                // Whoever logs in must do so where it was denied.
                registry: endpoint.answering(answered_by(&response)).name,
                status: status.as_u16(),
            },
            404 => PullError::NotFound {
                image,
                registry,
                what,
            },
            429 => PullError::RateLimited {
                image,
                registry,
                retry_after: retry_after(response.headers()),
            },
            status => PullError::Server {
                image,
                registry,
                status,
                what,
            },
        })
    }

    fn unreachable(&self, endpoint: &Endpoint, source: io::Error) -> PullError {
        PullError::Unreachable {
            image: self.image.clone(),
            registry: endpoint.name.clone(),
            source,
        }
    }

    /// The tag or digest of the reference.
    pub(crate) fn version(&self) -> String {
        self.reference.version()
    }
}

/// The mirrors of the registry, and the registry.
fn endpoints(reference: &Reference, options: &PullOptions) -> Result<Vec<Endpoint>, PullError> {
    let mirrors = options.mirrors.get(reference.registry());
    let mirrors = mirrors.into_iter().flatten().map(|mirror| {
        let invalid = || PullError::Mirror {
            mirror: mirror.clone(),
        };
        let bare = mirror.strip_prefix("https://").unwrap_or(mirror);
        let bare = bare.trim_end_matches('/');
        let (host, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
        let path = path.trim_start_matches('/');
        let is_path = path.is_empty() || path.split('/').all(is_component);
        if !is_registry(host) || !is_path || path.len() > PATH_LENGTH {
            return Err(invalid());
        }
        let repository = [path, reference.repository()].join("/");
        Ok(Endpoint {
            name: host.into(),
            host: host.to_owned(),
            repository: repository.trim_start_matches('/').to_owned(),
        })
    });
    mirrors.chain([Ok(Endpoint::of(reference))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_asked_before_the_registry() {
        let mut options = PullOptions::new("/nowhere");
        let mirrors = ["mirror.example/hub", "https://other.example:5000/"].map(str::to_owned);
        options
            .mirrors
            .insert("docker.io".to_owned(), mirrors.to_vec());
        let reference: Reference = "istio/ztunnel:1".parse().unwrap();
        let found = endpoints(&reference, &options).unwrap();
        let found = found.iter().map(|e| format!("{}/{}", e.host, e.repository));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [
                "mirror.example/hub/istio/ztunnel",
                "other.example:5000/istio/ztunnel",
                "registry-1.docker.io/istio/ztunnel"
            ]
        );
        for wrong in ["http://mirror.example", "mirror.example/../x", "a b", ""] {
            options
                .mirrors
                .insert("docker.io".to_owned(), vec![wrong.to_owned()]);
            let error = endpoints(&reference, &options).unwrap_err();
            assert!(
                matches!(error, PullError::Mirror { .. }),
                "{wrong}: {error}"
            );
        }
    }
}
