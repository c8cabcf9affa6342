//! Questions to a registry and its mirrors (OCI distribution specification, *Pull*).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::thread;
use std::time::{Duration, SystemTime};

use http::header::{ACCEPT, AUTHORIZATION, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Response, StatusCode, Uri};
use ureq::Body;

use crate::credentials::{CredentialsError, Login};
use crate::digest::Digest;
use crate::error::PullError;
use crate::http_client::{Client, Failure, is_loopback};
use crate::manifest::ACCEPTED;
use crate::options::PullOptions;
use crate::reference::{Reference, is_component, is_registry};
use crate::token::{self, Challenge};

/// Bytes of a token service's answer.
const TOKEN_BYTES: u64 = 1 << 20;

/// Characters of the path of a mirror.
const PATH_LENGTH: usize = 255;

/// A host that is asked for an image: the registry, or a mirror of it.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// As users write it, with its port.
    pub(crate) name: Box<str>,
    host: String,
    /// The repository there.
    repository: String,
}

/// What a registry is asked about one image.
pub(crate) struct Session<'a> {
    pub(crate) image: Box<str>,
    reference: &'a Reference,
    pub(crate) options: &'a PullOptions,
    client: Client,
    pub(crate) endpoints: Vec<Endpoint>,
    /// By the endpoint's name, what it accepted last.
    authorizations: RefCell<BTreeMap<Box<str>, String>>,
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
            client: Client::new(options.proxies.clone()),
            endpoints: endpoints(reference, options)?,
            authorizations: RefCell::default(),
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
        let scheme = if self.options.plain_http && is_loopback(host_only(&endpoint.host)) {
            "http"
        } else {
            "https"
        };
        let (host, repository) = (&endpoint.host, &endpoint.repository);
        let url: Uri = format!("{scheme}://{host}/v2/{repository}/{path}")
            .parse()
            .expect("the parts of a reference are parts of a URL");
        let mut is_renewed = false;
        loop {
            let response = self.send(endpoint, &mut || {
                let known = self.authorizations.borrow();
                let known = known.get(&endpoint.name).cloned();
                let authorization = known.map(|value| (AUTHORIZATION, value));
                let headers: Vec<_> = headers.iter().cloned().chain(authorization).collect();
                self.client.get(&url, &headers)
            })?;
            if response.status() != StatusCode::UNAUTHORIZED || is_renewed {
                return self.accept(endpoint, path, response);
            }
            // The first question is asked without a token, and a later one with a token that may have expired.
            is_renewed = true;
            match self.authorize(endpoint, response.headers())? {
                Some(value) => {
                    let mut known = self.authorizations.borrow_mut();
                    known.insert(endpoint.name.clone(), value);
                }
                None => return self.accept(endpoint, path, response),
            }
        }
    }

    /// Sends a request until it is answered with something other than a failure that may pass.
    fn send(
        &self,
        endpoint: &Endpoint,
        send: &mut dyn FnMut() -> Result<Response<Body>, Failure>,
    ) -> Result<Response<Body>, PullError> {
        let retries = &self.options.retries;
        let mut failures = 0;
        loop {
            let answer = send();
            failures += 1;
            let asked = match &answer {
                Ok(response) if may_pass(response.status()) => retry_after(response.headers()),
                Err(Failure::Transport(e)) if may_pass_soon(e) => None,
                Ok(_) | Err(_) => return answer.map_err(|e| self.failed(endpoint, e)),
            };
            let wait = asked.unwrap_or_else(|| retries.wait_after(failures));
            // A longer Retry-After is reported as an error instead.
            if failures >= retries.tries || wait > retries.longest_wait {
                return answer.map_err(|e| self.failed(endpoint, e));
            }
            thread::sleep(wait);
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
                registry,
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

    /// Answers a challenge. `None`: there is nothing to answer it with.
    fn authorize(
        &self,
        endpoint: &Endpoint,
        headers: &HeaderMap,
    ) -> Result<Option<String>, PullError> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut challenges = values.filter_map(|value| Challenge::parse(value.to_str().ok()?));
        let login = self
            .options
            .credentials
            .find(&endpoint.name, &endpoint.repository);
        match challenges.next() {
            None => Ok(None),
            Some(Challenge::Basic) => {
                match login.map_err(|source| self.no_credentials(endpoint, source))? {
                    Some(Login::Password { user, password }) => {
                        Ok(Some(token::basic(&user, &password)))
                    }
                    _ => Ok(None),
                }
            }
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let own_scope = || format!("repository:{}:pull", endpoint.repository);
                let scope = scope.unwrap_or_else(own_scope);
                // Public images need no credentials: a broken helper must not stop them.
                let (login, problem) = match login {
                    Ok(login) => (login, None),
                    Err(problem) => (None, Some(problem)),
                };
                let token = self.token(endpoint, &realm, service.as_deref(), &scope, login);
                match (token, problem) {
                    (Err(_), Some(problem)) => Err(self.no_credentials(endpoint, problem)),
                    (token, _) => token.map(Some),
                }
            }
        }
    }

    fn token(
        &self,
        endpoint: &Endpoint,
        realm: &str,
        service: Option<&str>,
        scope: &str,
        login: Option<Login>,
    ) -> Result<String, PullError> {
        let failed = |reason: String| PullError::NoToken {
            image: self.image.clone(),
            registry: endpoint.name.clone(),
            service: realm.to_owned(),
            reason,
        };
        if !realm.starts_with("https://") && !self.options.plain_http {
            return Err(failed("it does not use TLS".to_owned()));
        }
        let parse = |url: &str| url.parse().map_err(|_| failed("it is no URL".to_owned()));
        let mut response = match login {
            Some(Login::Identity(identity)) => {
                let url: Uri = parse(realm)?;
                let form = [
                    ("grant_type", "refresh_token"),
                    ("client_id", "meshtax"),
                    ("service", service.unwrap_or_default()),
                    ("scope", scope),
                    ("refresh_token", &identity),
                ];
                self.send(endpoint, &mut || self.client.post_form(&url, &form))?
            }
            login => {
                let url: Uri = parse(&token::url(realm, service, scope))?;
                let authorization = match login {
                    Some(Login::Password { user, password }) => {
                        vec![(AUTHORIZATION, token::basic(&user, &password))]
                    }
                    _ => Vec::new(),
                };
                self.send(endpoint, &mut || self.client.get(&url, &authorization))?
            }
        };
        if response.status() != StatusCode::OK {
            return Err(failed(format!("it answers {}", response.status().as_u16())));
        }
        let mut answer = Vec::new();
        let body = response.body_mut().as_reader();
        let read = body.take(TOKEN_BYTES).read_to_end(&mut answer);
        read.map_err(|e| failed(e.to_string()))?;
        token::bearer(&answer).ok_or_else(|| failed("its answer has no token".to_owned()))
    }

    fn no_credentials(&self, endpoint: &Endpoint, source: CredentialsError) -> PullError {
        PullError::Credentials {
            image: self.image.clone(),
            registry: endpoint.name.clone(),
            source,
        }
    }

    fn unreachable(&self, endpoint: &Endpoint, source: io::Error) -> PullError {
        PullError::Unreachable {
            image: self.image.clone(),
            registry: endpoint.name.clone(),
            source,
        }
    }

    fn failed(&self, endpoint: &Endpoint, failure: Failure) -> PullError {
        let registry = endpoint.name.clone();
        match failure {
            Failure::Transport(source) => self.unreachable(endpoint, source),
            Failure::Redirect { target, reason } => PullError::Redirect {
                image: self.image.clone(),
                registry,
                target,
                reason,
            },
            Failure::PlainHttp { url } => PullError::PlainHttp {
                registry: url.into(),
            },
            Failure::NoRoots => PullError::NoRoots { registry },
        }
    }

    /// The tag or digest of the reference.
    pub(crate) fn version(&self) -> String {
        self.reference.version()
    }
}

/// Whether the same request may be answered later.
fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Whether a connection may succeed a moment later. Names that do not exist, closed ports and wrong certificates stay.
fn may_pass_soon(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let lasting = [
        Kind::NotFound,
        Kind::ConnectionRefused,
        Kind::InvalidData,
        Kind::InvalidInput,
    ];
    !lasting.contains(&error.kind())
}

/// How long the server asks to wait: a number of seconds, or a point in time (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

fn host_only(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if !host[at..].contains(']') => &host[..at],
        _ => host,
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
    let registry = Ok(Endpoint {
        name: reference.registry().into(),
        host: reference.host().to_owned(),
        repository: reference.repository().to_owned(),
    });
    mirrors.chain([registry]).collect()
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

    #[test]
    fn waits_are_read_as_seconds_and_as_dates() {
        let wait = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let later = SystemTime::now() + Duration::from_secs(100);
        let found = wait(&httpdate::fmt_http_date(later)).unwrap();
        assert!((98..=100).contains(&found.as_secs()), "{found:?}");
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn host_is_told_from_its_port() {
        for (text, host) in [
            ("a.b", "a.b"),
            ("a.b:1", "a.b"),
            ("[::1]:5000", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(host_only(text), host);
        }
    }
}
