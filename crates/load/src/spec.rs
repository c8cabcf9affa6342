//! What load to offer, and whether that can be done.

use std::fmt::Display;
use std::net::SocketAddr;

use meshtax_model::experiment::Arrivals;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;

/// How requests are offered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "lowercase")]
pub enum LoadModel {
    /// Arrivals do not wait for answers.
    Open {
        /// Offered rate in requests per second.
        rate_per_s: f64,
        /// How the intended send times are spread.
        arrivals: Arrivals,
        /// The same seed gives the same intended send times.
        seed: u64,
    },
    /// Every connection sends again as soon as it has its answer.
    Closed,
}

/// One load of one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Where to connect.
    pub target: SocketAddr,
    /// The `host` header.
    pub host: String,
    /// The request's target (`/a?b=c`).
    pub path: String,
    /// The request's method.
    pub method: String,
    /// Further headers.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The request's body; empty for none.
    #[serde(default)]
    pub body: String,
    /// Keep-alive connections.
    pub connections: u32,
    /// Open or closed loop, and how much.
    pub model: LoadModel,
    /// Load before the window that is in no figure, in nanoseconds.
    pub warmup_ns: u64,
    /// The measured part, in nanoseconds.
    pub window_ns: u64,
    /// How long answers are awaited after the window, in nanoseconds.
    #[serde(default = "default_drain_ns")]
    pub drain_ns: u64,
    /// How long the opening of the connections may make no progress, in nanoseconds.
    #[serde(default = "default_connect_timeout_ns")]
    pub connect_timeout_ns: u64,
    /// Pin the calling thread to this core. It stays pinned.
    #[serde(default)]
    pub core: Option<u32>,
    /// Spin for the last microseconds before an intended send time. Without it sends are
    /// late by a wake-up, and the core is free for others.
    #[serde(default = "default_spin")]
    pub spin: bool,
}

/// Two seconds: longer than any stall that a valid trial may have.
fn default_drain_ns() -> u64 {
    2_000_000_000
}

/// Five seconds: longer than the kernel takes to send a lost SYN twice more.
fn default_connect_timeout_ns() -> u64 {
    5_000_000_000
}

fn default_spin() -> bool {
    true
}

/// No time in a spec may exceed a week: sums of them then fit easily.
const MAX_TIME_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

/// Beyond this the mean gap is shorter than a system call.
const MAX_RATE_PER_S: f64 = 10_000_000.0;

