//! The arguments of `meshtax load`, in the style of wrk, oha and hey.
//!
//! The structs have no documentation: clap would print it as that of the command.

mod search;
mod values;

use std::path::PathBuf;

use clap::Args;
use meshtax_model::experiment::Arrivals;

use super::FleetArgs;
pub(crate) use search::SearchArgs;
pub(crate) use values::{ConnectTo, Export, ExportFormat, Ramp, hex_bytes};

#[derive(Debug, Args)]
#[command(after_help = "\
Without -q, --ramp, --users or --replay the loop is closed: each connection sends its next request \
as soon as it has the response. docs/load.md explains the results, and lists the equivalent options of \
wrk, hey, oha, vegeta, Nighthawk, fortio and JMeter.")]
pub(crate) struct LoadArgs {
    /// URL of the server: http://HOST[:PORT][/PATH], https://…, tcp://HOST:PORT, tls://…
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) amount: AmountArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) generator: GeneratorArgs,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

// Amount, duration and arrivals.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct AmountArgs {
    /// Connections
    #[arg(short, long, default_value_t = 10, conflicts_with = "users")]
    pub(crate) connections: u32,
    /// Requests to send, as in 300000, 10k or 1M; without -z there is no time limit
    #[arg(short = 'n', long, value_name = "REQUESTS", value_parser = meshtax_spec::requests)]
    pub(crate) count: Option<u64>,
    /// Measured duration, as in 30s or 5m [default: 10s, or as long as -n or --replay takes]
    #[arg(short = 'z', long, value_parser = meshtax_spec::seconds_ns)]
    pub(crate) duration: Option<u64>,
    /// Open loop: requests per second, the total of all connections
    #[arg(short = 'q', long, value_parser = meshtax_spec::unbounded_rate_per_s, conflicts_with_all = ["ramp", "users", "replay"])]
    pub(crate) rate: Option<f64>,
    /// Arrivals of an open loop: constant or poisson [default: poisson]
    #[arg(long, value_parser = meshtax_spec::arrivals, conflicts_with = "replay")]
    pub(crate) arrivals: Option<Arrivals>,
    /// Open loop whose rate changes linearly over the window, as in 100..5000
    #[arg(long, value_name = "FROM..TO", value_parser = values::ramp, conflicts_with_all = ["users", "replay"])]
    pub(crate) ramp: Option<Ramp>,
    /// Change the rate in this number of equal steps instead
    #[arg(long, value_name = "N", requires = "ramp")]
    pub(crate) ramp_steps: Option<u32>,
    /// Open loop of virtual users, each with its own connection and schedule; each sends the requests in order
    #[arg(
        long,
        value_name = "N",
        requires = "rate_per_user",
        conflicts_with = "replay"
    )]
    pub(crate) users: Option<u32>,
    /// Requests per second of each user
    #[arg(long, value_name = "RATE", value_parser = meshtax_spec::unbounded_rate_per_s, requires = "users")]
    pub(crate) rate_per_user: Option<f64>,
    /// Open loop at the times in this file: one per line, in seconds or with a unit, relative to the first
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Closed loop: pause between a response and the next request
    #[arg(long, value_name = "TIME", value_parser = meshtax_spec::seconds_ns, conflicts_with_all = ["rate", "ramp", "users", "replay"])]
    pub(crate) think_time: Option<u64>,
    /// Load before the window, excluded from the results [default: 500ms; 0 with -n, so that exactly that
    /// many requests are sent, and with --replay]
    #[arg(long, value_name = "TIME", value_parser = meshtax_spec::seconds_ns)]
    pub(crate) warmup: Option<u64>,
    /// Load after the window, excluded from the results
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = meshtax_spec::seconds_ns, conflicts_with = "count")]
    pub(crate) cooldown: u64,
    /// Accepted for compatibility with oha: an open loop is always corrected for coordinated omission
    #[arg(long)]
    pub(crate) latency_correction: bool,
}

