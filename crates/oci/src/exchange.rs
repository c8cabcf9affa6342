//! Requests to a registry: who asks, what is done about failures that may pass, and tokens.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::thread;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Response, StatusCode, Uri};
use ureq::Body;

use crate::credentials::{Credentials, CredentialsError, Login};
use crate::http_client::{Client, Failure, Proxies, is_loopback};
use crate::options::Retries;
use crate::reference::Reference;
use crate::token::{self, Challenge};

/// Bytes of a token service's answer.
const TOKEN_BYTES: u64 = 1 << 20;

/// A host that is asked for an image: the registry, or a mirror of it.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// As users write it, with its port.
    pub(crate) name: Box<str>,
    pub(crate) host: String,
    /// The repository there.
    pub(crate) repository: String,
}

impl Endpoint {
    /// The registry of an image.
    pub(crate) fn of(reference: &Reference) -> Self {
        Self {
            name: reference.registry().into(),
            host: reference.host().to_owned(),
            repository: reference.repository().to_owned(),
        }
    }
}

/// What a token is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Pull,
    Push,
}

impl Access {
    /// The scope of a token. A registry names the one of the request that it answers; to push, one token serves the
    /// requests that read and those that write.
    fn scope(self, named: Option<String>, repository: &str) -> String {
        let can_push = |scope: &String| {
            let mut actions = scope
                .split(' ')
                .flat_map(|one| one.rsplit(':').next().unwrap_or_default().split(','));
            actions.any(|action| matches!(action, "push" | "*"))
        };
        match (self, named) {
            (Self::Pull, Some(scope)) => scope,
            (Self::Push, Some(scope)) if can_push(&scope) => scope,
            (Self::Pull, None) => format!("repository:{repository}:pull"),
            (Self::Push, _) => format!("repository:{repository}:pull,push"),
        }
    }
}

/// How registries are asked.
#[derive(Clone, Copy)]
pub(crate) struct Connection<'a> {
    pub(crate) credentials: &'a Credentials,
    pub(crate) proxies: &'a Proxies,
    pub(crate) plain_http: bool,
    pub(crate) retries: &'a Retries,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    Request(Failure),
    /// The registry wants to know who asks, and the credentials cannot be read.
    Credentials(CredentialsError),
    /// The registry's token service gives no token.
    NoToken {
        service: String,
        reason: String,
    },
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Request(failure)
    }
}

/// The value of `Authorization`, if there is one.
pub(crate) type Authorization = Option<(HeaderName, String)>;

/// Sends a request, with what authorizes it.
pub(crate) type SendRequest<'a> =
    dyn FnMut(&Client, Authorization) -> Result<Response<Body>, Failure> + 'a;

