//! The application's configuration, as plain data.

use std::net::SocketAddr;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use crate::content::PREBUILT_BODY_BYTES;
use crate::error::AppError;

/// The longest delays in nanoseconds: ten seconds of spinning, a minute of waiting.
const MAX_SPIN_NS: u64 = 10_000_000_000;
pub(crate) const MAX_WAIT_NS: u64 = 60_000_000_000;

/// The most work per request, in steps: about ten seconds of it.
const MAX_BURN: u64 = 10_000_000_000;

/// The limit for memory that is held or leaked on purpose, in bytes: 16 GiB.
const MAX_HELD: u64 = 16 << 30;

/// The application's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppConfig {
    /// Where to listen, and the protocols. Port 0 selects a free one.
    pub listeners: Vec<Listener>,
    /// The certificate of TLS listeners; `None`: a self-signed one is generated.
    pub identity: Option<Identity>,
    /// The authorities of clients' certificates, PEM: mutual TLS. `None`: clients present none.
    pub client_roots_pem: Option<String>,
    /// Size of each response's body, or of the message of a gRPC response, in bytes.
    pub response_bytes: u32,
    /// gRPC calls get their own message back instead, of at most 4 MiB.
    pub grpc_echo: bool,
    /// Spin this long before each response, from when the request was read, in nanoseconds.
    pub delay_ns: u64,
    /// The share of requests that are delayed, 0 to 1. Below 1 the delay is a wait, so that other
    /// requests are not held up.
    pub delay_share: f64,
    /// Wait before each response, for a random time; other requests go on meanwhile.
    pub wait: Option<Wait>,
    /// Steps before each response, in order, after its wait. If one fails, the following ones are
    /// skipped, and the response is an error.
    #[serde(default)]
    pub steps: Vec<ServiceStep>,
    /// Pages: the first is that of paths that end in `/page-1`, and so on.
    #[serde(default)]
    pub pages: Vec<Page>,
    /// Units of work before each response: dependent multiplications.
    pub burn: u64,
    /// Hold this much more memory, every page of it written.
    pub hold_bytes: u64,
    /// Keep this much more memory for each request, and never give it back.
    pub leak_bytes: u64,
    /// Respond to at most this many requests per second, divided among the threads.
    pub cap_per_s: Option<f64>,
    /// The share of responses that are errors, 0 to 1: 503, or UNAVAILABLE.
    pub error_share: f64,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Cores that the threads are pinned to, round-robin.
    pub cores: Option<Vec<u32>>,
    /// Threads; each has its own listening sockets on the same ports.
    pub threads: u32,
}

/// The response to requests for one page, over HTTP/1.1. Waits, delays and errors are those of all
/// requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Size of the response's body in bytes, at most 256 KiB.
    pub response_bytes: u32,
    /// Units of work, in addition to those of every request.
    pub burn: u64,
    /// Replaces [`AppConfig::steps`].
    pub steps: Vec<ServiceStep>,
}

/// A step before a response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum ServiceStep {
    /// Calls other services, all at once, and waits for all responses.
    Calls(Vec<Call>),
    /// Waits, in nanoseconds; other requests go on meanwhile.
    SleepNs(u64),
}

impl ServiceStep {
    /// Its calls.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Calls(calls) => calls,
            Self::SleepNs(_) => &[],
        }
    }

    fn validate(&self) -> Result<(), AppError> {
        match self {
            Self::SleepNs(ns) if *ns > MAX_WAIT_NS => {
                invalid("steps", ns, "sleep at most one minute")
            }
            _ => self.calls().iter().try_for_each(Call::validate),
        }
    }
}

impl Page {
    fn validate(&self) -> Result<(), AppError> {
        if u64::from(self.response_bytes) > PREBUILT_BODY_BYTES {
            return invalid(
                "pages",
                self.response_bytes,
                "use a response of at most 256 KiB",
            );
        }
        if self.burn > MAX_BURN {
            return invalid("pages", self.burn, "burn at most 10,000,000,000 units");
        }
        self.steps.iter().try_for_each(ServiceStep::validate)
    }
}

/// A call to another service: a GET over HTTP/1.1, successful with a status of 2xx.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Where to connect.
    pub address: SocketAddr,
    /// The `host` header, that a mesh's proxy uses to identify the service.
    pub host: String,
    /// The path.
    pub path: String,
    /// The share of requests that make this call, 0 to 1.
    pub share: f64,
}

impl Call {
    /// Whether both send the same request to the same address.
    pub(crate) fn is_same_request(&self, other: &Self) -> bool {
        (self.address, &self.host, &self.path) == (other.address, &other.host, &other.path)
    }

