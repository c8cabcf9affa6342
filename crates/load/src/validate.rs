//! Checks a load before any connection is opened.

use std::fmt::Display;

use crate::error::LoadError;
use crate::spec::{LoadModel, LoadSpec, Protocol, Rate, Request};

/// No time in a spec may exceed a week: sums of them then fit easily.
const MAX_TIME_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

/// Beyond this the mean gap is shorter than a system call.
const MAX_RATE_PER_S: f64 = 10_000_000.0;

/// HTTP/2's own upper bound is 2^31; beyond this a table of them is not small any more.
const MAX_STREAMS: u32 = 10_000;

/// The shortest interval: below it the snapshots would cost what they measure.
const MIN_INTERVAL_NS: u64 = 100_000_000;

impl LoadSpec {
    /// Checks that the load can be offered at all.
    ///
    /// # Errors
    /// With the invalid field, its value and what to use instead.
    pub fn validate(&self) -> Result<(), LoadError> {
        let spec = self;
        check(
            spec.target.port() != 0,
            "target",
            spec.target,
            "give a port",
        )?;
        connections(spec)?;
        targets(spec)?;
        times(spec)?;
        model(spec)?;
        check(
            !spec.requests.is_empty(),
            "requests",
            "empty",
            "name at least one",
        )?;
        let weights: u64 = spec.requests.iter().map(|r| u64::from(r.weight)).sum();
        check(
            weights > 0,
            "requests",
            "without weight",
            "give at least one a weight above 0",
        )?;
        spec.by_target()
            .iter()
            .flat_map(|spec| &spec.requests)
            .try_for_each(|r| request(r, spec.protocol))
    }
}

fn targets(spec: &LoadSpec) -> Result<(), LoadError> {
    for target in &spec.more_targets {
        check(
            target.address.port() != 0,
            "more_targets",
            target.address,
            "give a port",
        )?;
    }
    // A part of a load need not reach each: the whole does.
    let reached = spec.slice.of > 1 || spec.connections as usize >= spec.targets();
    check(
        reached,
        "connections",
        spec.connections,
        &format!("there are {} targets: use as many or more", spec.targets()),
    )
}

fn connections(spec: &LoadSpec) -> Result<(), LoadError> {
    check(
        (1..=1_000_000).contains(&spec.connections),
        "connections",
        spec.connections,
        "use 1 to 1000000",
    )?;
    check(
        spec.requests_per_connection != Some(0),
        "requests_per_connection",
        0,
        "use 1 or more, or leave it out to keep connections open",
    )?;
    check(
        (1..=1024).contains(&spec.threads) && spec.threads <= spec.connections,
        "threads",
        spec.threads,
        "use 1 to 1024, and no more than there are connections",
    )?;
    check(
        spec.slice.index < spec.slice.of,
        "slice",
        format!("{} of {}", spec.slice.index, spec.slice.of),
        "the index counts from 0 and is below the number of parts",
    )?;
    check(
        (1..=MAX_STREAMS).contains(&spec.protocol.streams()),
        "streams",
        spec.protocol.streams(),
        "use 1 to 10000 at the same time on a connection",
    )?;
    for core in &spec.cores {
        check(
            (*core as usize) < rustix::thread::CpuSet::MAX_CPU,
            "core",
            core,
            "name a core of this machine",
        )?;
    }
    if let Some(tls) = &spec.tls {
        check(
            rustls::pki_types::ServerName::try_from(tls.server_name.as_str()).is_ok(),
            "server_name",
            quoted(&tls.server_name),
            "use a host name or an address",
        )?;
    }
    Ok(())
}

fn times(spec: &LoadSpec) -> Result<(), LoadError> {
    check(
        spec.window_ns > 0,
        "window_ns",
        spec.window_ns,
        "measure for longer than zero",
    )?;
    check(
        spec.max_requests != Some(0),
        "max_requests",
        0,
        "send at least one",
    )?;
    check(
        spec.timeout_ns != Some(0),
        "timeout_ns",
        0,
        "wait for longer than zero, or leave it out",
    )?;
    let interval_ns = spec.interval_ns.unwrap_or(MIN_INTERVAL_NS);
    check(
        interval_ns >= MIN_INTERVAL_NS,
        "interval_ns",
        interval_ns,
        "use 100000000 (100 ms) or more",
    )?;
    for (field, time_ns) in [
        ("warmup_ns", spec.warmup_ns),
        ("window_ns", spec.window_ns),
        ("cooldown_ns", spec.cooldown_ns),
        ("drain_ns", spec.drain_ns),
        ("timeout_ns", spec.timeout_ns.unwrap_or(0)),
        ("connect_timeout_ns", spec.connect_timeout_ns),
    ] {
        check(
            time_ns <= MAX_TIME_NS,
            field,
            time_ns,
            "use at most one week",
        )?;
    }
    Ok(())
}

fn model(spec: &LoadSpec) -> Result<(), LoadError> {
    match &spec.model {
        LoadModel::Open { rate, .. } => match *rate {
            Rate::Constant { per_s } => per_second("rate", per_s),
            Rate::Linear {
                from_per_s,
                to_per_s,
            } => ramp(from_per_s, to_per_s),
            Rate::Steps {
                from_per_s,
                to_per_s,
                steps,
            } => {
                check(
                    (2..=10_000).contains(&steps),
                    "steps",
                    steps,
                    "use 2 to 10000",
                )?;
                ramp(from_per_s, to_per_s)
            }
        },
        LoadModel::Users { rate_per_s, .. } => {
            check(
                spec.protocol.streams() == 1,
                "streams",
                spec.protocol.streams(),
                "a user sends one request at a time: use 1",
            )?;
            per_second("rate_per_s", *rate_per_s)
        }
        LoadModel::Replay { times_ns } => {
            check(
                !times_ns.is_empty(),
                "times_ns",
                "empty",
                "give at least one time",
            )?;
            check(
                times_ns.is_sorted(),
                "times_ns",
                "not in order",
                "sort the times",
            )
        }
        LoadModel::Closed { think_ns } => check(
            *think_ns <= MAX_TIME_NS,
            "think_ns",
            think_ns,
            "use at most one week",
        ),
    }
}

