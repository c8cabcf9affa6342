//! HTTP to registries: TLS, proxies and redirects.
//!
//! The client is ureq over rustls with ring. `oci-client`, the crate for registries, cannot do what a download of a
//! hundred megabytes needs: continue after a cut, wait as long as the registry asks, renew a token in between; and it
//! brings reqwest and an async runtime for a few requests one after the other.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION};
use http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder, ResponseExt as _, SendBody, Timeout};

/// How long an answer or the next bytes may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Redirects in a row. Registries need one, to where their content is stored.
const REDIRECTS: usize = 5;

/// The proxy of the environment, and for which hosts it is not used.
///
/// Plain HTTP is only spoken to loopback, which is never asked through a proxy, so that only the proxy for HTTPS
/// matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// The proxy's URL, with a user and password if it needs them.
    pub https: Option<String>,
    /// Hosts that are asked directly: names (with all names below them), addresses, networks as `10.0.0.0/8`, or `*`.
    pub direct: Vec<String>,
}

impl Proxies {
    /// What `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` say, or the same in lower case, which takes precedence.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::of(&|name| env::var(name).ok())
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| {
            let values = [name.to_owned(), name.to_uppercase()].map(|name| variable(&name));
            let mut values = values.into_iter().flatten();
            values.find(|value| !value.trim().is_empty())
        };
        let direct = set("no_proxy").unwrap_or_default();
        let entries = direct.split([',', ' ']).filter(|entry| !entry.is_empty());
        let proxy = set("https_proxy").or_else(|| set("all_proxy"));
        Self {
            https: proxy.map(|proxy| proxy.trim().to_owned()),
            direct: entries.map(str::to_owned).collect(),
        }
    }

    /// The proxy for a host, if it is asked through one.
    fn for_host(&self, host: &str) -> Option<&str> {
        let is_direct = is_loopback(host) || self.direct.iter().any(|entry| names(entry, host));
        self.https.as_deref().filter(|_| !is_direct)
    }
}

