//! How the application runs, as plain data.

use std::net::SocketAddr;

use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use crate::AppError;
use crate::answer::PREBUILT_BODY_BYTES;

/// The longest delay, in nanoseconds: ten seconds spun, and a minute waited.
const MAX_SPIN_NS: u64 = 10_000_000_000;
pub(crate) const MAX_WAIT_NS: u64 = 60_000_000_000;

/// The most work per request, in steps: about ten seconds of it.
const MAX_BURN: u64 = 10_000_000_000;

/// The most memory that is held or leaked on purpose, in bytes: 16 GiB.
const MAX_HELD: u64 = 16 << 30;

/// How the application runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppConfig {
    /// Where to listen, and what is spoken there. Port 0 takes a free one.
    pub listeners: Vec<Listener>,
    /// The certificate of those that speak TLS; `None`: one is made that nobody vouches for.
    pub identity: Option<Identity>,
    /// The authorities that clients' certificates must come from, PEM: mutual TLS. `None`:
    /// clients show none.
    pub client_roots_pem: Option<String>,
    /// Size of each answer's body, or of the message of a gRPC answer, in bytes.
    pub response_bytes: u32,
    /// gRPC answers with the request's own message instead, of at most 4 MiB.
    pub grpc_echo: bool,
    /// Spin this long before each answer, from when the request was read, in nanoseconds.
    pub delay_ns: u64,
    /// For this share of the requests, 0 to 1; below 1 it is waited for, and holds up no others.
    pub delay_share: f64,
    /// Wait before each answer, for a time of its own; other requests go on meanwhile.
    pub wait: Option<Wait>,
    /// What is done before each answer, in this order, after its own wait: other services are called, or time passes. Of
    /// a step that fails, what follows is left out, and the answer is an error.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What requests for a page of their own get: the first for a path that ends in `/page-1`, and so on.
    #[serde(default)]
    pub pages: Vec<Page>,
    /// Steps of work before each answer: a multiplication and an addition each, one after the
    /// other.
    pub burn: u64,
    /// Hold this much more memory, every page of it written.
    pub hold_bytes: u64,
    /// Keep this much more memory for each request, and never give it back.
    pub leak_bytes: u64,
    /// Answer no more than this many requests per second, each thread its part.
    pub cap_per_s: Option<f64>,
    /// The share of requests that are answered with an error, 0 to 1: 503, or UNAVAILABLE.
    pub error_share: f64,
    /// Decides which requests fail and how long each waits.
    pub seed: u64,
    /// Cores of the threads, in turn.
    pub cores: Option<Vec<u32>>,
    /// Threads, each with listeners of its own on the same ports.
    pub threads: u32,
}

/// What one of several requests comes to, over HTTP/1.1, in place of what others do; waits, delays and errors are those
/// of all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Size of the answer's body in bytes, at most 256 KiB.
    pub response_bytes: u32,
    /// Steps of work, besides those of every request.
    pub burn: u64,
    /// In place of [`AppConfig::steps`].
    pub steps: Vec<Step>,
}

/// What is done before an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Step {
    /// These are called, all at once, and all answers awaited.
    Calls(Vec<Call>),
    /// So long nothing happens, in nanoseconds; other requests go on meanwhile.
    SleepNs(u64),
}

impl Step {
    /// What it calls.
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
                invalid("steps", ns, "sleep at most a minute")
            }
            _ => self.calls().iter().try_for_each(Call::validate),
        }
    }
}

impl Page {
    fn validate(&self) -> Result<(), AppError> {
        if u64::from(self.response_bytes) > PREBUILT_BODY_BYTES {
            return invalid("pages", self.response_bytes, "answer with at most 256 KiB");
        }
        if self.burn > MAX_BURN {
            return invalid("pages", self.burn, "burn at most 10,000,000,000 steps");
        }
        self.steps.iter().try_for_each(Step::validate)
    }
}

/// A request to another service, over HTTP/1.1: a GET, good if it is answered with a status of success.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Where it goes.
    pub address: SocketAddr,
    /// What it names in its `host` header: by this a mesh's proxy knows the service.
    pub host: String,
    /// Its path.
    pub path: String,
    /// For which share of the requests it is made, 0 to 1.
    pub share: f64,
}

impl Call {
    /// The same service is asked the same.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        (self.address, &self.host, &self.path) == (other.address, &other.host, &other.path)
    }

    /// As bytes; the canary goes with it, so that it crosses all wires on the way.
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
            return invalid("host", &self.host, "name a service, as in reviews:8080");
        }
        if !self.path.starts_with('/') || !is_word(&self.path) {
            return invalid("path", &self.path, "begin it with /, without spaces");
        }
        Ok(())
    }
}

/// An address, and what is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The address.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The certificate, and those that vouch for it behind it, PEM.
    pub chain_pem: String,
    /// The certificate's private key, PEM.
    pub key_pem: String,
}

/// What is spoken on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// HTTP/1.1, and HTTP/2 with prior knowledge; gRPC within it. In clear.
    Http,
    /// The same within TLS.
    Https,
    /// Every byte comes back. In clear.
    TcpEcho,
    /// Every byte comes back, within TLS.
    TlsEcho,
}

impl Protocol {
    /// Whether a certificate is needed.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::TlsEcho)
    }
}

/// How long answers wait. No answer waits for more than a minute.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Wait {
    /// Exponentially distributed.
    Exponential {
        /// The mean in nanoseconds.
        mean_ns: u64,
    },
    /// Any time of a range, all alike.
    Uniform {
        /// The shortest, in nanoseconds.
        from_ns: u64,
        /// The longest, in nanoseconds.
        to_ns: u64,
    },
    /// Its logarithm is normally distributed.
    LogNormal {
        /// The median in nanoseconds.
        median_ns: u64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl AppConfig {
    /// HTTP in clear on an address; one thread, answers of 1,024 bytes, no delay, no errors;
    /// fields are public.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self::with(vec![Listener {
            address: listen,
            protocol: Protocol::Http,
        }])
    }

    /// The same on these listeners.
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
        self.steps.iter().try_for_each(Step::validate)?;
        self.pages.iter().try_for_each(Page::validate)?;
        match &self.cores {
            Some(cores) if cores.is_empty() => {
                invalid("cores", "empty", "name a core, or leave it out")
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
            return invalid("wait", typical_ns, "use at most a minute");
        }
        Ok(())
    }
}

fn invalid<T>(field: &'static str, value: impl ToString, fix: &'static str) -> Result<T, AppError> {
    let value = value.to_string();
    Err(AppError::Invalid { field, value, fix })
}
