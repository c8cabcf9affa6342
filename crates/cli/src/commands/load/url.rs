//! Where a load goes: the URL, what stands for it on the command line, and its address.

use std::net::{SocketAddr, ToSocketAddrs as _};

use crate::args::load::{ConnectTo, ConnectionArgs};
use crate::exit::{Failure, USAGE};

/// What a URL's first word says.
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

    /// Whether nothing but bytes is spoken.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// Whether that is within TLS.
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

/// How a URL is to be written.
const FORM: &str = "write it as http://HOST[:PORT][/PATH], https://HOST[:PORT][/PATH], \
                    tcp://HOST:PORT or tls://HOST:PORT, an IPv6 address in brackets";

impl Url {
    /// Reads it, or says what is wrong with it.
    ///
    /// # Errors
    /// With [`USAGE`]: no host, an unknown scheme, a port that is none, a user's name.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        Self::parse(text).map_err(|why| {
            Failure::with_fix(USAGE, format!("{}: {why}", text.escape_debug()), FORM)
        })
    }

    /// The same without words around it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("it has a space or a character that is not ASCII; percent-encode those");
        }
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Http, text),
            Some((name, rest)) => (
                Scheme::named(name).ok_or("this scheme is not spoken")?,
                rest,
            ),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(
                "it has a user's name in it; give credentials as -H 'Authorization: …' instead",
            );
        }
        let (host, port) = host_and_port(authority)?;
        let port = port
            .or(scheme.default_port())
            .ok_or("it has no port, which TCP needs")?;
        if scheme.is_plain() && !matches!(path, "" | "/") {
            return Err("TCP has no path");
        }
        Ok(Self {
            scheme,
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: match path {
                "" => "/".into(),
                query if query.starts_with('?') => format!("/{query}"),
                path => path.to_owned(),
            },
        })
    }

    /// Looks up where to connect, once: a name with several addresses is tried at its first.
    ///
    /// # Errors
    /// With [`USAGE`] when the host has no address, or none of the family asked for.
    pub(super) fn address(&self, args: &ConnectionArgs) -> Result<SocketAddr, Failure> {
        let elsewhere = args.connect_to.iter().find(|to| self.is_meant(to));
        let to_host = elsewhere.and_then(|to| to.to_host.as_deref());
        let to_port = elsewhere.and_then(|to| to.to_port);
        let host = to_host.unwrap_or(&self.host);
        let found: Vec<_> = (host, to_port.unwrap_or(self.port))
            .to_socket_addrs()
            .map_err(|e| {
                let fix = "see that the name is right, or give an address with --connect-to";
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

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("its bracket is not closed")?;
        match after.strip_prefix(':') {
            None if after.is_empty() => (host, None),
            None => return Err("there is something between its address and its port"),
            Some(port) => (host, Some(port)),
        }
    } else {
        match authority.split_once(':') {
            None => (authority, None),
            Some((_, port)) if port.contains(':') => {
                return Err("it has too many colons for a host and a port");
            }
            Some((host, port)) => (host, Some(port)),
        }
    };
    if host.is_empty() {
        return Err("no host is named");
    }
    let digits_only = |text: &&str| text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| -> Option<u16> { Some(text).filter(digits_only)?.parse().ok() };
    match port.map(number) {
        None => Ok((host, None)),
        Some(None | Some(0)) => Err("the port is no number from 1 to 65535"),
        Some(port) => Ok((host, port)),
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
    fn urls_in_all_their_forms() {
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
    fn what_is_no_url_is_refused() {
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
    fn a_secret_is_not_asked_to_be_in_the_url() {
        let failure = Url::read("http://user:secret@a/").unwrap_err();
        assert!(failure.message.contains("Authorization"), "{failure:?}");
    }
}