// The requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestArgs {
    /// HTTP method
    #[arg(short, long, default_value = "GET")]
    pub(crate) method: String,
    /// Header to add, as 'Name: value'; Host sets the host
    #[arg(short = 'H', long, value_parser = values::header)]
    pub(crate) header: Vec<(String, String)>,
    /// Body; with gRPC the message, with TCP the bytes that are echoed
    #[arg(short = 'd', long, conflicts_with_all = ["body_file", "body_hex", "requests"])]
    pub(crate) body: Option<String>,
    /// File with the body
    #[arg(short = 'D', long, value_name = "FILE", conflicts_with_all = ["body_hex", "requests"])]
    pub(crate) body_file: Option<PathBuf>,
    /// Body as hexadecimal digits
    #[arg(long, value_name = "HEX", alias = "grpc-message", value_parser = values::hex, conflicts_with = "requests")]
    pub(crate) body_hex: Option<values::Bytes>,
    /// Content-Type header
    #[arg(short = 'T', long)]
    pub(crate) content_type: Option<String>,
    /// Accept header
    #[arg(short = 'A', long)]
    pub(crate) accept: Option<String>,
    /// Several requests: YAML or JSON, a list of {weight, method, path, headers, body}, or text with one
    /// path per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "grpc"])]
    pub(crate) requests: Option<PathBuf>,
    /// Call this gRPC method over HTTP/2, as in /helloworld.Greeter/SayHello; the body is its message
    #[arg(long, value_name = "METHOD", conflicts_with_all = ["method", "tcp"])]
    pub(crate) grpc: Option<String>,
    /// Plain TCP: send the body, and wait for the same number of bytes
    #[arg(long, conflicts_with_all = ["method", "http2", "header", "content_type", "accept"])]
    pub(crate) tcp: bool,
    /// Time after which a request without a response fails; 0: never [default: 30s]
    #[arg(short, long, value_name = "TIME", value_parser = meshtax_spec::seconds_ns)]
    pub(crate) timeout: Option<u64>,
    /// Accepted for compatibility with oha and hey: compression is never requested
    #[arg(long)]
    pub(crate) disable_compression: bool,
}

// The connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Open a new connection for every request
    #[arg(long, conflicts_with = "requests_per_connection")]
    pub(crate) disable_keepalive: bool,
    /// Close a connection after this number of requests, and open another
    #[arg(long, value_name = "K")]
    pub(crate) requests_per_connection: Option<u32>,
    /// HTTP/2: by ALPN over TLS, by prior knowledge over plaintext
    #[arg(long)]
    pub(crate) http2: bool,
    /// Concurrent requests on each HTTP/2 connection
    #[arg(short = 'p', long, value_name = "M")]
    pub(crate) streams: Option<u32>,
    /// Connect to the second HOST:PORT instead of the first, as in curl; an empty first HOST or PORT matches any
    #[arg(long, value_name = "HOST:PORT:HOST:PORT", value_parser = values::connect_to)]
    pub(crate) connect_to: Vec<ConnectTo>,
    /// Use IPv4 addresses only
    #[arg(long, conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Use IPv6 addresses only
    #[arg(long)]
    pub(crate) ipv6: bool,
}

// Certificates.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Do not verify the server's certificate
    #[arg(long, conflicts_with = "cacert")]
    pub(crate) insecure: bool,
    /// Trust this certificate authority, PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,
    /// Client certificate chain for mutual TLS, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of --cert, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Server name for SNI and certificate verification [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
}

// Threads and system calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Generator")]
pub(crate) struct GeneratorArgs {
    /// Threads that share the connections
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// Pin the threads to these cores, round-robin, as in 2 or 2,3
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    pub(crate) core: Vec<u32>,
    /// Do not busy-wait for the last 50 µs before a send: sends are later, and a core is free
    #[arg(long)]
    pub(crate) no_spin: bool,
    /// Use epoll even where io_uring takes less CPU: closed loops over plaintext with persistent connections
    #[arg(long)]
    pub(crate) no_io_uring: bool,
    /// Seed of the arrivals and the order of requests [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

// Results.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print the results as JSON (docs/schema/load-v2.json)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the results to a file as json, hgrm, fortio, vegeta or csv; `-` is standard output
    #[arg(short, long, value_name = "FORMAT:FILE", value_parser = values::export)]
    pub(crate) output: Vec<Export>,
    /// Show no progress during the load
    #[arg(long)]
    pub(crate) no_tui: bool,
    /// Length of the intervals into which the window is divided, 100ms or more; 0: none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = meshtax_spec::seconds_ns)]
    pub(crate) interval: u64,
}
