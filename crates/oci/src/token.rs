//! Challenges of registries, and the tokens that answer them.
//!
//! A registry names its token service in `WWW-Authenticate` (RFC 9110, section 11.6.1; *Token Authentication
//! Specification* of the distribution project).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// What a registry wants to know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// The challenges of a header that can be answered. One header may have several, separated as their parameters are
    /// (RFC 9110, section 11.6.1).
    pub(crate) fn all(header: &str) -> Vec<Self> {
        let mut schemes: Vec<(&str, BTreeMap<String, String>)> = Vec::new();
        for item in items(header) {
            let (before, value) = item.split_once('=').unwrap_or((item, ""));
            let before = before.trim();
            // `Bearer realm="x"` begins a challenge, and so does `Basic`; `scope="x"` continues one.
            let (scheme, name) = match before.split_once(' ') {
                Some((scheme, name)) => (Some(scheme), name.trim()),
                None if item.contains('=') => (None, before),
                None => (Some(before), ""),
            };
            schemes.extend(scheme.map(|scheme| (scheme, BTreeMap::new())));
            if let Some((_, parameters)) = schemes.last_mut() {
                parameters.insert(name.to_ascii_lowercase(), unquote(value.trim()));
            }
        }
        let known = schemes.into_iter();
        known
            .filter_map(|(scheme, parameters)| Self::of(scheme, parameters))
            .collect()
    }

    fn of(scheme: &str, mut parameters: BTreeMap<String, String>) -> Option<Self> {
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        Some(Self::Bearer {
            realm: parameters
                .remove("realm")
                .filter(|realm| !realm.is_empty())?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }
}

/// The parts of a header between its commas, except for those in quotes.
fn items(header: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = header.split(|c| {
        let is_separator = c == ',' && !is_quoted;
        if c == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = c == '\\' && is_quoted && !is_escaped;
        is_separator
    });
    let parts = parts.map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

/// The value of a parameter: as it is, or up to the closing quote.
fn unquote(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"') else {
        return text.to_owned();
    };
    let mut value = String::new();
    let mut characters = quoted.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => value.extend(characters.next()),
            c => value.push(c),
        }
    }
    value
}

/// The URL of a token service with what is asked for.
pub(crate) fn url(realm: &str, service: Option<&str>, scope: &str) -> String {
    let mut url = realm.to_owned();
    let mut separator = if realm.contains('?') { '&' } else { '?' };
    for (name, value) in [("service", service), ("scope", Some(scope))] {
        if let Some(value) = value {
            url.push(separator);
            url.push_str(name);
            url.push('=');
            push_encoded(&mut url, value);
            separator = '&';
        }
    }
    url
}

/// Encodes what has a meaning in a query (RFC 3986, section 3.4).
fn push_encoded(url: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte) {
            url.push(byte.into());
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// The value of `Authorization` for a user (RFC 7617).
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

/// The value of `Authorization` from a token service's answer.
pub(crate) fn bearer(answer: &[u8]) -> Option<String> {
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    let token = answer.token.or(answer.access_token)?;
    let is_valid = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_valid.then(|| format!("Bearer {token}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let header = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#;
        let expected = Challenge::Bearer {
            realm: "https://auth.docker.io/token".to_owned(),
            service: Some("registry.docker.io".to_owned()),
            scope: Some("repository:a/b:pull,push".to_owned()),
        };
        assert_eq!(Challenge::all(header), [expected]);
        assert_eq!(Challenge::all("basic realm=x"), [Challenge::Basic]);
        assert_eq!(Challenge::all("Basic"), [Challenge::Basic]);
        let bare = Challenge::all(r#"bearer realm=https://a.b, service="c\"d"#);
        let expected = Challenge::Bearer {
            realm: "https://a.b".to_owned(),
            service: Some("c\"d".to_owned()),
            scope: None,
        };
        assert_eq!(bare, [expected]);
        for wrong in [
            "",
            "Bearer",
            "Bearer scope=x",
            "Negotiate",
            "Bearer realm",
            "realm=x",
            "Bearer realm=",
        ] {
            assert_eq!(Challenge::all(wrong), [], "{wrong}");
        }
    }

    #[test]
    fn every_challenge_of_a_header_is_read() {
        let header = r#"Negotiate, Basic realm="a, Bearer realm=b",  Bearer scope="c,d" , realm = "e\\",Digest realm=f"#;
        let bearer = Challenge::Bearer {
            realm: "e\\".to_owned(),
            service: None,
            scope: Some("c,d".to_owned()),
        };
        assert_eq!(Challenge::all(header), [Challenge::Basic, bearer]);
    }

    #[test]
    fn token_url_is_encoded() {
        assert_eq!(
            url("https://a.b/t", Some("c d&e"), "repository:f/g:pull"),
            "https://a.b/t?service=c%20d%26e&scope=repository:f/g:pull"
        );
        assert_eq!(
            url("https://a.b/t?x=1", None, "s"),
            "https://a.b/t?x=1&scope=s"
        );
    }

    #[test]
    fn token_is_taken_from_either_field_and_cannot_forge_headers() {
        assert_eq!(bearer(br#"{"token": "a"}"#).as_deref(), Some("Bearer a"));
        assert_eq!(
            bearer(br#"{"access_token": "b"}"#).as_deref(),
            Some("Bearer b")
        );
        for wrong in ["{}", "x", r#"{"token": ""}"#, r#"{"token": "a\r\nb: c"}"#] {
            assert_eq!(bearer(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