/// Whether an entry of `NO_PROXY` names the host. A port is ignored.
fn names(entry: &str, host: &str) -> bool {
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let entry = entry.to_ascii_lowercase();
    if entry == "*" || entry == host {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_in_network(&entry, address);
    }
    let name = entry.split_once(':').map_or(&*entry, |(name, _)| name);
    let name = name.trim_start_matches('*').trim_start_matches('.');
    let above = host.strip_suffix(name);
    !name.is_empty() && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

fn is_in_network(entry: &str, address: IpAddr) -> bool {
    let Some((network, length)) = entry.split_once('/') else {
        return entry.parse() == Ok(address);
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let bits = |address| match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let ((network, width), (address, other_width)) = (bits(network), bits(address));
    let differing = (network ^ address).leading_zeros();
    width == other_width && length <= width && differing >= length
}

/// Whether a host is this machine, without asking a name server.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let is_address = host
        .parse()
        .is_ok_and(|address: IpAddr| address.is_loopback());
    host.eq_ignore_ascii_case("localhost") || is_address
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection failed or ended.
    Transport(io::Error),
    /// A redirect is not followed.
    Redirect {
        target: String,
        reason: &'static str,
    },
    /// The host is not this machine, and TLS is not used.
    PlainHttp { url: String },
    /// There are no certificate authorities to verify a server with.
    NoRoots,
}

/// What hosts have accepted as `Authorization`. Each value is sent to its own host, wherever redirects lead.
#[derive(Default)]
pub(crate) struct Authorizations(BTreeMap<String, String>);

impl Authorizations {
    /// With this value for the host of a URL.
    pub(crate) fn with(mut self, url: &Uri, value: String) -> Self {
        self.insert(url, value);
        self
    }

    pub(crate) fn insert(&mut self, url: &Uri, value: String) {
        self.0.insert(origin(url), value);
    }

    /// The header for a request to this URL.
    pub(crate) fn header(&self, url: &Uri) -> Option<(HeaderName, String)> {
        let value = self.0.get(&origin(url));
        value.map(|value| (AUTHORIZATION, value.clone()))
    }
}

/// The server of a URL: what is meant for one URL of it is meant for all.
pub(crate) fn origin(url: &Uri) -> String {
    let scheme = url.scheme_str().unwrap_or_default();
    let authority = url.authority().map_or("", |authority| authority.as_str());
    format!("{scheme}://{}", authority.to_ascii_lowercase())
}

/// The URL that a response is from, after redirects.
pub(crate) fn answered_by(response: &Response<Body>) -> &Uri {
    response.get_uri()
}

pub(crate) struct Client {
    proxies: Proxies,
    /// How long a name or a connection may take.
    connection_wait: Duration,
    /// One for each way to a host: through a proxy, or directly.
    agents: RefCell<BTreeMap<Option<String>, Agent>>,
    roots: OnceCell<Option<TlsConfig>>,
}

impl Client {
    pub(crate) fn new(proxies: Proxies, connection_wait: Duration) -> Self {
        Self {
            proxies,
            connection_wait,
            agents: RefCell::default(),
            roots: OnceCell::new(),
        }
    }

    /// Asks for a URL, and follows redirects.
    pub(crate) fn get(
        &self,
        url: &Uri,
        headers: &[(HeaderName, String)],
        authorizations: &Authorizations,
    ) -> Result<Response<Body>, Failure> {
        let request = |agent: &Agent, at: &Uri| with_headers(agent.get(at), headers);
        self.follow(url, authorizations, &request)
    }

    /// Asks whether there is something at a URL, as [`Client::get`] and without content.
    pub(crate) fn head(
        &self,
        url: &Uri,
        authorizations: &Authorizations,
    ) -> Result<Response<Body>, Failure> {
        self.follow(url, authorizations, &|agent, at| agent.head(at))
    }

    fn follow(
        &self,
        url: &Uri,
        authorizations: &Authorizations,
        request: &dyn Fn(&Agent, &Uri) -> RequestBuilder<WithoutBody>,
    ) -> Result<Response<Body>, Failure> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS {
            let request = request(&self.agent(&at)?, &at);
            let request = with_headers(request, authorizations.header(&at).as_slice());
            let response = request.call().map_err(transport)?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            at = target(&at, &response)?;
        }
        Err(Failure::Redirect {
            target: at.to_string(),
            reason: "there are too many redirects",
        })
    }

    /// Sends a form, without following redirects: it has a secret in it.
    pub(crate) fn post_form(
        &self,
        url: &Uri,
        form: &[(&str, &str)],
    ) -> Result<Response<Body>, Failure> {
        let request = self.agent(url)?.post(url);
        let response = request.send_form(form.iter().copied());
        response.map_err(transport)
    }

    /// Sends a request without content that creates something, without following redirects.
    pub(crate) fn post(
        &self,
        url: &Uri,
        authorizations: &Authorizations,
    ) -> Result<Response<Body>, Failure> {
        let request = self.agent(url)?.post(url);
        let request = with_headers(request, authorizations.header(url).as_slice());
        request.send_empty().map_err(transport)
    }

    /// Stores content of a media type and a known length at a URL, without following redirects.
    pub(crate) fn put(
        &self,
        url: &Uri,
        authorizations: &Authorizations,
        media_type: &str,
        length: u64,
        content: &mut dyn Read,
    ) -> Result<Response<Body>, Failure> {
        let request = self.agent(url)?.put(url).header(CONTENT_LENGTH, length);
        let request = request.header(CONTENT_TYPE, media_type);
        with_headers(request, authorizations.header(url).as_slice())
            .send(SendBody::from_reader(content))
            .map_err(transport)
    }

    fn agent(&self, url: &Uri) -> Result<Agent, Failure> {
        let host = url.host().unwrap_or_default();
        let is_tls = url.scheme_str() == Some("https");
        if !is_tls && !is_loopback(host) {
            return Err(Failure::PlainHttp {
                url: url.to_string(),
            });
        }
        let proxy = self.proxies.for_host(host);
        let tls = if is_tls { Some(self.tls()?) } else { None };
        // Without TLS the configuration is not used; the same agent serves both once it is known.
        let key = proxy
            .map(str::to_owned)
            .or_else(|| tls.map(|_| "direct".to_owned()));
        if let Some(agent) = self.agents.borrow().get(&key) {
            return Ok(agent.clone());
        }
        let agent = new_agent(proxy, tls.cloned(), self.connection_wait)?;
        self.agents.borrow_mut().insert(key, agent.clone());
        Ok(agent)
    }

    /// The machine's certificate authorities: those of a company's proxy are there too, and nowhere else.
    fn tls(&self) -> Result<&TlsConfig, Failure> {
        let config = self.roots.get_or_init(|| {
            let found = rustls_native_certs::load_native_certs().certs;
            let certificates = found
                .iter()
                .map(|der| Certificate::from_der(der).to_owned());
            let provider = rustls::crypto::ring::default_provider();
            (!found.is_empty()).then(|| {
                TlsConfig::builder()
                    .root_certs(RootCerts::from(certificates))
                    .unversioned_rustls_crypto_provider(Arc::new(provider))
                    .build()
            })
        });
        config.as_ref().ok_or(Failure::NoRoots)
    }
}

fn with_headers<B>(
    mut request: RequestBuilder<B>,
    headers: &[(HeaderName, String)],
) -> RequestBuilder<B> {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request
}

fn new_agent(
    proxy: Option<&str>,
    tls: Option<TlsConfig>,
    connection_wait: Duration,
) -> Result<Agent, Failure> {
    let proxy = proxy.map(ureq::Proxy::new).transpose();
    let proxy = proxy.map_err(transport)?;
    let mut config = Agent::config_builder()
        .proxy(proxy)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("meshtax/", env!("CARGO_PKG_VERSION")))
        // A resolver asks its next server after five seconds.
        .timeout_resolve(Some(2 * connection_wait))
        .timeout_connect(Some(connection_wait))
        .timeout_recv_response(Some(PATIENCE))
        .timeout_per_read(Some(PATIENCE))
        .timeout_per_write(Some(PATIENCE));
    if let Some(tls) = tls {
        config = config.tls_config(tls);
    }
    Ok(config.build().new_agent())
}

