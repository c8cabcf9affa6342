//! The target of a load: its URL, and the address to connect to.

use std::net::{SocketAddr, ToSocketAddrs as _};

use http::Uri;
use http::uri::{Authority, InvalidUri};

use crate::args::load::{ConnectTo, ConnectionArgs};
use crate::exit::{Failure, USAGE};

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
    Tcp,
    /// TCP within TLS.
    Tls,
}

impl Scheme {
    fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            "tcp" => Some(Self::Tcp),
            "tls" => Some(Self::Tls),
            _ => None,
        }
    }

    fn default_port(self) -> Option<u16> {
        match self {
            Self::Http => Some(80),
            Self::Https => Some(443),
            Self::Tcp | Self::Tls => None,
        }
    }

    /// Whether the connection carries plain bytes instead of HTTP.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }
}

/// The parts of a URL that a load needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: Scheme,
    /// As it was written: the `host` header.
    pub(super) authority: String,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// With the query; `/` if there was none.
    pub(super) path: String,
}

/// How to write a URL.
const FORM: &str = "write it as http://HOST[:PORT][/PATH], https://HOST[:PORT][/PATH], \
                    tcp://HOST:PORT or tls://HOST:PORT, an IPv6 address in brackets";

/// Why a text is not the URL of a load.
#[derive(Debug, thiserror::Error)]
pub(super) enum UrlError {
    /// A character that would have to be percent-encoded.
    #[error("it has a space or a character that is not ASCII; percent-encode those")]
    NotAscii,
    /// The URL's grammar is violated.
    #[error("{0}")]
    Syntax(#[from] InvalidUri),
    /// A scheme other than those of [`Scheme`].
    #[error("the scheme `{0}` is not supported")]
    Scheme(String),
    /// Credentials would end up in the stored result.
    #[error("it contains a user name; pass credentials as -H 'Authorization: …' instead")]
    UserInfo,
    /// Nothing names the server.
    #[error("it has no host")]
    NoHost,
    /// Not a TCP port.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// TCP has no default port.
    #[error("it has no port, which TCP needs")]
    NoPort,
    /// TCP carries no path.
    #[error("TCP has no path")]
    PathOfTcp,
}

impl Url {
    /// Parses a URL for the command line.
    ///
    /// # Errors
    /// With [`USAGE`], the reason and the expected form.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        Self::parse(text).map_err(|why| {
            Failure::with_fix(USAGE, format!("{}: {why}", text.escape_debug()), FORM)
        })
    }

    /// Parses a URL; without a scheme it is `http`.
    ///
    /// # Errors
    /// When it is malformed, has an unsupported scheme, user info, no host or an invalid port.
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(UrlError::NotAscii);
        }
        let uri: Uri = match text.contains("://") {
            true => text.parse()?,
            false => format!("http://{text}").parse()?,
        };
        let name = uri.scheme_str().unwrap_or_default();
        let scheme = Scheme::named(name).ok_or_else(|| UrlError::Scheme(name.to_owned()))?;
        let authority = uri.authority().ok_or(UrlError::NoHost)?;
        let (host, port) = host_and_port(authority)?;
        let port = port.or(scheme.default_port()).ok_or(UrlError::NoPort)?;
        let path = uri.path_and_query().map_or("/".into(), ToString::to_string);
        if scheme.is_plain() && path != "/" {
            return Err(UrlError::PathOfTcp);
        }
        Ok(Self {
            scheme,
            authority: authority.to_string(),
            host: host.to_owned(),
            port,
            path,
        })
    }

    /// Resolves the host once; of several addresses the first is used, IPv4 before IPv6.
    ///
    /// # Errors
    /// With [`USAGE`] when the host has no address, or none of the requested family.
    pub(super) fn address(&self, args: &ConnectionArgs) -> Result<SocketAddr, Failure> {
        let elsewhere = args.connect_to.iter().find(|to| self.is_meant(to));
        let to_host = elsewhere.and_then(|to| to.to_host.as_deref());
        let to_port = elsewhere.and_then(|to| to.to_port);
        let host = to_host.unwrap_or(&self.host);
        let found: Vec<_> = (host, to_port.unwrap_or(self.port))
            .to_socket_addrs()
            .map_err(|e| {
                let fix = "check the name, or give an address with --connect-to";
                Failure::with_fix(USAGE, format!("cannot look up {host}: {e}"), fix)
            })?
            .collect();
        let of_family = found
            .iter()
            .filter(|a| (!args.ipv4 || a.is_ipv4()) && (!args.ipv6 || a.is_ipv6()));
        of_family
            .min_by_key(|address| !address.is_ipv4())
            .copied()
            .ok_or_else(|| {
                let (kind, fix) = match (args.ipv4, args.ipv6) {
                    (true, _) => ("IPv4 address", "leave --ipv4 out"),
                    (_, true) => ("IPv6 address", "leave --ipv6 out"),
                    _ => ("address", "give an address instead of a name"),
                };
                Failure::with_fix(USAGE, format!("{host} has no {kind}"), fix)
            })
    }

    fn is_meant(&self, to: &ConnectTo) -> bool {
        let host = to.from_host.as_ref();
        host.is_none_or(|host| host.eq_ignore_ascii_case(&self.host))
            && to.from_port.is_none_or(|port| port == self.port)
    }
}