impl LoadSpec {
    /// `GET /` over one connection in a closed loop for one second; fields are public.
    #[must_use]
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            host: target.to_string(),
            path: "/".into(),
            method: "GET".into(),
            headers: Vec::new(),
            body: String::new(),
            connections: 1,
            model: LoadModel::Closed,
            warmup_ns: 0,
            window_ns: 1_000_000_000,
            drain_ns: default_drain_ns(),
            connect_timeout_ns: default_connect_timeout_ns(),
            core: None,
            spin: default_spin(),
        }
    }

    /// Whether this can be offered at all.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] with the first field that is wrong, its value and the fix.
    pub fn validate(&self) -> Result<(), LoadError> {
        check(
            self.target.port() != 0,
            "target",
            self.target,
            "give a port",
        )?;
        check(
            (1..=1_000_000).contains(&self.connections),
            "connections",
            self.connections,
            "use 1 to 1000000",
        )?;
        check(
            self.window_ns > 0,
            "window_ns",
            self.window_ns,
            "measure for longer than zero",
        )?;
        for (field, time_ns) in [
            ("warmup_ns", self.warmup_ns),
            ("window_ns", self.window_ns),
            ("drain_ns", self.drain_ns),
            ("connect_timeout_ns", self.connect_timeout_ns),
        ] {
            check(
                time_ns <= MAX_TIME_NS,
                field,
                time_ns,
                "use at most one week",
            )?;
        }
        let core_fits = self
            .core
            .is_none_or(|core| (core as usize) < rustix::thread::CpuSet::MAX_CPU);
        check(
            core_fits,
            "core",
            self.core.unwrap_or(0),
            "name a core of this machine",
        )?;
        if let LoadModel::Open { rate_per_s, .. } = self.model {
            check(
                rate_per_s.is_finite() && rate_per_s > 0.0 && rate_per_s <= MAX_RATE_PER_S,
                "rate_per_s",
                rate_per_s,
                "use a number above 0, at most 10000000",
            )?;
        }
        self.validate_request()
    }

    fn validate_request(&self) -> Result<(), LoadError> {
        let method_fits = !self.method.is_empty() && self.method.bytes().all(is_token);
        check(
            method_fits,
            "method",
            quoted(&self.method),
            "use a name such as GET",
        )?;
        check(
            !self.method.eq_ignore_ascii_case("CONNECT"),
            "method",
            quoted(&self.method),
            "CONNECT makes a tunnel, not a request; use another",
        )?;
        let path_fits = self.path.starts_with('/') && self.path.bytes().all(is_visible);
        check(
            path_fits,
            "path",
            quoted(&self.path),
            "begin with / and percent-encode spaces and what is not ASCII",
        )?;
        let host_fits = !self.host.is_empty() && self.host.bytes().all(is_visible);
        check(
            host_fits,
            "host",
            quoted(&self.host),
            "use a name or an address, with no spaces",
        )?;
        for (name, value) in &self.headers {
            let name_fits = !name.is_empty() && name.bytes().all(is_token);
            check(
                name_fits,
                "headers",
                quoted(name),
                "use a header name without spaces or colons",
            )?;
            let value_fits = value
                .bytes()
                .all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
            check(
                value_fits,
                "headers",
                quoted(value),
                "leave line breaks and control characters out",
            )?;
            let framing = ["content-length", "transfer-encoding", "host"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known));
            check(
                !framing,
                "headers",
                quoted(name),
                "leave it out: it follows from `body` and `host`",
            )?;
        }
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn check(fits: bool, field: &'static str, value: impl Display, fix: &str) -> Result<(), LoadError> {
    if fits {
        return Ok(());
    }
    Err(LoadError::Invalid {
        field,
        value: value.to_string(),
        fix: fix.to_owned(),
    })
}

fn is_visible(byte: u8) -> bool {
    (0x21..=0x7e).contains(&byte)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> LoadSpec {
        LoadSpec::new("127.0.0.1:80".parse().unwrap())
    }

    fn refused(change: impl FnOnce(&mut LoadSpec)) -> String {
        let mut spec = spec();
        change(&mut spec);
        spec.validate().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_field_value_and_fix() {
        assert!(spec().validate().is_ok());
        assert_eq!(
            refused(|s| s.connections = 0),
            "connections is 0: use 1 to 1000000"
        );
        let open = |rate_per_s| LoadModel::Open {
            rate_per_s,
            arrivals: Arrivals::Poisson,
            seed: 1,
        };
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
            let text = refused(|s| s.model = open(rate));
            assert!(text.starts_with("rate_per_s is "), "{text}");
        }
        assert!(refused(|s| s.window_ns = 0).starts_with("window_ns is 0"));
        assert!(refused(|s| s.path = "a b".into()).starts_with("path is \"a b\""));
        let split = |s: &mut LoadSpec| s.headers.push(("a".into(), "b\r\nc: d".into()));
        assert!(refused(split).starts_with("headers is"));
        let framing = |s: &mut LoadSpec| s.headers.push(("Content-Length".into(), "3".into()));
        assert!(refused(framing).contains("leave it out"));
        assert!(refused(|s| s.core = Some(1_000_000)).starts_with("core is 1000000"));
    }

    #[test]
    fn survives_json() {
        let mut spec = spec();
        spec.model = LoadModel::Open {
            rate_per_s: 1000.5,
            arrivals: Arrivals::Constant,
            seed: u64::MAX,
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.contains(r#""model":{"loop":"open","#), "{text}");
        assert_eq!(serde_json::from_str::<LoadSpec>(&text).unwrap(), spec);
    }
}
