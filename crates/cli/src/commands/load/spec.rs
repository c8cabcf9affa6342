//! From the command line to a [`LoadSpec`].

use std::path::PathBuf;

use meshtax_load::{LoadModel, LoadSpec, Protocol, Rate, Request, Tls};
use meshtax_model::experiment::Arrivals;
use meshtax_tls::ClientTls;

use super::requests::{read, read_text, replay, requests};
use super::url::{Scheme, Url};
use crate::args::load::{LoadArgs, Ramp, TlsArgs};
use crate::exit::{Failure, USAGE};

const SECOND_NS: u64 = 1_000_000_000;

/// The window where nothing is said.
const WINDOW_NS: u64 = 10 * SECOND_NS;

/// The window where a number of requests ends it: as long as a window may be.
const NO_LIMIT_NS: u64 = 7 * 24 * 3600 * SECOND_NS;

/// The warm-up where nothing is said and nothing is counted.
const WARMUP_NS: u64 = SECOND_NS / 2;

/// The timeout where nothing is said.
const TIMEOUT_NS: u64 = 30 * SECOND_NS;

/// The longest drain that a timeout makes.
const MAX_DRAIN_NS: u64 = 24 * 3600 * SECOND_NS;

/// What the command line asks for.
///
/// # Errors
/// With [`USAGE`]: a URL, a file or a host that cannot be used, or flags that contradict each
/// other. What a spec by itself cannot be is refused when it is run.
pub(crate) fn spec(args: &LoadArgs) -> Result<LoadSpec, Failure> {
    let url = Url::read(&args.url)?;
    contradictions(args, &url)?;
    let amount = &args.amount;
    let requests = all_requests(args, &url)?;
    let model = model(args)?;
    // What ends by itself has no other end, and all of it counts.
    let is_counted = amount.count.is_some() || amount.replay.is_some();
    let target = url.address(&args.connection)?;
    let timeout_ns = args.request.timeout.unwrap_or(TIMEOUT_NS).min(NO_LIMIT_NS);
    let base = LoadSpec::new(target);
    Ok(LoadSpec {
        protocol: protocol(args, &url),
        tls: tls(args, &url)?,
        requests,
        connections: amount.users.unwrap_or(amount.connections),
        requests_per_connection: if args.connection.disable_keepalive {
            Some(1)
        } else {
            args.connection.requests_per_connection
        },
        threads: args.generator.threads,
        model,
        seed: args.generator.seed.unwrap_or_else(meshtax_observe::unix_ms),
        warmup_ns: amount
            .warmup
            .unwrap_or(if is_counted { 0 } else { WARMUP_NS }),
        window_ns: amount
            .duration
            .unwrap_or(if is_counted { NO_LIMIT_NS } else { WINDOW_NS }),
        cooldown_ns: amount.cooldown,
        max_requests: amount.count,
        timeout_ns: Some(timeout_ns).filter(|ns| *ns > 0),
        drain_ns: if is_counted || args.request.timeout.is_some() {
            drain_ns(timeout_ns)
        } else {
            base.drain_ns
        },
        interval_ns: Some(args.output.interval).filter(|ns| *ns > 0),
        cores: args.generator.core.clone(),
        spin: !args.generator.no_spin,
        io_uring: !args.generator.no_io_uring,
        ..base
    })
}

/// How long answers are awaited where each is to be: a timeout is seen up to a twentieth later.
fn drain_ns(timeout_ns: u64) -> u64 {
    match timeout_ns {
        0 => MAX_DRAIN_NS,
        timeout_ns => (timeout_ns + timeout_ns / 10 + SECOND_NS / 5).min(MAX_DRAIN_NS),
    }
}

fn wrong(problem: &str, fix: &str) -> Failure {
    Failure::with_fix(USAGE, problem, fix)
}

/// What clap cannot see.
fn contradictions(args: &LoadArgs, url: &Url) -> Result<(), Failure> {
    let (amount, request, connection) = (&args.amount, &args.request, &args.connection);
    let has_rate = amount.rate.is_some()
        || amount.ramp.is_some()
        || amount.users.is_some()
        || args.search.is_open();
    let is_tcp = request.tcp || url.scheme.is_plain();
    let is_http2 = connection.http2 || request.grpc.is_some();
    let all = [
        (
            amount.arrivals.is_some() && !has_rate,
            "--arrivals applies to an open loop, and this one is closed",
            "add -q RATE, --ramp or --users, or omit --arrivals",
        ),
        (
            amount.ramp.is_some() && amount.duration.is_none() && amount.count.is_some(),
            "--ramp runs over the window, and with -n alone the window has no end",
            "add -z with the window's length",
        ),
        (
            connection.streams.is_some() && !is_http2,
            "-p is for HTTP/2, and HTTP/1.1 carries one request at a time",
            "add --http2, or use more connections (-c)",
        ),
        (
            request.tcp && url.scheme == Scheme::Https,
            "--tcp and https contradict each other",
            "write the URL as tcp://HOST:PORT",
        ),
        (
            is_tcp && (is_http2 || request.grpc.is_some()),
            "TCP and HTTP/2 contradict each other",
            "omit one of them",
        ),
        (
            is_tcp && (!request.header.is_empty() || request.requests.is_some()),
            "plain TCP has no headers and no list of requests",
            "give the bytes to send with -d, -D or --body-hex",
        ),
        (
            request.grpc.is_some() && url.path != "/",
            "--grpc and the URL both name a path",
            "leave the URL's out",
        ),
        (
            request.requests.is_some() && url.path != "/",
            "--requests and the URL both name a path",
            "leave the URL's out",
        ),
    ];
    match all.iter().find(|(contradicts, ..)| *contradicts) {
        Some((_, problem, fix)) => Err(wrong(problem, fix)),
        None => Ok(()),
    }
}

