//! How images are pulled and pushed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::credentials::Credentials;
use crate::digest::Digest;
use crate::http_client::Proxies;
use crate::limits::Limits;
use crate::manifest::Platform;

/// How an image is pulled.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Whose programs the image must have.
    pub platform: Platform,
    /// Where blobs are kept. Several processes may use it at the same time.
    pub cache_directory: PathBuf,
    /// What the reference stood for when it was used first.
    pub expected: Option<Digest>,
    /// Who asks. See [`Credentials::load`].
    pub credentials: Credentials,
    /// By registry, who is asked before it, in this order: hosts, with a port and a path below which the repositories
    /// are if there is one. A mirror that fails is passed over.
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// See [`Proxies::from_environment`].
    pub proxies: Proxies,
    /// Whether registries on this machine's loopback are asked without TLS. Others never are.
    pub plain_http: bool,
    /// How much an image may be.
    pub limits: Limits,
    /// What is done about failures that may pass.
    pub retries: Retries,
}

impl PullOptions {
    /// Asks anonymously and directly, for this machine's platform.
    #[must_use]
    pub fn new(cache_directory: impl Into<PathBuf>) -> Self {
        Self {
            platform: Platform::of_this_machine(),
            cache_directory: cache_directory.into(),
            expected: None,
            credentials: Credentials::default(),
            mirrors: BTreeMap::new(),
            proxies: Proxies::default(),
            plain_http: false,
            limits: Limits::default(),
            retries: Retries::default(),
        }
    }
}

/// How an image is pushed: to its registry, never to a mirror.
#[derive(Debug, Clone, Default)]
pub struct PushOptions {
    /// Who asks. See [`Credentials::load`].
    pub credentials: Credentials,
    /// See [`Proxies::from_environment`].
    pub proxies: Proxies,
    /// Whether registries on this machine's loopback are asked without TLS. Others never are.
    pub plain_http: bool,
    /// What is done about failures that may pass.
    pub retries: Retries,
}

/// What is done about failures that may pass: failed connections, 429 and 5xx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often something is tried without progress. A download that went on in between has made progress.
    pub tries: u32,
    /// How long to wait after the first failure; twice as long after each further one.
    pub first_wait: Duration,
    /// How long to wait at most, also if the registry asks for more.
    pub longest_wait: Duration,
    /// How long a connection may take to be established. Where it takes longer, packets are dropped: unless the host has
    /// answered before, it is not tried again.
    pub connection_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            tries: 5,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            connection_wait: Duration::from_secs(5),
        }
    }
}

impl Retries {
    /// How long to wait after so many failures.
    pub(crate) fn wait_after(&self, failures: u32) -> Duration {
        let factor = 1 << failures.saturating_sub(1).min(16);
        (self.first_wait * factor).min(self.longest_wait)
    }
}
