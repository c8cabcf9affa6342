//! Names of images.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// The registry of names without one.
const DEFAULT_REGISTRY: &str = "docker.io";

/// The tag of names without one.
const DEFAULT_TAG: &str = "latest";

/// Characters of a repository's name at most, beyond which registries reject them; and of a host's (RFC 1035, section 2.3.4).
const NAME_LENGTH: usize = 255;

/// The name of an image: `registry/repository:tag@digest`.
///
/// Short names mean what they mean to Docker: without a registry `docker.io`, there without an owner `library/`,
/// without tag and digest the tag `latest`. The forms of repository and tag are those of the OCI distribution
/// specification, *Pulling manifests*.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// The registry as users write it, with its port if it has one: `docker.io`, `ghcr.io`, `localhost:5000`.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository in the registry, such as `istio/ztunnel`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. With a digest beside it, it is a remark for readers.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the index or manifest. It decides what is pulled.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same name with the digest that it stands for. Such an image is found in the cache without the registry.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// What the registry is asked for: the digest, or else the tag.
    pub(crate) fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => DEFAULT_TAG.to_owned(),
        }
    }

    /// The host that answers for the registry: Docker Hub's has another name than its images.
    pub(crate) fn host(&self) -> &str {
        match self.registry.as_str() {
            DEFAULT_REGISTRY => "registry-1.docker.io",
            other => other,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// A text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no image: {problem}\n  fix: write it like docker.io/istio/ztunnel:1.30.0")]
pub struct ReferenceError {
    /// The text as given.
    pub text: String,
    /// What is wrong with it.
    pub problem: ReferenceProblem,
}

/// What is wrong with the name of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceProblem {
    /// The part before the first `/` is no host.
    #[error("its registry is no host name or address, or has an invalid port")]
    Registry,
    /// A component of the repository is not valid.
    #[error(
        "a repository consists of lower-case letters and digits, joined by `.`, `_`, `-` and `/`"
    )]
    Repository,
    /// The repository's name is too long.
    #[error("its repository has more than 255 characters")]
    Length,
    /// The tag is not valid.
    #[error("a tag has at most 128 letters, digits, `_`, `.` and `-`, the first no `.` or `-`")]
    Tag,
    /// The digest is not valid.
    #[error("a digest is `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        parse(text).map_err(|problem| ReferenceError {
            text: text.to_owned(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Reference, ReferenceProblem> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (
            rest,
            Some(digest.parse().map_err(|_| ReferenceProblem::Digest)?),
        ),
        None => (text, None),
    };
    let (registry, rest) = split_registry(rest);
    if !is_registry(registry) {
        return Err(ReferenceProblem::Registry);
    }
    let (repository, tag) = match rest.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (rest, None),
    };
    if !tag.is_none_or(is_tag) {
        return Err(ReferenceProblem::Tag);
    }
    let registry = match registry {
        "index.docker.io" | "registry-1.docker.io" => DEFAULT_REGISTRY,
        other => other,
    };
    let is_official = registry == DEFAULT_REGISTRY && !repository.contains('/');
    let repository = if is_official {
        format!("library/{repository}")
    } else {
        repository.to_owned()
    };
    if repository.len() > NAME_LENGTH {
        return Err(ReferenceProblem::Length);
    }
    if !repository.split('/').all(is_component) {
        return Err(ReferenceProblem::Repository);
    }
    let default_tag = digest.is_none().then_some(DEFAULT_TAG);
    Ok(Reference {
        registry: registry.to_owned(),
        repository,
        tag: tag.or(default_tag).map(str::to_owned),
        digest,
    })
}

/// The registry and what follows it. What precedes the first `/` is a registry if no user of Docker Hub can have
/// that name.
fn split_registry(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.bytes().any(|byte| byte.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_REGISTRY, text),
    }
}

