//! Images of a real registry on loopback, and what a registry, a network or an image may do wrong.

#[path = "registry/access.rs"]
mod access;
#[path = "registry/faults.rs"]
mod faults;
#[path = "registry/images.rs"]
mod images;
#[path = "registry/network.rs"]
mod network;
#[path = "registry/pull.rs"]
mod pull;
#[path = "registry/push.rs"]
mod push;
#[path = "registry/resume.rs"]
mod resume;
#[path = "registry/tls.rs"]
mod tls;
#[path = "registry/unpacking.rs"]
mod unpacking;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use meshtax_fixtures::registry::Registry;
use meshtax_oci::{Digest, Image, PullError, PullOptions, Reference, Retries, pull};
use tempfile::TempDir;

use faults::{Answer, Request, Server, Upstream};
use images::{Blob, put_image, put_index};

/// Go's name of this machine's processor.
pub(crate) fn architecture() -> String {
    meshtax_oci::Platform::of_this_machine().architecture
}

/// A registry with one image, and an empty cache.
pub(crate) struct Setup {
    registry: Registry,
    digest: Digest,
    place: TempDir,
}

impl Setup {
    fn new(layers: &[Blob]) -> Option<Self> {
        let registry = Registry::start(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
        let own = put_image(&registry, &architecture(), layers);
        let digest = put_index(&registry, &[own]);
        Some(Self {
            registry,
            digest,
            place: TempDir::new().unwrap(),
        })
    }

    fn cache(&self) -> PathBuf {
        self.place.path().join("cache")
    }

    fn options(&self) -> PullOptions {
        PullOptions {
            plain_http: true,
            retries: Retries {
                tries: 3,
                first_wait: Duration::from_millis(10),
                longest_wait: Duration::from_secs(2),
                ..Retries::default()
            },
            ..PullOptions::new(self.cache())
        }
    }

    fn upstream(&self) -> Upstream {
        Upstream(self.registry.port)
    }

    /// A server that answers as the registry does, changed by `change`.
    fn changed(
        &self,
        change: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static,
    ) -> Server {
        let upstream = self.upstream();
        Server::start(move |request| change(request, upstream.forward(request)))
    }

    fn pull_from(&self, port: u16) -> Result<Image, PullError> {
        pull(&image_at(port), &self.options(), &mut |_| {})
    }

    /// Nothing is written beside the cache.
    fn assert_only_the_cache(&self) {
        for entry in fs::read_dir(&self.place).unwrap() {
            let name = entry.unwrap().file_name();
            assert!(name == "cache" || name == "root", "{name:?}");
        }
    }
}

fn image_at(port: u16) -> Reference {
    format!("localhost:{port}/test/image:1").parse().unwrap()
}

/// A registry with the image, or the end of the test: why was said.
macro_rules! setup {
    ($layers:expr) => {
        match $crate::Setup::new($layers) {
            Some(setup) => setup,
            None => return,
        }
    };
}
pub(crate) use setup;

pub(crate) fn is_layer(request: &Request, layer: &Blob) -> bool {
    request.path.ends_with(&Digest::of(&layer.bytes).hex())
}

pub(crate) fn assert_has_fix(error: &PullError) {
    let text = error.to_string();
    assert!(
        text.contains("fix:") && text.contains("localhost"),
        "{text}"
    );
}

/// Whoever cannot have the image can give the program instead.
pub(crate) fn assert_names_an_alternative(error: &PullError) {
    let text = error.to_string();
    assert!(
        text.contains("`--from PATH`") && text.contains("`program: PATH`"),
        "{text}"
    );
}