/// Requests with the connections and tokens of those before.
pub(crate) struct Exchange<'a> {
    access: Access,
    connection: Connection<'a>,
    client: Client,
    /// By the endpoint's name, what it accepted last.
    authorizations: RefCell<BTreeMap<Box<str>, String>>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(access: Access, connection: Connection<'a>) -> Self {
        Self {
            access,
            connection,
            client: Client::new(connection.proxies.clone()),
            authorizations: RefCell::default(),
        }
    }

    /// The URL of something in the endpoint's repository.
    pub(crate) fn url(&self, endpoint: &Endpoint, path: &str) -> Uri {
        let (host, repository) = (&endpoint.host, &endpoint.repository);
        let scheme = if self.connection.plain_http && is_loopback(host_only(host)) {
            "http"
        } else {
            "https"
        };
        format!("{scheme}://{host}/v2/{repository}/{path}")
            .parse()
            .expect("the parts of a reference are parts of a URL")
    }

    /// Sends a request: again after a failure that may pass, and once more with a new token if that is asked for. The
    /// status is the caller's to judge.
    pub(crate) fn ask(
        &self,
        endpoint: &Endpoint,
        send: &mut SendRequest<'_>,
    ) -> Result<Response<Body>, Fault> {
        let mut is_renewed = false;
        loop {
            let response = self.repeat(&mut || {
                let known = self.authorizations.borrow().get(&endpoint.name).cloned();
                send(&self.client, known.map(|value| (AUTHORIZATION, value)))
            })?;
            if response.status() != StatusCode::UNAUTHORIZED || is_renewed {
                return Ok(response);
            }
            // The first question is asked without a token, and a later one with a token that may have expired.
            is_renewed = true;
            let Some(value) = self.authorize(endpoint, response.headers())? else {
                return Ok(response);
            };
            let mut known = self.authorizations.borrow_mut();
            known.insert(endpoint.name.clone(), value);
        }
    }

    /// Sends a request until it is answered with something other than a failure that may pass.
    fn repeat(
        &self,
        send: &mut dyn FnMut() -> Result<Response<Body>, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let retries = self.connection.retries;
        let mut failures = 0;
        loop {
            let answer = send();
            failures += 1;
            let asked = match &answer {
                Ok(response) if may_pass(response.status()) => retry_after(response.headers()),
                Err(Failure::Transport(e)) if may_pass_soon(e) => None,
                Ok(_) | Err(_) => return answer,
            };
            let wait = asked.unwrap_or_else(|| retries.wait_after(failures));
            // A longer Retry-After is reported as an error instead.
            if failures >= retries.tries || wait > retries.longest_wait {
                return answer;
            }
            thread::sleep(wait);
        }
    }

    /// Answers a challenge. `None`: there is nothing to answer it with.
    fn authorize(&self, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Option<String>, Fault> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut challenges = values.filter_map(|value| Challenge::parse(value.to_str().ok()?));
        let credentials = self.connection.credentials;
        let login = credentials.find(&endpoint.name, &endpoint.repository);
        match challenges.next() {
            None => Ok(None),
            Some(Challenge::Basic) => match login.map_err(Fault::Credentials)? {
                Some(Login::Password { user, password }) => {
                    Ok(Some(token::basic(&user, &password)))
                }
                _ => Ok(None),
            },
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let scope = self.access.scope(scope, &endpoint.repository);
                // Public images need no credentials: a broken helper must not stop them.
                let (login, problem) = match login {
                    Ok(login) => (login, None),
                    Err(problem) => (None, Some(problem)),
                };
                let token = self.token(&realm, service.as_deref(), &scope, login);
                match (token, problem) {
                    (Err(_), Some(problem)) => Err(Fault::Credentials(problem)),
                    (token, _) => token.map(Some),
                }
            }
        }
    }

    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &str,
        login: Option<Login>,
    ) -> Result<String, Fault> {
        let failed = |reason: String| Fault::NoToken {
            service: realm.to_owned(),
            reason,
        };
        if !realm.starts_with("https://") && !self.connection.plain_http {
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
                self.repeat(&mut || self.client.post_form(&url, &form))?
            }
            login => {
                let url: Uri = parse(&token::url(realm, service, scope))?;
                let authorization = match login {
                    Some(Login::Password { user, password }) => {
                        vec![(AUTHORIZATION, token::basic(&user, &password))]
                    }
                    _ => Vec::new(),
                };
                self.repeat(&mut || self.client.get(&url, &authorization))?
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
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_to_push_is_asked_for_whatever_request_was_refused() {
        let scope =
            |access: Access, named: Option<&str>| access.scope(named.map(str::to_owned), "a/b");
        let pull = "repository:a/b:pull";
        let push = "repository:a/b:pull,push";
        assert_eq!(scope(Access::Pull, None), pull);
        assert_eq!(scope(Access::Pull, Some("x")), "x");
        assert_eq!(scope(Access::Push, None), push);
        assert_eq!(scope(Access::Push, Some(pull)), push);
        assert_eq!(scope(Access::Push, Some("repository:push:pull")), push);
        let named = "repository:a/b:pull,push repository:c:pull";
        assert_eq!(scope(Access::Push, Some(named)), named);
        assert_eq!(
            scope(Access::Push, Some("repository:a/b:*")),
            "repository:a/b:*"
        );
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
