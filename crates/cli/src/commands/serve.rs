//! `meshtax serve`: the test application.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use meshtax_app::{AppConfig, AppError, Call, Identity, Listener, Protocol, Wait};

use crate::args::ServeArgs;
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::interrupt::Interrupt;
use crate::terminal::say;

pub(crate) fn serve(args: &ServeArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let config = config(args)?;
    let ready = |listeners: &[Listener]| say(&served(&config, listeners));
    meshtax_app::serve_all(&config, ready, &interrupt.flag).map_err(failure)?;
    Ok(interrupt.exit_code().unwrap_or(SUCCESS))
}

fn failure(error: AppError) -> Failure {
    let code = match &error {
        AppError::Invalid { .. } | AppError::Tls(_) => USAGE,
        _ => MISSING,
    };
    Failure::new(code, error)
}

fn config(args: &ServeArgs) -> Result<AppConfig, Failure> {
    let response_bytes =
        u32::try_from(args.body).map_err(|_| Failure::new(USAGE, "--body: at most 4 GiB"))?;
    let listeners = listeners(args);
    if !listeners.iter().any(|l| l.protocol.is_tls()) {
        refuse_unused_certificates(args)?;
    }
    let client_ca = args.client_ca.as_deref();
    let client_ca = client_ca.map(|path| read("--client-ca", path));
    Ok(AppConfig {
        identity: identity(args)?,
        client_roots_pem: client_ca.transpose()?,
        response_bytes,
        grpc_echo: args.grpc_echo,
        delay_ns: args.delay,
        wait: args.delay_dist.map(meshtax_workload::wait),
        steps: args.call.clone(),
        burn: args.burn,
        error_share: args.errors,
        seed: args.seed,
        threads: args.threads,
        ..AppConfig::with(listeners)
    })
}

/// The listeners: those that are given, or HTTP on the default port.
fn listeners(args: &ServeArgs) -> Vec<Listener> {
    let usual = match args.tls {
        true => Protocol::Https,
        false => Protocol::Http,
    };
    let named = args.listen.iter().map(|listen| Listener {
        address: listen.address,
        protocol: listen.protocol.unwrap_or(usual),
    });
    let echo = args.tcp_echo.iter().map(|address| Listener {
        address: *address,
        protocol: Protocol::TcpEcho,
    });
    let mut all: Vec<_> = named.chain(echo).collect();
    if all.is_empty() {
        all.push(Listener {
            address: ([127, 0, 0, 1], 8080).into(),
            protocol: usual,
        });
    }
    all
}

/// A certificate without a TLS listener is a mistake.
fn refuse_unused_certificates(args: &ServeArgs) -> Result<(), Failure> {
    let flag = match (&args.tls_cert, &args.client_ca) {
        (Some(_), _) => "--tls-cert",
        (None, Some(_)) => "--client-ca",
        (None, None) => return Ok(()),
    };
    let problem = format!("{flag} is given, but no listener uses TLS");
    let fix = "add --tls, or listen on https://ADDR";
    Err(Failure::with_fix(USAGE, problem, fix))
}

fn identity(args: &ServeArgs) -> Result<Option<Identity>, Failure> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    Ok(Some(Identity {
        chain_pem: read("--tls-cert", chain)?,
        key_pem: read("--tls-key", key)?,
    }))
}

fn read(flag: &str, path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| {
        let problem = format!("{flag}: cannot read {}: {e}", path.display());
        Failure::with_fix(USAGE, problem, "name a readable PEM file")
    })
}

