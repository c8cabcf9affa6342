//! One load on several targets: each is asked as often as the others, under a host of its own, whatever else differs.

mod quiet;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use meshtax_app::{AppConfig, serve};
use meshtax_load::{LoadError, LoadModel, LoadSpec, Protocol, Target, run};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;

use quiet::while_the_machine_is_ours;

/// What servers heard: connections and requests, by server and host.
type Heard = Arc<Mutex<BTreeMap<(usize, String), u64>>>;

/// Notes the host of every request; responses after a pause.
fn listening(number: usize, pause: Duration, heard: &Heard) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::clone(heard);
    let serve = move |mut stream: TcpStream, heard: Heard| {
        let note = |what: &str| {
            let mut heard = heard.lock().unwrap();
            *heard.entry((number, what.into())).or_default() += 1;
        };
        stream.set_nodelay(true).unwrap();
        note("connection");
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Some(host) = line.to_ascii_lowercase().strip_prefix("host: ") {
                note(host);
            }
            if line.is_empty() {
                std::thread::sleep(pause);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || serve(stream, heard));
        }
    });
    address
}

/// Three servers, of which the second is slow.
fn spec(model: LoadModel, heard: &Heard) -> LoadSpec {
    let slow = Duration::from_millis(8);
    let pauses = [Duration::ZERO, slow, Duration::ZERO];
    let addresses: Vec<_> = (0..)
        .zip(pauses)
        .map(|(number, pause)| listening(number, pause, heard))
        .collect();
    let mut spec = LoadSpec::new(addresses[0]);
    spec.requests[0].host = "host-0".into();
    spec.more_targets = (1..3)
        .map(|number| Target {
            address: addresses[number],
            host: format!("host-{number}"),
        })
        .collect();
    spec.model = model;
    spec.connections = 9;
    spec.window_ns = 600_000_000;
    spec
}

fn checked(spec: &LoadSpec) -> LoadResult {
    let result = run(spec, &mut |_| {}).unwrap();
    assert_eq!(result.errors.total(), 0, "{result:?}");
    assert_eq!(result.response.count(), result.offered, "{result:?}");
    result
}

/// A wrong host at a server would be an entry more.
fn counts(heard: &Heard, what: impl Fn(usize) -> String) -> Vec<u64> {
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 6, "{heard:?}");
    (0..3).map(|n| heard[&(n, what(n))]).collect()
}

#[test]
fn a_slow_target_gets_as_many_requests_in_an_open_loop() {
    while_the_machine_is_ours("how often a slow target is asked", || {
        let heard = Heard::default();
        let result = checked(&spec(LoadModel::open(120.0, Arrivals::Constant), &heard));
        let asked = counts(&heard, |number| format!("host-{number}"));
        assert_eq!(asked.iter().sum::<u64>(), result.offered);
        // Whoever is in turn is passed over only if all of its connections are busy.
        let (least, most) = (asked.iter().min(), asked.iter().max());
        assert!(most.unwrap() - least.unwrap() <= 2, "{asked:?}");
    });
}

#[test]
fn every_thread_has_its_share_of_every_target() {
    let heard = Heard::default();
    let mut spec = spec(LoadModel::closed(), &heard);
    // Four of one thread and five of the other: alone, both would begin with the first target.
    spec.threads = 2;
    spec.max_requests = Some(300);
    checked(&spec);
    assert_eq!(counts(&heard, |_| "connection".into()), [3, 3, 3]);
    let asked = counts(&heard, |number| format!("host-{number}"));
    assert!(asked.iter().all(|count| *count > 0), "{asked:?}");
}

#[test]
fn ended_connections_are_reopened_to_the_same_target() {
    let heard = Heard::default();
    let mut spec = spec(LoadModel::open(120.0, Arrivals::Constant), &heard);
    spec.requests_per_connection = Some(1);
    checked(&spec);
    let opened = counts(&heard, |_| "connection".into());
    assert_eq!(opened, counts(&heard, |number| format!("host-{number}")));
    assert!(opened.iter().all(|count| *count >= 20), "{opened:?}");
}

#[test]
fn over_http2_each_target_has_its_own_requests() {
    let app = |bytes: u32| {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut config = AppConfig::new("127.0.0.1:0".parse().unwrap());
            config.response_bytes = bytes;
            let ready = |address| sender.send(address).unwrap();
            serve(&config, ready, &AtomicBool::new(false)).unwrap();
        });
        receiver.recv().unwrap()
    };
    let mut spec = LoadSpec::new(app(10));
    spec.more_targets = vec![Target {
        address: app(10_000),
        host: "large".into(),
    }];
    spec.protocol = Protocol::Http2 { streams: 3 };
    spec.model = LoadModel::open(400.0, Arrivals::Constant);
    spec.connections = 2;
    spec.window_ns = 500_000_000;
    while_the_machine_is_ours("the share of each target over HTTP/2", || {
        let result = checked(&spec);
        let each = result.bytes_received as f64 / result.completed as f64;
        assert!((5_000.0..5_200.0).contains(&each), "half of each: {each}");
    });
}

#[test]
fn an_unreachable_target_is_named() {
    let heard = Heard::default();
    let mut spec = spec(LoadModel::closed(), &heard);
    let nobody: SocketAddr = "127.0.0.1:1".parse().unwrap();
    spec.more_targets[1].address = nobody;
    match run(&spec, &mut |_| {}) {
        Err(LoadError::Connect { target, .. }) => assert_eq!(target, nobody),
        other => panic!("{other:?}"),
    }
}