fn protocol(args: &LoadArgs, url: &Url) -> Protocol {
    let streams = args.connection.streams.unwrap_or(1);
    if args.request.tcp || url.scheme.is_plain() {
        Protocol::Tcp
    } else if args.request.grpc.is_some() {
        Protocol::Grpc { streams }
    } else if args.connection.http2 {
        Protocol::Http2 { streams }
    } else {
        Protocol::Http1
    }
}

fn model(args: &LoadArgs) -> Result<LoadModel, Failure> {
    let amount = &args.amount;
    let arrivals = amount.arrivals.unwrap_or(Arrivals::Poisson);
    if let Some(path) = &amount.replay {
        return Ok(LoadModel::Replay {
            times_ns: replay(path)?,
        });
    }
    if let Some(rate_per_s) = amount.rate_per_user {
        return Ok(LoadModel::Users {
            rate_per_s,
            arrivals,
        });
    }
    let rate = match (amount.ramp, amount.ramp_steps) {
        (
            Some(Ramp {
                from_per_s,
                to_per_s,
            }),
            None,
        ) => Rate::Linear {
            from_per_s,
            to_per_s,
        },
        (
            Some(Ramp {
                from_per_s,
                to_per_s,
            }),
            Some(steps),
        ) => Rate::Steps {
            from_per_s,
            to_per_s,
            steps,
        },
        (None, _) => match amount.rate {
            Some(per_s) => Rate::Constant { per_s },
            None => {
                return Ok(LoadModel::Closed {
                    think_ns: amount.think_time.unwrap_or(0),
                });
            }
        },
    };
    Ok(LoadModel::Open { rate, arrivals })
}

/// What is sent: one request of the flags, or those of a file with the flags' headers.
fn all_requests(args: &LoadArgs, url: &Url) -> Result<Vec<Request>, Failure> {
    let flags = &args.request;
    let (host, headers) = headers(args)?;
    let mut requests = match &flags.requests {
        Some(path) => requests(path, url)?,
        None => vec![Request {
            method: flags.method.clone(),
            path: flags.grpc.clone().unwrap_or_else(|| url.path.clone()),
            body: body(args)?,
            ..Request::get(url.authority.clone())
        }],
    };
    for request in &mut requests {
        if let Some(host) = &host {
            request.host.clone_from(host);
        }
        request.headers.extend(headers.iter().cloned());
    }
    Ok(requests)
}

type Header = (String, String);

/// The `host` among the headers, if any, and the others.
fn headers(args: &LoadArgs) -> Result<(Option<String>, Vec<Header>), Failure> {
    let (hosts, mut headers): (Vec<_>, Vec<_>) = args
        .request
        .header
        .iter()
        .cloned()
        .partition(|(name, _)| name.eq_ignore_ascii_case("host"));
    if hosts.len() > 1 {
        return Err(wrong("-H names the host twice", "name one"));
    }
    for (name, value) in [
        ("content-type", &args.request.content_type),
        ("accept", &args.request.accept),
    ] {
        if let Some(value) = value {
            headers.push((name.into(), value.clone()));
        }
    }
    Ok((hosts.into_iter().next().map(|(_, host)| host), headers))
}

fn body(args: &LoadArgs) -> Result<Vec<u8>, Failure> {
    let flags = &args.request;
    match (&flags.body, &flags.body_file, &flags.body_hex) {
        (Some(text), ..) => Ok(text.clone().into_bytes()),
        (_, Some(path), _) => read("-D", path),
        (.., Some(bytes)) => Ok(bytes.0.clone()),
        _ => Ok(Vec::new()),
    }
}