/// A description of the listeners and of what each request costs.
fn served(config: &AppConfig, listeners: &[Listener]) -> String {
    let mut text = "serving".to_owned();
    for listener in listeners {
        let address = listener.address;
        let (url, what) = match listener.protocol {
            Protocol::Http => (
                format!("http://{address}/"),
                "HTTP/1.1, HTTP/2 with prior knowledge, gRPC",
            ),
            Protocol::Https => (
                format!("https://{address}/"),
                "HTTP/1.1 and HTTP/2 by ALPN, gRPC",
            ),
            Protocol::TcpEcho => (format!("tcp://{address}"), "echoes every byte"),
            Protocol::TlsEcho => (format!("tls://{address}"), "echoes every byte over TLS"),
        };
        let _ = write!(text, "\n  {url} {what}");
    }
    let speaks_tls = listeners.iter().any(|l| l.protocol.is_tls());
    if speaks_tls && config.identity.is_none() {
        text.push_str("\n  certificate: self-signed; clients must not verify it (curl -k)");
    }
    if speaks_tls && config.client_roots_pem.is_some() {
        text.push_str("\n  clients must present a certificate");
    }
    let _ = write!(
        text,
        "\neach response: {} bytes{}; {}: /_meshtax/stats\n(Ctrl-C stops it)",
        config.response_bytes,
        costs(config),
        if config.threads == 1 {
            "1 thread; counts".to_owned()
        } else {
            format!("{} threads; counts", config.threads)
        }
    );
    text
}

/// What happens before each response, if anything.
fn costs(config: &AppConfig) -> String {
    let mut text = String::new();
    if config.grpc_echo {
        text.push_str(", gRPC: the request's own message");
    }
    if config.delay_ns > 0 {
        let _ = write!(text, ", busy-waits {}", time(config.delay_ns));
    }
    match config.wait {
        None => {}
        Some(Wait::Exponential { mean_ns }) => {
            let _ = write!(text, ", waits {} (mean), exponential", time(mean_ns));
        }
        Some(Wait::Uniform { from_ns, to_ns }) => {
            let _ = write!(text, ", waits {} to {}", time(from_ns), time(to_ns));
        }
        Some(Wait::LogNormal { median_ns, sigma }) => {
            let median = time(median_ns);
            let _ = write!(text, ", waits {median} (median), sigma {sigma}");
        }
    }
    for step in &config.steps {
        let calls: Vec<String> = step.calls().iter().map(called).collect();
        let _ = write!(text, ", calls {}", calls.join(" and "));
    }
    if config.burn > 0 {
        let _ = write!(text, ", {} steps of work", config.burn);
    }
    if config.error_share > 0.0 {
        let _ = write!(text, ", {} % errors", config.error_share * 100.0);
    }
    text
}

fn called(call: &Call) -> String {
    let url = format!("http://{}{}", call.host, call.path);
    match call.share {
        share if share >= 1.0 => url,
        share => format!("{url} for {} %", share * 100.0),
    }
}

fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{} ms", ns as f64 / 1e6),
        _ => format!("{} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn try_config(line: &str) -> Result<AppConfig, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|e| e.to_string())?;
        config(&line.args).map_err(|failure| failure.to_string())
    }

    fn protocols(line: &str) -> Vec<(String, Protocol)> {
        let listeners = try_config(line).unwrap().listeners.into_iter();
        listeners
            .map(|l| (l.address.to_string(), l.protocol))
            .collect()
    }

    #[test]
    fn listeners_have_the_given_or_default_protocol() {
        let http = |address: &str| (address.to_owned(), Protocol::Http);
        let https = |address: &str| (address.to_owned(), Protocol::Https);
        assert_eq!(protocols(""), [http("127.0.0.1:8080")]);
        assert_eq!(protocols("--tls"), [https("127.0.0.1:8080")]);
        assert_eq!(
            protocols("--listen 1.2.3.4:5 --listen https://[::1]:6/ --tcp-echo 7.7.7.7:7"),
            [
                http("1.2.3.4:5"),
                https("[::1]:6"),
                ("7.7.7.7:7".to_owned(), Protocol::TcpEcho)
            ]
        );
        assert_eq!(
            protocols(
                "--tls --listen 1.2.3.4:5 --listen http://1.2.3.4:6 --listen tls://1.2.3.4:7"
            ),
            [
                https("1.2.3.4:5"),
                http("1.2.3.4:6"),
                ("1.2.3.4:7".to_owned(), Protocol::TlsEcho)
            ]
        );
        assert_eq!(
            protocols("--tcp-echo 127.0.0.1:7"),
            [("127.0.0.1:7".to_owned(), Protocol::TcpEcho)]
        );
    }

    #[test]
    fn the_cost_of_a_request_is_configured_and_described() {
        let config = try_config(
            "--body 2KiB --delay 50us --delay-dist lognormal:2ms,0.5 --burn 10000 --errors 1% \
             --seed 9 --threads 2 --grpc-echo",
        );
        let config = config.unwrap();
        assert_eq!((config.response_bytes, config.delay_ns), (2048, 50_000));
        let wait = Wait::LogNormal {
            median_ns: 2_000_000,
            sigma: 0.5,
        };
        assert_eq!((config.wait, config.burn), (Some(wait), 10_000));
        assert_eq!((config.error_share, config.seed), (0.01, 9));
        assert!(config.grpc_echo && config.threads == 2);
        let text = served(&config, &config.listeners);
        for part in [
            "http://127.0.0.1:8080/ HTTP/1.1",
            "2048 bytes, gRPC: the request's own message, busy-waits 50 us, waits 2 ms (median), \
             sigma 0.5, 10000 steps of work, 1 % errors; 2 threads",
            "(Ctrl-C stops it)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let uniform = try_config("--delay-dist uniform:1ms-5ms").unwrap().wait;
        let range = Wait::Uniform {
            from_ns: 1_000_000,
            to_ns: 5_000_000,
        };
        assert_eq!(uniform, Some(range));
        let exponential = try_config("--delay-dist exp:2ms").unwrap().wait;
        assert_eq!(exponential, Some(Wait::Exponential { mean_ns: 2_000_000 }));
    }

    #[test]
    fn errors_name_the_option_the_value_and_the_fix() {
        for (line, parts) in [
            ("--listen 8080", ["--listen", "'8080'", "IP:PORT"]),
            (
                "--listen ftp://1.2.3.4:5",
                ["--listen", "`ftp`", "use http"],
            ),
            ("--delay-dist exp:2", ["--delay-dist", "no unit", "exp:2ms"]),
            (
                "--delay-dist normal:2ms",
                ["--delay-dist", "normal:2ms", "uniform:1ms-5ms"],
            ),
            (
                "--delay-dist uniform:5ms-1ms",
                ["--delay-dist", "shorter duration first", "uniform:1ms-5ms"],
            ),
            ("--errors 2", ["--errors", "not a percentage", "2%"]),
            ("--errors 200%", ["--errors", "200%", "0% to 100%"]),
            ("--tls-cert a.pem", ["--tls-cert", "--tls-key", "required"]),
            (
                "--tls-cert a.pem --tls-key b.pem",
                ["--tls-cert", "no listener uses TLS", "add --tls"],
            ),
            (
                "--client-ca nowhere.pem",
                ["--client-ca", "no listener uses TLS", "https://"],
            ),
            (
                "--tls --tls-cert nowhere.pem --tls-key b.pem",
                ["--tls-cert", "nowhere.pem", "PEM file"],
            ),
        ] {
            let text = try_config(line).unwrap_err();
            for part in parts {
                assert!(text.contains(part), "{line}: {part} is not in {text}");
            }
        }
    }

    #[test]
    fn a_self_signed_certificate_is_reported() {
        let config = try_config("--tls").unwrap();
        let text = served(&config, &config.listeners);
        assert!(
            text.contains("https://127.0.0.1:8080/ HTTP/1.1 and HTTP/2"),
            "{text}"
        );
        assert!(text.contains("clients must not verify it"), "{text}");
    }
}