/// Whether this is a host or `[IPv6 address]`, with or without a port.
pub(crate) fn is_registry(text: &str) -> bool {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else {
            return false;
        };
        if address.parse::<std::net::Ipv6Addr>().is_err() {
            return false;
        }
        ("v6", port)
    } else {
        text.split_at(text.find(':').unwrap_or(text.len()))
    };
    if text.len() > NAME_LENGTH {
        return false;
    }
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_valid_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    host.split('.').all(is_label) && is_valid_port
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
pub(crate) fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let Some(last) = text.bytes().last() else {
        return false;
    };
    let is_separator =
        |run: &str| matches!(run, "." | "_" | "__") || run.bytes().all(|b| b == b'-');
    let mut runs = text.split(|c: char| c.is_ascii() && is_word(c as u8));
    // What precedes the first word must be nothing; runs between adjacent letters are empty.
    runs.next() == Some("") && runs.all(is_separator) && is_word(last)
}

fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_inner = |byte: u8| is_word(byte) || matches!(byte, b'.' | b'-');
    let first = text.bytes().next();
    text.len() <= 128 && first.is_some_and(is_word) && text.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn short_names_mean_what_they_mean_to_docker() {
        let digest = format!("@sha256:{HEX}");
        for (short, full) in [
            ("alpine", "docker.io/library/alpine:latest".to_owned()),
            (
                "istio/ztunnel:1.30.0",
                "docker.io/istio/ztunnel:1.30.0".to_owned(),
            ),
            (
                "index.docker.io/alpine:3",
                "docker.io/library/alpine:3".to_owned(),
            ),
            (
                "ghcr.io/linkerd/proxy:edge",
                "ghcr.io/linkerd/proxy:edge".to_owned(),
            ),
            ("localhost/a", "localhost/a:latest".to_owned()),
            (
                "localhost:5000/a/b__c",
                "localhost:5000/a/b__c:latest".to_owned(),
            ),
            ("[::1]:5000/a", "[::1]:5000/a:latest".to_owned()),
            (&format!("a.b/c{digest}"), format!("a.b/c{digest}")),
            (&format!("a.b/c:1{digest}"), format!("a.b/c:1{digest}")),
        ] {
            let reference: Reference = short.parse().unwrap();
            assert_eq!(reference.to_string(), full);
        }
    }

    #[test]
    fn digest_is_added_to_a_name() {
        let reference: Reference = "a.b/c:1".parse().unwrap();
        let digest = Digest::of(b"");
        let pinned = reference.with_digest(digest);
        assert_eq!(pinned.to_string(), format!("a.b/c:1@{digest}"));
        assert_eq!(pinned.version(), digest.to_string());
    }

    #[test]
    fn wrong_names_are_rejected_with_a_fix() {
        use ReferenceProblem as P;
        let long = "a".repeat(300);
        for (text, problem) in [
            ("", P::Repository),
            ("a//b", P::Repository),
            ("Alpine", P::Repository),
            ("docker.io/a/../b", P::Repository),
            ("docker.io/-a", P::Repository),
            ("docker.io/a___b", P::Repository),
            (long.as_str(), P::Length),
            ("a:", P::Tag),
            ("a:.b", P::Tag),
            ("a:b c", P::Tag),
            ("a@sha256:12", P::Digest),
            ("a@", P::Digest),
            ("ex ample.com/a", P::Registry),
            ("user@example.com/a", P::Digest),
            ("a.b:99999/c", P::Registry),
            ("a.b:/c", P::Registry),
            ("[::1/c", P::Registry),
            ("https://ghcr.io/a", P::Registry),
            (&format!("{long}.example/a"), P::Registry),
        ] {
            let error = text.parse::<Reference>().unwrap_err();
            assert_eq!(error.problem, problem, "{text}");
            assert!(error.to_string().contains("fix:"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsed_names_are_parsed_again_to_the_same(text in "[a-zA-Z0-9.:/@_\\[\\]-]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(reference.to_string().parse(), Ok(reference));
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = text.parse::<Reference>();
        }

        #[test]
        fn valid_names_are_accepted(
            registry in "([a-z0-9]{1,8}\\.[a-z]{2,3}|localhost)(:[1-9][0-9]{0,3})?",
            repository in "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}(/[a-z0-9]{1,5}){0,2}",
            tag in "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,20}",
        ) {
            let text = format!("{registry}/{repository}:{tag}");
            let reference: Reference = text.parse().unwrap();
            prop_assert_eq!(reference.to_string(), text);
        }
    }
}