fn tls(args: &LoadArgs, url: &Url) -> Result<Option<Tls>, Failure> {
    let flags = &args.tls;
    let is_tcp = args.request.tcp || url.scheme.is_plain();
    // Whoever says whom to trust where plain TCP is spoken wants TLS; studies give --insecure with
    // every URL.
    let asked = flags.insecure || flags.cacert.is_some() || flags.cert.is_some();
    if !(url.scheme.is_secure() || is_tcp && asked) {
        return Ok(None);
    }
    Ok(Some(Tls {
        credentials: credentials(flags)?,
        server_name: flags
            .server_name
            .clone()
            .unwrap_or_else(|| url.host.clone()),
    }))
}

fn credentials(flags: &TlsArgs) -> Result<ClientTls, Failure> {
    let text = |flag, path: &Option<PathBuf>| {
        let path = path.as_ref();
        path.map(|path| read_text(flag, path)).transpose()
    };
    let credentials = ClientTls {
        roots_pem: text("--cacert", &flags.cacert)?,
        chain_pem: text("--cert", &flags.cert)?,
        key_pem: text("--key", &flags.key)?,
        insecure: flags.insecure,
        alpn: Vec::new(),
    };
    // Looked at now, so that the error comes before anything is opened.
    meshtax_tls::client_config(&credentials).map_err(|e| {
        Failure::with_fix(
            USAGE,
            e,
            "--cacert, --cert, --key and --insecure set what is trusted",
        )
    })?;
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn parsed(line: &str) -> Result<LoadArgs, String> {
        let words = ["meshtax", "load"]
            .into_iter()
            .chain(line.split_whitespace());
        match Cli::try_parse_from(words) {
            Ok(cli) => match cli.command {
                Command::Load(args) => Ok(*args),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    fn of(line: &str) -> LoadSpec {
        spec(&parsed(line).unwrap()).unwrap_or_else(|e| panic!("{line}: {e:?}"))
    }

    #[track_caller]
    fn refused(line: &str, word: &str) {
        let error = match parsed(line) {
            Err(error) => error,
            Ok(args) => match spec(&args).map(|s| s.validate()) {
                Err(failure) => failure.to_string(),
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(())) => panic!("{line} is taken"),
            },
        };
        assert!(error.contains(word), "{line}: {error}");
    }

    #[test]
    fn a_url_alone_is_a_closed_loop_of_ten_seconds() {
        let spec = of("http://127.0.0.1:8080/a");
        assert_eq!(spec.model, LoadModel::closed());
        assert_eq!((spec.window_ns, spec.warmup_ns), (WINDOW_NS, WARMUP_NS));
        assert_eq!((spec.connections, spec.threads), (10, 1));
        assert_eq!(
            (spec.max_requests, spec.requests_per_connection),
            (None, None)
        );
        assert_eq!(spec.timeout_ns, Some(30 * SECOND_NS));
        assert!(
            spec.requests[0].headers.is_empty(),
            "nothing that was not asked for"
        );
    }

    #[test]
    fn study_a_oha() {
        for connections in [32, 64, 128] {
            let spec = of(&format!(
                "http://127.0.0.1:8080/productpage -c {connections} -n 300000 --disable-keepalive \
                 --disable-compression --insecure --ipv4 --no-tui"
            ));
            assert_eq!(spec.connections, connections);
            assert_eq!(spec.max_requests, Some(300_000));
            assert_eq!(spec.requests_per_connection, Some(1));
            assert_eq!((spec.warmup_ns, spec.window_ns), (0, NO_LIMIT_NS));
            assert!(spec.drain_ns > 30 * SECOND_NS);
            assert!(spec.validate().is_ok());
        }
    }

    #[test]
    fn study_b_nighthawk_and_c_vegeta_and_d_jmeter() {
        let nighthawk =
            of("http://127.0.0.1:8080/ -q 16000 -c 160 --threads 16 -z 60s --arrivals constant");
        assert_eq!(
            nighthawk.model,
            LoadModel::open(16_000.0, Arrivals::Constant)
        );
        assert_eq!(nighthawk.threads, 16);
        let vegeta = of("http://127.0.0.1:8080/ -q 50/s -z 5m --arrivals constant");
        assert_eq!(vegeta.window_ns, 300 * SECOND_NS);
        let jmeter = of("http://127.0.0.1:8080/ --users 20 --rate-per-user 5 -z 14m --warmup 3m");
        assert_eq!(
            (jmeter.connections, jmeter.warmup_ns),
            (20, 180 * SECOND_NS)
        );
        let users = LoadModel::Users {
            rate_per_s: 5.0,
            arrivals: Arrivals::Poisson,
        };
        assert_eq!(jmeter.model, users);
        assert!(
            [nighthawk, vegeta, jmeter]
                .iter()
                .all(|s| s.validate().is_ok())
        );
    }

    #[test]
    fn models() {
        let steps = of("http://127.0.0.1/ --ramp 100..5k --ramp-steps 10 -z 60");
        let rate = Rate::Steps {
            from_per_s: 100.0,
            to_per_s: 5000.0,
            steps: 10,
        };
        let arrivals = Arrivals::Poisson;
        assert_eq!(steps.model, LoadModel::Open { rate, arrivals });
        let think = of("http://127.0.0.1/ --think-time 10ms");
        assert_eq!(
            think.model,
            LoadModel::Closed {
                think_ns: 10_000_000
            }
        );
    }

    #[test]
    fn protocols_and_tls() {
        assert_eq!(of("tcp://127.0.0.1:7 -d hi").protocol, Protocol::Tcp);
        assert_eq!(
            of("127.0.0.1:7 --tcp --body-hex 00").protocol,
            Protocol::Tcp
        );
        let http2 = of("https://127.0.0.1/ --insecure --http2 -p 8 --server-name a.example");
        assert_eq!(http2.protocol, Protocol::Http2 { streams: 8 });
        let tls = http2.tls.unwrap();
        assert!(tls.credentials.insecure);
        assert_eq!(tls.server_name, "a.example");
        let grpc = of("http://127.0.0.1:1 --grpc /a.B/C --grpc-message 0a01");
        assert_eq!(grpc.protocol, Protocol::Grpc { streams: 1 });
        assert_eq!(
            (grpc.requests[0].path.as_str(), &*grpc.requests[0].body),
            ("/a.B/C", &[10, 1][..])
        );
        assert!(of("tcp://[::1]:7 -d hi --insecure").tls.is_some());
        assert!(of("tls://[::1]:7 -d hi --insecure").tls.is_some());
        assert!(of("http://127.0.0.1/ --insecure").tls.is_none());
        assert_eq!(
            of("https://[::1]/ --insecure").tls.unwrap().server_name,
            "::1"
        );
    }

    #[test]
    fn headers_hosts_and_addresses() {
        let spec = of("http://127.0.0.1:80/ -H Host:shop.example -H x-a:b -T text/plain -A */*");
        assert_eq!(spec.requests[0].host, "shop.example");
        let names: Vec<_> = spec.requests[0]
            .headers
            .iter()
            .map(|(n, _)| n.as_str())
            .collect();
        assert_eq!(names, ["x-a", "content-type", "accept"]);
        let there =
            of("https://shop.example/ --insecure --connect-to shop.example:443:127.0.0.1:8443");
        assert_eq!(there.target.to_string(), "127.0.0.1:8443");
        assert_eq!(there.requests[0].host, "shop.example");
        let v6 = of("http://[::1]:81/");
        assert_eq!((v6.target.port(), v6.target.is_ipv6()), (81, true));
    }

    #[test]
    fn what_contradicts_itself_is_refused_with_the_fix() {
        let url = "http://127.0.0.1:9/";
        for (flags, word) in [
            ("--arrivals constant", "add -q RATE"),
            ("--ramp 1..2 -n 5", "add -z"),
            ("-p 4", "add --http2"),
            ("-q 10 --think-time 1s", "--think-time"),
            ("-q 10 --users 2 --rate-per-user 1", "--users"),
            ("--users 2", "--rate-per-user"),
            ("-c 5 --users 2 --rate-per-user 1", "--connections"),
            (
                "--disable-keepalive --requests-per-connection 3",
                "--requests-per-connection",
            ),
            ("--ipv4 --ipv6", "--ipv6"),
            ("--cert a.pem", "--key"),
            ("--tcp", "body is empty"),
            ("--tcp -d a -H a:b", "--header"),
            ("--http2 --tcp -d a", "--tcp"),
            ("--grpc /a --method POST", "--method"),
            ("-H a", "Name: value"),
            ("-H Host:a -H Host:b", "twice"),
            ("-H content-length:3", "leave it out"),
            ("-D /nowhere/body", "cannot read /nowhere/body"),
            ("--requests /nowhere/list", "cannot read /nowhere/list"),
            ("--replay /nowhere/times", "cannot read /nowhere/times"),
            ("--ipv6", "has no IPv6 address"),
            ("-z 0", "window_ns is 0"),
            ("-z 8d", "--duration"),
            ("-n 0", "whole number above 0"),
            ("-q 0", "above 0"),
            ("--threads 11", "threads is 11"),
            ("--interval 1ms", "interval_ns"),
            ("--cooldown 1s -n 5", "--cooldown"),
            ("-o a.xml", "FORMAT:FILE"),
        ] {
            refused(&format!("{url} {flags}"), word);
        }
        refused("http://127.0.0.1:9/x --grpc /a", "both name a path");
        refused(
            "https://127.0.0.1:9/ --cacert /nowhere/ca",
            "cannot read /nowhere/ca",
        );
        refused("https://127.0.0.1:9/ --tcp -d a", "tcp://HOST:PORT");
        refused("http://nowhere.invalid/", "cannot look up nowhere.invalid");
    }
}
