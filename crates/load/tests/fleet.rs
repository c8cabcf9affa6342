//! Several workers offer one load.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use meshtax_load::{FleetError, Hooks, LoadModel, LoadSpec, Member, run_fleet, worker_main};
use meshtax_model::experiment::Arrivals;

/// A worker on a thread of this process, at the other end of a socket pair.
fn member(name: &str) -> Member {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let output = theirs.try_clone().unwrap();
        let _ = worker_main(theirs, output);
    });
    Member {
        name: name.into(),
        output: Box::new(ours.try_clone().unwrap()),
        input: Box::new(ours),
    }
}

/// A server that notes when each request came.
fn noting() -> (SocketAddr, Arc<Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&notes);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let notes = Arc::clone(&shared);
            std::thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines {
                    if line.is_ok_and(|line| line.is_empty()) {
                        notes.lock().unwrap().push(Instant::now());
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                    }
                }
            });
        }
    });
    (address, notes)
}

fn spec(target: SocketAddr, arrivals: Arrivals) -> LoadSpec {
    let mut spec = LoadSpec::new(target);
    spec.model = LoadModel::open(1000.0, arrivals);
    spec.connections = 7;
    spec.seed = 3;
    spec.window_ns = 1_000_000_000;
    spec.interval_ns = Some(250_000_000);
    spec
}

#[test]
fn three_workers_offer_one_load() {
    let (target, notes) = noting();
    let mut window = None;
    let result = run_fleet(
        &spec(target, Arrivals::Constant),
        ["a", "b", "c"].map(member).into(),
        Hooks::new(&mut |w| window = Some(w)),
    )
    .unwrap();
    assert!((999..=1001).contains(&result.offered), "{result:?}");
    assert_eq!(result.status[&200], result.offered);
    assert_eq!(result.connections_opened, 7);
    // A stall of the machine over a boundary makes one interval of two.
    assert!((1..=4).contains(&result.intervals.len()), "{result:?}");
    let covered: u64 = result.intervals.iter().map(|i| i.length_ns).sum();
    assert_eq!(covered, result.window_ns);
    assert_eq!(notes.lock().unwrap().len() as u64, result.offered);
    assert!(window.is_some());
}

/// That the streams add up to a Poisson stream is a matter of the schedule (its own tests); here,
/// that each worker is given its own. When requests come does not tell: a stall of the machine
/// lets several come at once.
#[test]
fn each_worker_has_its_own_poisson_arrivals() {
    let (target, notes) = noting();
    let mut all = 0;
    let offered = [3, 4, 5, 6, 7, 8].map(|seed| {
        let mut spec = spec(target, Arrivals::Poisson);
        spec.seed = seed;
        spec.window_ns = 250_000_000;
        let members = ["a", "b"].map(member).into();
        let result = run_fleet(&spec, members, Hooks::new(&mut |_| {})).unwrap();
        all += result.offered;
        result.offered
    });
    assert_eq!(notes.lock().unwrap().len() as u64, all);
    // Two workers with one stream would offer everything twice, whatever the seed.
    assert!(offered.iter().any(|n| n % 2 == 1), "{offered:?}");
    // 1,500 are expected; five standard deviations are 194.
    assert!(all.abs_diff(1500) < 194, "{offered:?}");
}

#[test]
fn stopped_workers_report_what_they_measured() {
    let (target, _) = noting();
    let mut spec = spec(target, Arrivals::Constant);
    spec.window_ns = 60_000_000_000;
    let abort = Arc::new(AtomicBool::new(false));
    let setter = Arc::clone(&abort);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(800));
        setter.store(true, Ordering::Relaxed);
    });
    let mut on_window = |_| {};
    let hooks = Hooks {
        abort: Some(&abort),
        ..Hooks::new(&mut on_window)
    };
    let result = run_fleet(&spec, ["a", "b"].map(member).into(), hooks).unwrap();
    assert!((300..5_000).contains(&result.offered), "{result:?}");
    assert_eq!(result.unanswered, 0);
}

#[test]
fn a_failed_worker_is_named() {
    let mut spec = spec("127.0.0.1:1".parse().unwrap(), Arrivals::Constant);
    spec.connect_timeout_ns = 100_000_000;
    let members = ["a", "b"].map(member).into();
    let error = run_fleet(&spec, members, Hooks::new(&mut |_| {})).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("worker ") && text.contains("refused"),
        "{text}"
    );
    // One that is gone before it heard anything.
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    let gone = Member {
        name: "gone".into(),
        output: Box::new(ours.try_clone().unwrap()),
        input: Box::new(ours),
    };
    let (target, _) = noting();
    spec.target = target;
    let error = run_fleet(&spec, vec![gone], Hooks::new(&mut |_| {})).unwrap_err();
    assert!(
        matches!(&error, FleetError::Worker { name, .. } if name == "gone"),
        "{error}"
    );
}

#[test]
fn more_workers_than_connections_are_rejected() {
    let mut spec = spec("127.0.0.1:9".parse().unwrap(), Arrivals::Constant);
    spec.connections = 2;
    let members = ["a", "b", "c"].map(member).into();
    let error = run_fleet(&spec, members, Hooks::new(&mut |_| {})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 workers cannot share connections 2: use fewer workers, or more connections"
    );
}