    /// The request as bytes. It forwards the canary, so that this crosses every link of the call graph.
    pub(crate) fn request(&self, canary: &[u8]) -> Vec<u8> {
        let mut bytes =
            format!("GET {} HTTP/1.1\r\nhost: {}\r\n", self.path, self.host).into_bytes();
        if !canary.is_empty() {
            bytes.extend_from_slice(crate::CANARY_HEADER.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(canary);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }

    fn validate(&self) -> Result<(), AppError> {
        if !(0.0..=1.0).contains(&self.share) {
            return invalid("share", self.share, "use 0 to 1");
        }
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !is_word(&self.host) {
            return invalid(
                "host",
                &self.host,
                "use a service's name, such as reviews:8080",
            );
        }
        if !self.path.starts_with('/') || !is_word(&self.path) {
            return invalid("path", &self.path, "start it with /, without spaces");
        }
        Ok(())
    }
}

/// An address, and its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address.
    pub address: SocketAddr,
    /// The protocol.
    pub protocol: Protocol,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The certificate chain, leaf first, PEM.
    pub chain_pem: String,
    /// The certificate's private key, PEM.
    pub key_pem: String,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1, and HTTP/2 with prior knowledge, with gRPC. In plaintext.
    Http,
    /// The same over TLS.
    Https,
    /// Echoes every byte. In plaintext.
    TcpEcho,
    /// Echoes every byte, over TLS.
    TlsEcho,
}

impl Protocol {
    /// Whether it needs a certificate.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::TlsEcho)
    }
}

/// How long responses wait, one minute at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Wait {
    /// Exponentially distributed.
    Exponential {
        /// The mean in nanoseconds.
        mean_ns: u64,
    },
    /// Uniformly distributed.
    Uniform {
        /// The shortest, in nanoseconds.
        from_ns: u64,
        /// The longest, in nanoseconds.
        to_ns: u64,
    },
    /// Log-normally distributed.
    LogNormal {
        /// The median in nanoseconds.
        median_ns: u64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl AppConfig {
    /// Plaintext HTTP on an address; one thread, responses of 1,024 bytes, no delay, no errors.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self::with(vec![Listener {
            address: listen,
            protocol: Protocol::Http,
        }])
    }

    /// The same with these listeners.
    #[must_use]
    pub fn with(listeners: Vec<Listener>) -> Self {
        Self {
            listeners,
            identity: None,
            client_roots_pem: None,
            response_bytes: 1024,
            grpc_echo: false,
            delay_ns: 0,
            delay_share: 1.0,
            wait: None,
            steps: Vec::new(),
            pages: Vec::new(),
            burn: 0,
            hold_bytes: 0,
            leak_bytes: 0,
            cap_per_s: None,
            error_share: 0.0,
            seed: 1,
            cores: None,
            threads: 1,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), AppError> {
        if self.listeners.is_empty() {
            return invalid("listeners", "empty", "name an address to listen on");
        }
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads", self.threads, "use 1 to 1024");
        }
        if self.delay_ns > MAX_SPIN_NS {
            return invalid("delay_ns", self.delay_ns, "use at most ten seconds");
        }
        if self.burn > MAX_BURN {
            return invalid("burn", self.burn, "use at most 10,000,000,000");
        }
        for (field, share) in [
            ("error_share", self.error_share),
            ("delay_share", self.delay_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return invalid(field, share, "use 0 to 1");
            }
        }
        for (field, bytes) in [
            ("hold_bytes", self.hold_bytes),
            ("leak_bytes", self.leak_bytes),
        ] {
            if bytes > MAX_HELD {
                return invalid(field, bytes, "use at most 16 GiB");
            }
        }
        if let Some(cap) = self.cap_per_s
            && !(0.01..=1e9).contains(&cap)
        {
            return invalid("cap_per_s", cap, "use 0.01 to 1,000,000,000");
        }
        if let Some(wait) = self.wait {
            wait.validate()?;
        }
        self.steps.iter().try_for_each(ServiceStep::validate)?;
        self.pages.iter().try_for_each(Page::validate)?;
        match &self.cores {
            Some(cores) if cores.is_empty() => {
                invalid("cores", "empty", "name a core, or omit the field")
            }
            Some(cores) if cores.iter().any(|core| *core as usize >= CpuSet::MAX_CPU) => {
                invalid("cores", format!("{cores:?}"), "name cores of this machine")
            }
            _ => Ok(()),
        }
    }
}

impl Wait {
    fn validate(self) -> Result<(), AppError> {
        let typical_ns = match self {
            Self::Exponential { mean_ns } => mean_ns,
            Self::Uniform { from_ns, to_ns } if from_ns > to_ns => {
                let range = format!("{from_ns} to {to_ns}");
                return invalid("wait", range, "put the shorter time first");
            }
            Self::Uniform { to_ns, .. } => to_ns,
            Self::LogNormal { sigma, .. } if !(0.0..=5.0).contains(&sigma) => {
                return invalid("sigma", sigma, "use 0 to 5");
            }
            Self::LogNormal { median_ns, .. } => median_ns,
        };
        if typical_ns > MAX_WAIT_NS {
            return invalid("wait", typical_ns, "use at most one minute");
        }
        Ok(())
    }
}

fn invalid<T>(field: &'static str, value: impl ToString, fix: &'static str) -> Result<T, AppError> {
    let value = value.to_string();
    Err(AppError::Invalid { field, value, fix })
}