fn ramp(from_per_s: f64, to_per_s: f64) -> Result<(), LoadError> {
    per_second("from_per_s", from_per_s)?;
    per_second("to_per_s", to_per_s)
}

fn per_second(field: &'static str, value: f64) -> Result<(), LoadError> {
    check(
        value.is_finite() && value > 0.0 && value <= MAX_RATE_PER_S,
        field,
        value,
        "use a number above 0, at most 10000000",
    )
}

fn request(request: &Request, protocol: Protocol) -> Result<(), LoadError> {
    if protocol == Protocol::Tcp {
        return check(
            !request.body.is_empty(),
            "body",
            "empty",
            "a TCP echo sends something: give it at least one byte",
        );
    }
    check(
        !request.method.is_empty() && request.method.bytes().all(is_token),
        "method",
        quoted(&request.method),
        "use a name such as GET",
    )?;
    check(
        !request.method.eq_ignore_ascii_case("CONNECT"),
        "method",
        quoted(&request.method),
        "CONNECT makes a tunnel, not a request; use another",
    )?;
    check(
        request.path.starts_with('/') && request.path.bytes().all(is_visible),
        "path",
        quoted(&request.path),
        "begin with / and percent-encode spaces and what is not ASCII",
    )?;
    check(
        !request.host.is_empty() && request.host.bytes().all(is_visible),
        "host",
        quoted(&request.host),
        "use a name or an address, with no spaces",
    )?;
    let body_bytes = u32::try_from(request.body.len()).unwrap_or(u32::MAX);
    check(
        body_bytes < u32::MAX,
        "body",
        "4 GiB or more",
        "use a smaller one",
    )?;
    request
        .headers
        .iter()
        .try_for_each(|(name, value)| header(name, value))
}

fn header(name: &str, value: &str) -> Result<(), LoadError> {
    check(
        !name.is_empty() && name.bytes().all(is_token),
        "headers",
        quoted(name),
        "use a header name without spaces or colons",
    )?;
    check(
        value
            .bytes()
            .all(|b| b == b'\t' || (b >= b' ' && b != 0x7f)),
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
    )
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
    use meshtax_model::experiment::Arrivals;

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
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
            let text = refused(|s| s.model = LoadModel::open(rate, Arrivals::Poisson));
            assert!(text.starts_with("rate is "), "{text}");
        }
        assert!(refused(|s| s.window_ns = 0).starts_with("window_ns is 0"));
        let path = refused(|s| s.requests[0].path = "a b".into());
        assert!(path.starts_with("path is \"a b\""), "{path}");
        let split = |s: &mut LoadSpec| {
            s.requests[0].headers.push(("a".into(), "b\r\nc: d".into()));
        };
        assert!(refused(split).starts_with("headers is"));
        let framing = |s: &mut LoadSpec| {
            s.requests[0]
                .headers
                .push(("Content-Length".into(), "3".into()));
        };
        assert!(refused(framing).contains("leave it out"));
        assert!(refused(|s| s.cores = vec![1_000_000]).starts_with("core is 1000000"));
    }

    #[test]
    fn every_target_has_a_port_a_host_and_a_connection() {
        let to = |s: &mut LoadSpec, address: &str, host: &str| {
            s.connections = 2;
            s.more_targets.push(crate::spec::Target {
                address: address.parse().unwrap(),
                host: host.into(),
            });
        };
        let port = refused(|s| to(s, "127.0.0.1:0", "b"));
        assert!(port.starts_with("more_targets is 127.0.0.1:0"), "{port}");
        let host = refused(|s| to(s, "127.0.0.1:1", "a b"));
        assert!(host.starts_with("host is"), "{host}");
        let few = refused(|s| {
            to(s, "127.0.0.1:1", "b");
            s.connections = 1;
        });
        assert_eq!(
            few,
            "connections is 1: there are 2 targets: use as many or more"
        );
    }

    #[test]
    fn contradictory_specs_are_rejected() {
        assert!(refused(|s| s.threads = 2).starts_with("threads is 2"));
        assert!(refused(|s| s.requests.clear()).starts_with("requests is empty"));
        assert!(refused(|s| s.requests[0].weight = 0).contains("weight above 0"));
        assert!(refused(|s| s.protocol = Protocol::Tcp).starts_with("body is empty"));
        let users = |s: &mut LoadSpec| {
            s.protocol = Protocol::Http2 { streams: 2 };
            s.model = LoadModel::Users {
                rate_per_s: 1.0,
                arrivals: Arrivals::Constant,
            };
        };
        assert!(refused(users).contains("one request at a time"));
        let replay = |s: &mut LoadSpec| {
            s.model = LoadModel::Replay {
                times_ns: vec![2, 1],
            };
        };
        assert!(refused(replay).contains("not in order"));
        assert!(refused(|s| s.interval_ns = Some(1)).starts_with("interval_ns is 1"));
    }
}
