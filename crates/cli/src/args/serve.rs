//! The arguments of `meshtax serve`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use clap::Args;
use http::Uri;
use meshtax_app::{Call, Protocol, ServiceStep};
use meshtax_model::topology::ServiceTime;
use meshtax_spec::ValueError;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on: IP:PORT, optionally prefixed with http://, https://, tcp:// (echo) or tls:// (echo); repeatable
    /// [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    pub(crate) listen: Vec<Listen>,
    /// Address of a TCP echo: the same as --listen tcp://ADDR
    #[arg(long, value_name = "ADDR")]
    pub(crate) tcp_echo: Vec<SocketAddr>,
    /// Use TLS on listeners whose protocol is not given
    #[arg(long)]
    pub(crate) tls: bool,
    /// Certificate chain of the TLS listeners, PEM [default: a self-signed certificate]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require client certificates issued by these authorities, PEM (mutual TLS)
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
    /// Size of each response's body, or of its gRPC message
    #[arg(long, default_value = "1KiB", value_parser = meshtax_spec::size_bytes)]
    pub(crate) body: u64,
    /// Return the request's message in gRPC responses (at most 4 MiB)
    #[arg(long)]
    pub(crate) grpc_echo: bool,
    /// Busy-wait before each response, e.g. 50us
    #[arg(long, default_value = "0s", value_parser = meshtax_spec::duration_ns)]
    pub(crate) delay: u64,
    /// Wait before each response, without blocking others: exp:2ms (mean), uniform:1ms-5ms, lognormal:2ms,0.5
    /// (median, sigma)
    #[arg(long, value_name = "DIST", value_parser = meshtax_spec::service_time)]
    pub(crate) delay_dist: Option<ServiceTime>,
    /// Call these services concurrently before each response: http://HOST:PORT/PATH, separated by commas, each with the
    /// suffix @20% for a share of the requests; repeat the option for calls in sequence
    #[arg(long, value_name = "URLS", value_parser = calls)]
    pub(crate) call: Vec<ServiceStep>,
    /// Steps of CPU work before each response, one to two nanoseconds each
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub(crate) burn: u64,
    /// Share of requests that get an error (503; gRPC: UNAVAILABLE), e.g. 1%
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = meshtax_spec::share)]
    pub(crate) errors: f64,
    /// Seed of the errors and the waits
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads, each with its own listeners on the same ports
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
}

/// An address to listen on, and its protocol, if given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Option<Protocol>,
}

/// `--listen`: an address, or a URL with one.
fn listen(text: &str) -> Result<Listen, ValueError> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    let protocol = match scheme {
        None => None,
        Some("http") => Some(Protocol::Http),
        Some("https") => Some(Protocol::Https),
        Some("tcp") => Some(Protocol::TcpEcho),
        Some("tls") => Some(Protocol::TlsEcho),
        Some(other) => {
            let fix = "use http, https, tcp (echo) or tls (echo)";
            return Err(ValueError::new(format!("`{other}` is not supported"), fix));
        }
    };
    let address = rest.strip_suffix('/').unwrap_or(rest).parse();
    let address = address.map_err(|_| {
        let problem = format!("`{rest}` is not an address");
        ValueError::new(problem, "write it as IP:PORT, such as 127.0.0.1:8080")
    })?;
    Ok(Listen { address, protocol })
}

/// `--call`: calls that are made concurrently.
fn calls(text: &str) -> Result<ServiceStep, ValueError> {
    text.split(',')
        .map(call)
        .collect::<Result<_, _>>()
        .map(ServiceStep::Calls)
}

/// `http://HOST:PORT/PATH`, optionally followed by `@20%` for a share of the requests.
fn call(text: &str) -> Result<Call, ValueError> {
    const FORM: &str = "write it as http://HOST:PORT/PATH, or http://HOST:PORT/PATH@20%";
    let text = text.trim();
    let (url, share) = match text.rsplit_once('@') {
        Some((url, share)) => (url, meshtax_spec::share(share)?),
        None => (text, 1.0),
    };
    let invalid = || ValueError::new(format!("`{url}` is not an http:// URL"), FORM);
    let url: Uri = url.parse().map_err(|_| invalid())?;
    let (Some("http"), Some(host)) = (url.scheme_str(), url.host()) else {
        return Err(invalid());
    };
    let host_name = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = (host_name, url.port_u16().unwrap_or(80))
        .to_socket_addrs()
        .map_err(|e| ValueError::new(format!("cannot resolve `{host}`: {e}"), FORM))?;
    Ok(Call {
        address: found.next().ok_or_else(invalid)?,
        host: url.authority().map(ToString::to_string).unwrap_or_default(),
        path: url
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned(),
        share,
    })
}
