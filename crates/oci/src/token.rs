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
    /// The first challenge of a header that can be answered.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut parameters = parameters(rest);
        Some(Self::Bearer {
            realm: parameters.remove("realm")?,
            service: parameters.remove("service"),
            scope: parameters.remove("scope"),
        })
    }
}

/// The parameters of a challenge: `name=value` or `name="quoted value"`, separated by commas.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',']).to_ascii_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, after) = after.split_at(after.find(',').unwrap_or(after.len()));
                (value.trim().to_owned(), after)
            }
        };
        found.insert(name, value);
        rest = after;
    }
    found
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
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
        assert_eq!(Challenge::parse(header), Some(expected));
        assert_eq!(Challenge::parse("basic realm=x"), Some(Challenge::Basic));
        let bare = Challenge::parse(r#"bearer realm=https://a.b, service="c\"d"#);
        let expected = Challenge::Bearer {
            realm: "https://a.b".to_owned(),
            service: Some("c\"d".to_owned()),
            scope: None,
        };
        assert_eq!(bare, Some(expected));
        for wrong in ["", "Bearer", "Bearer scope=x", "Negotiate", "Bearer realm"] {
            assert_eq!(Challenge::parse(wrong), None, "{wrong}");
        }
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
