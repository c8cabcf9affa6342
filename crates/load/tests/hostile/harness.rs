//! Servers that misbehave, loads against them, and the bookkeeping that must hold for any.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use meshtax_load::{LoadError, LoadModel, LoadSpec, Protocol, run};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;

pub(crate) const MS: u64 = 1_000_000;

/// No load of these tests may last longer, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls `work` on a thread of its own; panics if it does not come back.
pub(crate) fn watched<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    watched_for(what, PATIENCE, work)
}

/// As [`watched`], with another patience.
pub(crate) fn watched_for<T: Send + 'static>(
    what: &str,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    match receiver.recv_timeout(patience) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("{what}: panicked, see above"),
    }
}

/// A server with a thread for each connection; `serve` gets its number and socket.
pub(crate) fn server(serve: impl Fn(u32, TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in (0..).zip(listener.incoming()) {
            let Ok(stream) = stream else { continue };
            let serve = Arc::clone(&serve);
            let _ = stream.set_nodelay(true);
            std::thread::spawn(move || serve(number, stream));
        }
    });
    address
}

/// Reads something; `false` at the end of the connection.
pub(crate) fn read_some(stream: &mut TcpStream) -> bool {
    stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
}

/// Reads until the peer closes.
pub(crate) fn read_all(stream: &mut TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

/// Closing this socket resets the connection.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// Writes the same bytes until the peer closes.
pub(crate) fn flood(stream: &mut TcpStream, bytes: &[u8]) {
    let block = bytes.repeat(1 + 65_536 / bytes.len());
    while stream.write_all(&block).is_ok() {}
}

/// Reads the head of one request, byte by byte; `false` at the end of the connection.
pub(crate) fn read_head(stream: &mut TcpStream) -> bool {
    let (mut last, mut byte) = ([0; 4], [0]);
    while &last != b"\r\n\r\n" {
        if !stream.read(&mut byte).is_ok_and(|count| count == 1) {
            return false;
        }
        last.rotate_left(1);
        last[3] = byte[0];
    }
    true
}

/// Every protocol that the load speaks.
pub(crate) const PROTOCOLS: [Protocol; 4] = [
    Protocol::Http1,
    Protocol::Http2 { streams: 3 },
    Protocol::Grpc { streams: 3 },
    Protocol::Tcp,
];

/// A short load. It ends soon if the server ends its connections or responses, however slow the
/// machine is; see [`hurried`] for servers that do neither.
pub(crate) fn spec(target: SocketAddr, protocol: Protocol, model: LoadModel) -> LoadSpec {
    let mut spec = LoadSpec::new(target);
    spec.protocol = protocol;
    spec.model = model;
    spec.connections = 3;
    spec.seed = 5;
    spec.window_ns = 150 * MS;
    spec.timeout_ns = Some(9000 * MS);
    spec.drain_ns = 9500 * MS;
    spec.connect_timeout_ns = 250 * MS;
    spec.spin = false;
    if matches!(protocol, Protocol::Tcp | Protocol::Grpc { .. }) {
        spec.requests[0].body = b"thirty-two bytes of an echo test".to_vec();
    }
    spec
}

/// The same against a server that has to be given up.
pub(crate) fn hurried(mut spec: LoadSpec) -> LoadSpec {
    spec.timeout_ns = Some(60 * MS);
    spec.drain_ns = 400 * MS;
    spec
}

fn models() -> Vec<LoadModel> {
    let arrivals = Arrivals::Constant;
    vec![
        LoadModel::closed(),
        LoadModel::Closed { think_ns: 3 * MS },
        LoadModel::open(400.0, arrivals),
        LoadModel::open(400.0, Arrivals::Poisson),
        LoadModel::Users {
            rate_per_s: 100.0,
            arrivals,
        },
    ]
}

/// The load in every model, over connections that are kept, and opened for one or two requests;
/// and once more without io_uring where that carries it.
pub(crate) fn loads(target: SocketAddr, protocol: Protocol) -> Vec<LoadSpec> {
    let mut all = Vec::new();
    for model in models() {
        for requests in [None, Some(1), Some(2)] {
            let mut spec = spec(target, protocol, model.clone());
            spec.requests_per_connection = requests;
            if matches!(spec.model, LoadModel::Users { .. }) {
                spec.protocol = match protocol {
                    Protocol::Http2 { .. } => Protocol::Http2 { streams: 1 },
                    Protocol::Grpc { .. } => Protocol::Grpc { streams: 1 },
                    other => other,
                };
            }
            all.push(spec);
        }
    }
    let mut by_epoll = spec(target, protocol, LoadModel::closed());
    by_epoll.io_uring = false;
    all.push(by_epoll);
    all
}

/// As [`loads`], for servers that never response: what queues is given up soon.
pub(crate) fn loads_for(target: SocketAddr, protocol: Protocol, kinds: &[&str]) -> Vec<LoadSpec> {
    let mut all = loads(target, protocol);
    for spec in &mut all {
        spec.drain_ns = 800 * MS;
        if kinds.contains(&"timeout") {
            *spec = hurried(spec.clone());
        }
    }
    all
}

/// Some of these loads, with every model but one and every way of using connections.
pub(crate) fn few(all: Vec<LoadSpec>) -> Vec<LoadSpec> {
    all.into_iter().step_by(4).collect()
}

/// For messages.
pub(crate) fn named(spec: &LoadSpec) -> String {
    format!(
        "{:?} {:?} {:?} requests per connection, io_uring: {}",
        spec.protocol, spec.model, spec.requests_per_connection, spec.io_uring
    )
}

/// Offers the load; the books must balance. `None`: the connections could not be opened.
pub(crate) fn offer(spec: &LoadSpec) -> Option<LoadResult> {
    let (name, load) = (named(spec), spec.clone());
    match watched(&name, move || run(&load, &mut |_| {})) {
        Ok(result) => {
            books(spec, &result);
            Some(result)
        }
        Err(LoadError::Connect { .. }) if spec.requests_per_connection.is_none() => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Offers all of the loads at the same time, most of which will only wait.
pub(crate) fn offer_all(loads: &[LoadSpec]) -> Vec<(String, LoadSpec, Option<LoadResult>)> {
    std::thread::scope(|scope| {
        let running: Vec<_> = loads.iter().map(|l| scope.spawn(|| offer(l))).collect();
        loads
            .iter()
            .zip(running)
            .map(|(spec, result)| (named(spec), spec.clone(), result.join().unwrap()))
            .collect()
    })
}

/// Looks at all of the cases at the same time: most of them only wait.
pub(crate) fn each<T: Sync>(cases: &[T], look: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        let all: Vec<_> = cases.iter().map(|c| scope.spawn(|| look(c))).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Responses to requests of the window.
pub(crate) fn answered(result: &LoadResult) -> u64 {
    result.status.values().sum()
}

/// Errors that are the end of a request.
pub(crate) fn failed(result: &LoadResult) -> u64 {
    result.errors.total() - result.failed_attempts
}

/// What holds for any load: each request that was offered ends exactly once.
pub(crate) fn books(spec: &LoadSpec, result: &LoadResult) {
    let name = named(spec);
    let answered = answered(result);
    assert_eq!(
        result.offered,
        answered + failed(result) + result.unanswered,
        "{name}: {result:?}"
    );
    for (what, histogram) in [
        ("response", &result.response),
        ("service", &result.service),
        ("send lag", &result.send_lag),
        ("first byte", &result.first_byte),
    ] {
        assert_eq!(histogram.count(), answered, "{name}: {what} of {result:?}");
    }
    assert!(result.generator_lag.count() <= result.offered, "{name}");
    assert!(result.succeeded <= result.completed, "{name}: {result:?}");
    assert!(result.queued <= result.offered, "{name}: {result:?}");
}

/// The books, and only errors of these kinds.
pub(crate) fn only(result: &LoadResult, name: &str, kinds: &[&str]) {
    for (kind, count) in result.errors.by_kind() {
        assert!(
            count == 0 || kinds.contains(&kind.to_string().as_str()),
            "{name}: {count} x {kind}: {result:?}"
        );
    }
}
