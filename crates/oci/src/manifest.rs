//! What registries say of images: indexes, manifests and configurations.
//!
//! The formats are those of the OCI image specification (*Image Index*, *Image Manifest*, *Image Configuration*) and of
//! Docker's *Image Manifest Version 2, Schema 2*, which have the same fields.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::digest::Digest;
use crate::image::ImageConfig;

/// The media types that are asked for, the newer ones first.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// The operating system and processor that an image is for, as `linux/amd64`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system, by Go's name.
    pub os: String,
    /// The processor, by Go's name.
    pub architecture: String,
    /// Which version of the processor, such as `v8`.
    #[serde(default)]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform of this machine's programs.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            other => other,
        };
        Self {
            os: std::env::consts::OS.to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    /// Whether programs for `other` are programs for this platform. A variant that either does not name is any.
    fn is_met_by(&self, other: &Self) -> bool {
        let has_variant = match (&self.variant, &other.variant) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.os == other.os && self.architecture == other.architecture && has_variant
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) if !variant.is_empty() => write!(f, "/{variant}"),
            _ => Ok(()),
        }
    }
}

/// A text that is no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no platform\n  fix: write it like linux/amd64 or linux/arm64")]
pub struct PlatformError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Platform {
    type Err = PlatformError;

    fn from_str(text: &str) -> Result<Self, PlatformError> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
            _ => ("", "", None),
        };
        if os.is_empty() || architecture.is_empty() {
            return Err(PlatformError {
                text: text.to_owned(),
            });
        }
        Ok(Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant,
        })
    }
}

/// What content is, how large, and its digest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
}

/// A manifest or an index.
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Vec<Descriptor>),
}

pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// Why bytes are no document that can be pulled.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no JSON, or lacks fields.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is in a format that is no longer or not yet used, as told by the version of its schema.
    #[error("its schema has the version {0}, and only version 2 is supported")]
    Schema(u64),
    /// It has the fields of both formats, so that two programs could read different images from it.
    #[error("it is both a manifest and an index")]
    Ambiguous,
    /// It has the fields of neither format.
    #[error("it is neither a manifest nor an index of images (media type {media_type:?})")]
    Unknown {
        /// What it says of itself.
        media_type: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: u64,
    #[serde(default)]
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

impl Document {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let raw: RawDocument = serde_json::from_slice(bytes)?;
        if raw.schema_version != 2 {
            return Err(DocumentError::Schema(raw.schema_version));
        }
        match (raw.config, raw.layers, raw.manifests) {
            (Some(config), Some(layers), None) => Ok(Self::Manifest(Manifest { config, layers })),
            (None, None, Some(manifests)) => Ok(Self::Index(manifests)),
            (None, None, None) => Err(DocumentError::Unknown {
                media_type: raw.media_type,
            }),
            (.., Some(_)) => Err(DocumentError::Ambiguous),
            _ => Err(DocumentError::Unknown {
                media_type: raw.media_type,
            }),
        }
    }
}

/// The manifest for a platform: the one of the same variant, or else the first that fits.
pub(crate) fn select<'a>(manifests: &'a [Descriptor], wanted: &Platform) -> Option<&'a Descriptor> {
    let fits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|platform| wanted.is_met_by(platform))
    };
    let is_same = |descriptor: &&Descriptor| descriptor.platform.as_ref() == Some(wanted);
    let exact = manifests.iter().find(is_same);
    exact.or_else(|| manifests.iter().find(fits))
}

#[derive(Deserialize)]
struct RawConfig {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    config: Option<RawProcess>,
}

/// Every field may be `null`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RawProcess {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    env: Option<Vec<String>>,
    user: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

/// Reads a configuration, and the platform that it names: images without an index name it nowhere else.
pub(crate) fn parse_config(bytes: &[u8]) -> Result<(ImageConfig, Platform), serde_json::Error> {
    let raw: RawConfig = serde_json::from_slice(bytes)?;
    let process = raw.config.unwrap_or_default();
    let config = ImageConfig {
        entrypoint: process.entrypoint.unwrap_or_default(),
        command: process.cmd.unwrap_or_default(),
        environment: process.env.unwrap_or_default(),
        user: process.user.unwrap_or_default(),
        labels: process.labels.unwrap_or_default(),
        created: raw.created,
    };
    let platform = Platform {
        os: raw.os,
        architecture: raw.architecture,
        variant: None,
    };
    Ok((config, platform))
}

/// Whether the image of this configuration runs on the platform. Without any statement it is assumed to.
pub(crate) fn runs_on(named: &Platform, wanted: &Platform) -> bool {
    (named.os.is_empty() && named.architecture.is_empty()) || wanted.is_met_by(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(platform: &str) -> Descriptor {
        Descriptor {
            media_type: String::new(),
            digest: Digest::of(platform.as_bytes()),
            size: 1,
            platform: platform.parse().ok(),
        }
    }

    #[test]
    fn platform_is_selected_by_system_processor_and_variant() {
        let all = [
            "linux/arm64/v8",
            "linux/amd64/v3",
            "linux/amd64",
            "unknown/unknown",
        ];
        let all = all.map(descriptor);
        let selected = |wanted: &str| {
            let found = select(&all, &wanted.parse().unwrap());
            found.map(|found| found.platform.as_ref().unwrap().to_string())
        };
        assert_eq!(selected("linux/amd64").as_deref(), Some("linux/amd64"));
        assert_eq!(selected("linux/arm64").as_deref(), Some("linux/arm64/v8"));
        assert_eq!(selected("linux/arm64/v9"), None);
        assert_eq!(selected("windows/amd64"), None);
    }

    #[test]
    fn ambiguous_and_unknown_documents_are_rejected() {
        let descriptor = format!(r#"{{"digest": "{}", "size": 1}}"#, Digest::of(b""));
        let both = format!(
            r#"{{"schemaVersion": 2, "config": {descriptor}, "layers": [], "manifests": []}}"#
        );
        let parse = |text: &str| Document::parse(text.as_bytes()).err().unwrap();
        assert!(matches!(parse(&both), DocumentError::Ambiguous));
        assert!(matches!(
            parse(r#"{"schemaVersion": 2}"#),
            DocumentError::Unknown { .. }
        ));
        assert!(matches!(
            parse(r#"{"schemaVersion": 1}"#),
            DocumentError::Schema(1)
        ));
        assert!(matches!(parse("<html>"), DocumentError::Json(_)));
        let negative = r#"{"schemaVersion": 2, "manifests": [{"digest": "", "size": -1}]}"#;
        assert!(matches!(parse(negative), DocumentError::Json(_)));
    }

    #[test]
    fn configuration_with_null_fields_is_read() {
        let text = r#"{"os": "linux", "architecture": "amd64", "config":
            {"Entrypoint": ["/ztunnel"], "Cmd": null, "Env": ["A=b"], "User": "1337", "Labels": null}}"#;
        let (config, platform) = parse_config(text.as_bytes()).unwrap();
        assert_eq!(config.entrypoint, ["/ztunnel"]);
        assert_eq!(config.environment, ["A=b"]);
        assert_eq!(config.user, "1337");
        assert!(config.command.is_empty() && config.labels.is_empty());
        assert_eq!(platform.to_string(), "linux/amd64");
        assert!(parse_config(b"{}").is_ok());
    }
}