/// The host without brackets, and the port if there is one. [`Uri`] itself accepts any port.
fn host_and_port(authority: &Authority) -> Result<(&str, Option<u16>), UrlError> {
    if authority.as_str().contains('@') {
        return Err(UrlError::UserInfo);
    }
    let bracketed = authority.host();
    let host = bracketed
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(bracketed);
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let after_host = &authority.as_str()[bracketed.len()..];
    if after_host.is_empty() {
        return Ok((host, None));
    }
    let digits = after_host.strip_prefix(':').ok_or(UrlError::Port)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    match digits.parse() {
        Ok(0) | Err(_) => Err(UrlError::Port),
        Ok(port) => Ok((host, Some(port))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Scheme, String, u16, String) {
        let url = Url::parse(text).unwrap();
        (url.scheme, url.host, url.port, url.path)
    }

    #[test]
    fn urls_are_split_into_their_components() {
        let of = |scheme, host: &str, port, path: &str| (scheme, host.into(), port, path.into());
        assert_eq!(parts("http://a"), of(Scheme::Http, "a", 80, "/"));
        assert_eq!(parts("HTTPS://a"), of(Scheme::Https, "a", 443, "/"));
        assert_eq!(parts("a:8080/x"), of(Scheme::Http, "a", 8080, "/x"));
        assert_eq!(parts("http://a?b=c#d"), of(Scheme::Http, "a", 80, "/?b=c"));
        assert_eq!(
            parts("https://[::1]:9/p?q@:/"),
            of(Scheme::Https, "::1", 9, "/p?q@:/")
        );
        assert_eq!(parts("http://[::1]"), of(Scheme::Http, "::1", 80, "/"));
        assert_eq!(parts("tcp://a:7"), of(Scheme::Tcp, "a", 7, "/"));
        assert_eq!(parts("tls://a:7/"), of(Scheme::Tls, "a", 7, "/"));
        assert_eq!(
            Url::parse("http://[::1]:80/").unwrap().authority,
            "[::1]:80"
        );
    }

    #[test]
    fn malformed_urls_are_rejected() {
        for wrong in [
            "",
            "http://",
            "http:///a",
            "ftp://a/",
            "://a",
            "http://user:secret@a/",
            "http://a:b/",
            "http://a:/",
            "http://a:0/",
            "http://a:99999/",
            "http://a:+80/",
            "http://::1/",
            "http://[::1",
            "http://[::1]80/",
            "http://[]/",
            "http://a b/",
            "http://ä/",
            "http://a/\u{1b}[31m",
            "tcp://a",
            "tls://a",
            "tcp://a:7/path",
            "http://a:80:90/",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn user_info_is_rejected_with_a_pointer_to_headers() {
        let failure = Url::read("http://user:secret@a/").unwrap_err();
        assert!(failure.to_string().contains("Authorization"), "{failure:?}");
    }
}
