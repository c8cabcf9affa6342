//! Requests to a registry: who asks, what is done about failures that may pass, and tokens.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::thread;
use std::time::{Duration, SystemTime};

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode, Uri};
use ureq::Body;

use crate::credentials::{Credentials, CredentialsError, Login};
use crate::http_client::{
    Authorizations, Client, Failure, Proxies, answered_by, is_loopback, origin,
};
use crate::options::Retries;
use crate::reference::Reference;
use crate::token::{self, Challenge};

/// Bytes of a token service's answer.
const TOKEN_BYTES: u64 = 1 << 20;

/// Hosts that may ask for authorization of one request: the registry, and those that redirects lead to.
const CHALLENGERS: usize = 4;

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

    /// Who has answered a request to this endpoint: itself, or another registry that a redirect led to.
    pub(crate) fn answering(&self, url: &Uri) -> Self {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        if authority.eq_ignore_ascii_case(&self.host) {
            return self.clone();
        }
        let repository = url.path().strip_prefix("/v2/").and_then(|path| {
            let kinds = ["/manifests/", "/blobs/"].into_iter();
            let before = kinds.filter_map(|kind| Some(path.rsplit_once(kind)?.0));
            before.max_by_key(|before| before.len())
        });
        Self {
            name: authority.into(),
            host: authority.to_owned(),
            repository: repository.unwrap_or(&self.repository).to_owned(),
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

/// Sends a request, with what authorizes it.
pub(crate) type SendRequest<'a> =
    dyn FnMut(&Client, &Authorizations) -> Result<Response<Body>, Failure> + 'a;

/// Requests with the connections and tokens of those before.
pub(crate) struct Exchange<'a> {
    access: Access,
    connection: Connection<'a>,
    client: Client,
    authorizations: RefCell<Authorizations>,
    /// Those who have answered: the names of endpoints, and the URLs of token services.
    answered: RefCell<BTreeSet<Box<str>>>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(access: Access, connection: Connection<'a>) -> Self {
        Self {
            access,
            connection,
            client: Client::new(
                connection.proxies.clone(),
                connection.retries.connection_wait,
            ),
            authorizations: RefCell::default(),
            answered: RefCell::default(),
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

    /// Sends a request: again after a failure that may pass, and once more with a new token for each host that asks for
    /// one, which may be another registry that a redirect led to. The status is the caller's to judge.
    pub(crate) fn ask(
        &self,
        endpoint: &Endpoint,
        send: &mut SendRequest<'_>,
    ) -> Result<Response<Body>, Fault> {
        let mut renewed = BTreeSet::new();
        loop {
            let response = self.repeat(&endpoint.name, &mut || {
                send(&self.client, &self.authorizations.borrow())
            })?;
            if response.status() != StatusCode::UNAUTHORIZED || renewed.len() >= CHALLENGERS {
                return Ok(response);
            }
            // The first question is asked without a token, and a later one with a token that may have expired.
            let at = answered_by(&response);
            if !renewed.insert(origin(at)) {
                return Ok(response);
            }
            let challenger = endpoint.answering(at);
            let Some(value) = self.authorize(&challenger, response.headers())? else {
                return Ok(response);
            };
            self.authorizations.borrow_mut().insert(at, value);
        }
    }

    /// Sends a request until it is answered with something other than a failure that may pass.
    fn repeat(
        &self,
        to: &str,
        send: &mut dyn FnMut() -> Result<Response<Body>, Failure>,
    ) -> Result<Response<Body>, Failure> {
        let retries = self.connection.retries;
        let mut failures = 0;
        loop {
            let answer = send();
            failures += 1;
            if answer.is_ok() {
                self.answered.borrow_mut().insert(to.into());
            }
            let asked = match &answer {
                Err(Failure::Transport(e)) if is_silence(e) && !self.has_answered(to) => {
                    return answer;
                }
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

    fn has_answered(&self, to: &str) -> bool {
        self.answered.borrow().contains(to)
    }

    /// Answers a challenge. `None`: there is nothing to answer it with.
    fn authorize(&self, endpoint: &Endpoint, headers: &HeaderMap) -> Result<Option<String>, Fault> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = values.flat_map(Challenge::all).collect();
        // A token for a public image needs no password, whatever else is offered before it.
        let is_bearer = |challenge: &&Challenge| matches!(challenge, Challenge::Bearer { .. });
        let chosen = challenges.iter().find(is_bearer).or(challenges.first());
        let credentials = self.connection.credentials;
        let login = credentials.find(&endpoint.name, &endpoint.repository);
        match chosen {
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
                let scope = self.access.scope(scope.clone(), &endpoint.repository);
                // Public images need no credentials: a broken helper must not stop them.
                let (login, problem) = match login {
                    Ok(login) => (login, None),
                    Err(problem) => (None, Some(problem)),
                };
                let token = self.token(realm, service.as_deref(), &scope, login);
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
                self.repeat(realm, &mut || self.client.post_form(&url, &form))?
            }
            login => {
                let url: Uri = parse(&token::url(realm, service, scope))?;
                let authorizations = match login {
                    Some(Login::Password { user, password }) => {
                        Authorizations::default().with(&url, token::basic(&user, &password))
                    }
                    _ => Authorizations::default(),
                };
                self.repeat(realm, &mut || self.client.get(&url, &[], &authorizations))?
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

/// Whether nobody answered an attempt to connect, so that another would take as long.
fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::HostUnreachable
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
    fn registry_behind_a_redirect_has_its_own_name_and_repository() {
        let reference = "cr.example/linkerd/proxy:1".parse().unwrap();
        let endpoint = Endpoint::of(&reference);
        let answering = |url: &str| {
            let found = endpoint.answering(&url.parse().unwrap());
            format!("{} {}", found.name, found.repository)
        };
        let own = answering("https://CR.example/v2/other/manifests/1");
        assert_eq!(own, "cr.example linkerd/proxy");
        let other = answering("https://ghcr.example/v2/a/blobs/b/manifests/sha256:1");
        assert_eq!(other, "ghcr.example a/blobs/b");
        let storage = answering("https://storage.example:1/x?y");
        assert_eq!(storage, "storage.example:1 linkerd/proxy");
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