/// Keeps what kind of failure it is: some do not pass by waiting.
fn transport(error: ureq::Error) -> Failure {
    let kind = match error {
        ureq::Error::HostNotFound => io::ErrorKind::NotFound,
        ureq::Error::Rustls(_) => io::ErrorKind::InvalidData,
        ureq::Error::InvalidProxyUrl => io::ErrorKind::InvalidInput,
        ureq::Error::Timeout(Timeout::Resolve | Timeout::Connect) => io::ErrorKind::HostUnreachable,
        other => return Failure::Transport(other.into_io()),
    };
    Failure::Transport(io::Error::new(kind, error))
}

/// Where a response leads: a redirect, or the answer to an upload that may begin.
pub(crate) fn target(from: &Uri, response: &Response<Body>) -> Result<Uri, Failure> {
    let location = response.headers().get(LOCATION);
    let location = location
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let refused = |reason| Failure::Redirect {
        target: location.to_owned(),
        reason,
    };
    let to = join(from, location).ok_or_else(|| refused("its target is no URL"))?;
    match (from.scheme_str(), to.scheme_str()) {
        (Some("https"), Some("http")) => Err(refused("it leads from TLS to plain HTTP")),
        (_, Some("http" | "https")) => Ok(to),
        _ => Err(refused("its target is no URL of HTTP")),
    }
}

/// A redirect's target, which may be a whole URL, or without its scheme, or only a path (RFC 9110, section 10.2.2).
fn join(from: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let whole = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else if location.is_empty() {
        return None;
    } else {
        let directory = from
            .path()
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{location}")
    };
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_is_used_except_for_loopback_and_named_hosts() {
        let proxies = Proxies {
            https: Some("http://proxy:3128".to_owned()),
            direct: [
                "corp.example",
                ".internal",
                "10.0.0.0/8",
                "fd00::/8",
                "192.0.2.7",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        for host in [
            "docker.io",
            "notcorp.example",
            "11.0.0.1",
            "192.0.2.8",
            "[2001:db8::1]",
        ] {
            assert_eq!(proxies.for_host(host), Some("http://proxy:3128"), "{host}");
        }
        for host in [
            "localhost",
            "127.0.0.1",
            "[::1]",
            "corp.example",
            "a.CORP.example",
            "b.internal",
            "10.2.3.4",
            "[fd12::1]",
            "192.0.2.7",
        ] {
            assert_eq!(proxies.for_host(host), None, "{host}");
        }
        let all = Proxies {
            direct: vec!["*".to_owned()],
            ..proxies
        };
        assert_eq!(all.for_host("docker.io"), None);
    }

    #[test]
    fn environment_is_read_in_both_cases_and_lower_case_counts() {
        let proxies = |set: &[(&str, &str)]| {
            let find = |name: &str| set.iter().find(|(set, _)| *set == name);
            Proxies::of(&|name| find(name).map(|(_, value)| (*value).to_owned()))
        };
        let both = proxies(&[("HTTPS_PROXY", "http://a"), ("https_proxy", "http://b")]);
        assert_eq!(both.https.as_deref(), Some("http://b"));
        let upper = proxies(&[("ALL_PROXY", "http://a"), ("NO_PROXY", "x.y, z")]);
        assert_eq!(upper.https.as_deref(), Some("http://a"));
        assert_eq!(upper.direct, ["x.y", "z"]);
        assert_eq!(proxies(&[("https_proxy", " ")]), Proxies::default());
    }

    #[test]
    fn redirects_are_resolved_against_their_page() {
        let from: Uri = "https://a.b:5000/v2/x/blobs/y?z=1".parse().unwrap();
        for (location, to) in [
            ("https://c.d/e", "https://c.d/e"),
            ("//c.d/e", "https://c.d/e"),
            ("/e?f=g", "https://a.b:5000/e?f=g"),
            ("e", "https://a.b:5000/v2/x/blobs/e"),
        ] {
            assert_eq!(join(&from, location).unwrap().to_string(), to);
        }
        assert_eq!(join(&from, ""), None);
    }

    #[test]
    fn authorization_is_for_its_own_host_only() {
        let url = |text: &str| text.parse::<Uri>().unwrap();
        let known = Authorizations::default().with(&url("https://a.b:5000/x"), "t".to_owned());
        let is_sent = |text: &str| known.header(&url(text)).is_some();
        assert!(is_sent("https://a.b:5000/y?z") && is_sent("https://A.B:5000/"));
        for other in [
            "http://a.b:5000/x",
            "https://a.b/x",
            "https://c.a.b:5000/x",
            "https://a.b:5000@c.d/x",
            "https://u@a.b:5000/x",
        ] {
            assert!(!is_sent(other), "{other}");
        }
    }

    #[test]
    fn plain_http_is_spoken_to_loopback_only() {
        let client = Client::new(Proxies::default(), Duration::from_secs(1));
        let url: Uri = "http://registry.example/v2/".parse().unwrap();
        assert!(matches!(
            client.get(&url, &[], &Authorizations::default()),
            Err(Failure::PlainHttp { .. })
        ));
    }
}
