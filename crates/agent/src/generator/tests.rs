//! Generators on threads of this process.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::thread;

use meshtax_load::{LoadModel, Schedule, worker_main};
use meshtax_model::experiment::Arrivals;
use meshtax_model::failure::TrialFailure;
use meshtax_observe::monotonic_ns;

use super::*;

/// A worker on a thread of this process.
struct Thread;

impl Worker for Thread {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn ended(&mut self) -> io::Result<ExitStatus> {
        Ok(ExitStatus::from_raw(0))
    }

    fn end(&mut self) {}
}

fn worker(client: &str) -> ClientWorker {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let output = theirs.try_clone().unwrap();
        let _ = worker_main(theirs, output);
    });
    ClientWorker {
        client: client.to_owned(),
        started: StartedWorker {
            worker: Box::new(Thread),
            output: Box::new(ours.try_clone().unwrap()),
            input: Box::new(ours),
        },
    }
}

/// A server that notes when each request came, on `CLOCK_MONOTONIC`.
fn noting() -> (SocketAddr, Arc<Mutex<Vec<u64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let notes: Arc<Mutex<Vec<u64>>> = Arc::default();
    let shared = Arc::clone(&notes);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let notes = Arc::clone(&shared);
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    if line.is_empty() {
                        notes.lock().unwrap().push(monotonic_ns());
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                    }
                }
            });
        }
    });
    (address, notes)
}

fn spec(target: SocketAddr, connections: u32) -> LoadSpec {
    LoadSpec {
        model: LoadModel::open(500.0, Arrivals::Constant),
        connections,
        seed: 7,
        window_ns: 500_000_000,
        ..LoadSpec::new(target)
    }
}

const FOUR: [&str; 4] = ["client", "client-2", "client-3", "client-4"];

/// A load that four clients' generators have started together.
struct Started {
    spec: LoadSpec,
    notes: Arc<Mutex<Vec<u64>>>,
    generators: Generators,
    window: Window,
}

/// A stall of the machine may be longer than their lead. Each attempt has a server of its own, so that nothing of an
/// earlier one is noted.
fn started_together() -> Started {
    for _ in 0..5 {
        let (target, notes) = noting();
        let spec = spec(target, 7);
        let mut generators = Generators::ready(&spec, FOUR.map(worker).into()).unwrap();
        match generators.start(monotonic_ns() + generators.lead_ns()) {
            Ok(window) => {
                return Started {
                    spec,
                    notes,
                    generators,
                    window,
                };
            }
            Err(GeneratorError::NotTogether { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("five times not together");
}

#[test]
fn server_sees_the_schedule_of_one_generator_from_four() {
    let Started {
        spec,
        notes,
        mut generators,
        window,
    } = started_together();
    let parts = generators.results().unwrap();
    let open: Vec<u32> = parts.iter().map(|part| part.open).collect();
    assert_eq!(open, [2, 2, 2, 1]);
    let whole = whole_load(&spec, &parts);
    let own: u64 = parts.iter().map(|part| part.result.offered).sum();
    assert_eq!((whole.offered, whole.connections_opened), (own, 7));
    assert_eq!(whole.response.count(), whole.offered);
    // The intended times of a single generator with this seed.
    let mut one = Schedule::new(500.0, Arrivals::Constant, spec.seed);
    let intended: Vec<u64> = std::iter::from_fn(|| one.take_ns())
        .take_while(|at| *at < spec.window_ns)
        .map(|at| window.start_monotonic_ns + at)
        .collect();
    let mut seen = notes.lock().unwrap().clone();
    seen.sort_unstable();
    assert_eq!(
        (seen.len(), whole.offered),
        (intended.len(), seen.len() as u64)
    );
    assert!(seen.iter().zip(&intended).all(|(seen, due)| seen >= due));
    // The clients take turns, with a request in each gap of 2 ms. A stall of the machine delays many of a client's, but
    // not all; a client that started late, or has the wrong turn, delays all of its turn.
    let late = |(seen, due): (&u64, &u64)| seen - due;
    let late: Vec<u64> = seen.iter().zip(&intended).map(late).collect();
    for (client, name) in FOUR.iter().enumerate() {
        let best = late.iter().skip(client).step_by(FOUR.len()).min();
        assert!(best < Some(&2_000_000), "{name}: {late:?}");
    }
}

#[test]
fn generators_that_get_their_order_too_late_are_not_together() {
    let (target, _) = noting();
    let mut generators = Generators::ready(&spec(target, 7), FOUR.map(worker).into()).unwrap();
    let error = generators.start(monotonic_ns()).unwrap_err();
    let apart = error.to_string();
    assert!(
        matches!(TrialFailure::from(error), TrialFailure::NotTogether { detail } if detail == apart)
    );
}

#[test]
fn generator_that_gets_no_connection_fails_all_with_its_reason() {
    let mut spec = spec("127.0.0.1:1".parse().unwrap(), 2);
    spec.connect_timeout_ns = 100_000_000;
    let failed = Generators::ready(&spec, ["client", "client-2"].map(worker).into());
    let failed = failed.err().map(TrialFailure::from);
    let Some(TrialFailure::NotConnected { detail }) = failed else {
        panic!("{failed:?}");
    };
    assert!(detail.contains("refused"), "{detail}");
}

/// Answers so many requests of a connection, and ends it.
fn answer(mut stream: TcpStream, requests: usize) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let ends = lines.map_while(Result::ok).filter(String::is_empty);
    for _ in ends.take(requests) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

#[test]
fn connections_that_the_server_ended_are_not_open_after_the_load() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap();
    thread::spawn(move || {
        let [ended, kept] = [(), ()].map(|()| listener.accept().unwrap().0);
        // None can be opened again.
        drop(listener);
        thread::spawn(move || answer(kept, usize::MAX));
        answer(ended, 1);
    });
    let mut generators = Generators::ready(&spec(target, 2), vec![worker("client")]).unwrap();
    generators
        .start(monotonic_ns() + generators.lead_ns())
        .unwrap();
    let parts = generators.results().unwrap();
    assert_eq!(parts[0].open, 1, "{:?}", parts[0].result.errors);
}

#[test]
fn verdict_on_a_generator_names_its_client_among_several() {
    use meshtax_model::trial::{GeneratorBound, GeneratorLimit};
    let part = |client: &str, is_bound: bool| {
        let mut result = LoadResult::default();
        result.audit.generator_bound = is_bound.then_some(GeneratorBound {
            worker: None,
            limit: GeneratorLimit::Busy {
                busy_share: 0.99,
                max_share: 0.9,
                closed_loop: false,
            },
        });
        ClientLoad {
            client: client.to_owned(),
            open: 1,
            result,
        }
    };
    let spec = spec("127.0.0.1:1".parse().unwrap(), 2);
    let named = |parts: &[ClientLoad]| {
        let bound = whole_load(&spec, parts).audit.generator_bound;
        bound.map(|bound| bound.worker)
    };
    assert_eq!(named(&[part("client", true)]), Some(None));
    let two = [part("client", false), part("client-2", true)];
    assert_eq!(named(&two), Some(Some("client-2".into())));
}
