//! Every model and every way of using connections, against the real application.

mod quiet;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use meshtax_app::{AppConfig, serve};
use meshtax_load::{Hooks, LoadModel, LoadSpec, Rate, Request, run, run_with};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;

use quiet::while_the_machine_is_ours;

fn app() -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        serve(
            &config,
            |a| sender.send(a).unwrap(),
            &AtomicBool::new(false),
        )
        .unwrap();
    });
    receiver.recv().unwrap()
}

/// Head line and arrival of each request.
type Notes = Arc<Mutex<Vec<(String, Instant)>>>;

/// A server that notes the head line and the instant of every request; responses after a pause.
fn noting(pause: Duration) -> (SocketAddr, Notes) {
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
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(first)) = lines.next() {
                    notes.lock().unwrap().push((first, Instant::now()));
                    while lines
                        .next()
                        .is_some_and(|line| line.is_ok_and(|l| !l.is_empty()))
                    {}
                    std::thread::sleep(pause);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                }
            });
        }
    });
    (address, notes)
}

fn spec(target: SocketAddr, model: LoadModel) -> LoadSpec {
    let mut spec = LoadSpec::new(target);
    spec.model = model;
    spec.seed = 5;
    spec.connections = 8;
    spec.window_ns = 500_000_000;
    spec
}

fn checked(spec: &LoadSpec) -> LoadResult {
    let r = run(spec, &mut |_| {}).unwrap();
    let answered: u64 = r.status.values().sum();
    assert_eq!(r.offered, answered + r.unanswered, "{r:?}");
    assert_eq!(r.errors.total(), 0, "{r:?}");
    for h in [&r.service, &r.send_lag, &r.first_byte] {
        assert_eq!(h.count(), r.response.count());
    }
    r
}

#[test]
fn one_request_per_connection_is_kept() {
    while_the_machine_is_ours("a connection for every request", || {
        for model in [
            LoadModel::closed(),
            LoadModel::open(1000.0, Arrivals::Poisson),
        ] {
            let mut spec = spec(app(), model);
            spec.requests_per_connection = Some(1);
            let r = checked(&spec);
            assert!(r.completed > 300, "{r:?}");
            assert!(r.connections_opened.abs_diff(r.offered) <= 8, "{r:?}");
            assert!(r.connect.count().abs_diff(r.offered) <= 8, "{r:?}");
            // The way to the server is in what the user waits for, and not in the service.
            assert!(r.response.mean_ns() > r.service.mean_ns(), "{r:?}");
        }
    });
}

#[test]
fn some_requests_per_connection_are_kept() {
    let mut spec = spec(app(), LoadModel::closed());
    spec.requests_per_connection = Some(10);
    spec.max_requests = Some(1000);
    let r = checked(&spec);
    assert_eq!(r.offered, 1000);
    // Eight of them may have been left with fewer.
    assert!((100..=108).contains(&r.connections_opened), "{r:?}");
}

#[test]
fn max_requests_sends_exactly_that_many_and_ends_the_window() {
    for threads in [1, 3] {
        let mut spec = spec(app(), LoadModel::closed());
        spec.threads = threads;
        spec.window_ns = 3600 * 1_000_000_000;
        spec.max_requests = Some(5001);
        let begin = Instant::now();
        let r = checked(&spec);
        let took_ns = begin.elapsed().as_nanos() as u64;
        assert_eq!((r.offered, r.completed, r.unanswered), (5001, 5001, 0));
        assert!(r.window_ns < took_ns, "{} {took_ns}", r.window_ns);
    }
}

#[test]
fn threads_keep_the_rate_and_share_the_connections() {
    let mut spec = spec(app(), LoadModel::open(2000.0, Arrivals::Constant));
    spec.threads = 4;
    let r = checked(&spec);
    assert!((998..=1002).contains(&r.offered), "{r:?}");
    assert_eq!(r.connections_opened, 8);
}

#[test]
fn a_replay_sends_at_its_times_and_ends_with_them() {
    while_the_machine_is_ours("a replay", || {
        let (target, notes) = noting(Duration::ZERO);
        let times_ms = [0_u64, 5, 5, 40, 100];
        let mut spec = spec(
            target,
            LoadModel::Replay {
                times_ns: times_ms.iter().map(|ms| ms * 1_000_000).collect(),
            },
        );
        spec.window_ns = 3600 * 1_000_000_000;
        let r = checked(&spec);
        assert_eq!(r.offered, 5);
        assert!((100_000_000..500_000_000).contains(&r.window_ns), "{r:?}");
        let mut seen: Vec<_> = notes.lock().unwrap().iter().map(|(_, at)| *at).collect();
        seen.sort_unstable();
        for (at, ms) in seen.iter().zip(times_ms) {
            let off = (at.duration_since(seen[0]).as_secs_f64() * 1e3 - ms as f64).abs();
            assert!(off < 20.0, "{ms} ms came {off} ms off");
        }
    });
}

#[test]
fn a_ramp_increases_the_rate() {
    while_the_machine_is_ours("a ramp", || {
        let rate = Rate::Linear {
            from_per_s: 100.0,
            to_per_s: 1900.0,
        };
        let mut spec = spec(
            app(),
            LoadModel::Open {
                rate,
                arrivals: Arrivals::Constant,
            },
        );
        spec.window_ns = 1_000_000_000;
        spec.interval_ns = Some(250_000_000);
        let r = checked(&spec);
        assert!((998..=1002).contains(&r.offered), "{r:?}");
        let sent: Vec<_> = r.intervals.iter().map(|i| i.sent).collect();
        // 325, 775, 1225 and 1675 per second in the middle of the quarters.
        for (found, expected) in sent.iter().zip([81_u64, 194, 306, 419]) {
            assert!(found.abs_diff(expected) <= 3, "{sent:?}");
        }
    });
}

#[test]
fn users_send_in_order_at_their_own_rates() {
    let (target, notes) = noting(Duration::ZERO);
    let model = LoadModel::Users {
        rate_per_s: 50.0,
        arrivals: Arrivals::Constant,
    };
    let mut spec = spec(target, model);
    spec.connections = 1;
    spec.requests = ["/a", "/b", "/c"]
        .map(|path| Request {
            path: path.into(),
            ..Request::get("x".into())
        })
        .to_vec();
    let r = checked(&spec);
    assert_eq!(r.offered, 25);
    let asked: String = notes
        .lock()
        .unwrap()
        .iter()
        .map(|(line, _)| line.as_bytes()[5] as char)
        .collect();
    assert!(asked.starts_with("abcabcabc"), "{asked}");
}

#[test]
fn a_slow_response_delays_a_user_and_counts_as_latency() {
    while_the_machine_is_ours("a slow answer", || {
        // 50 per second each, and 40 ms for a response: every second request is due before its
        // user is free.
        let (target, _) = noting(Duration::from_millis(40));
        let model = LoadModel::Users {
            rate_per_s: 50.0,
            arrivals: Arrivals::Constant,
        };
        let mut spec = spec(target, model);
        spec.connections = 2;
        let r = run(&spec, &mut |_| {}).unwrap();
        let answered: u64 = r.status.values().sum();
        assert_eq!((r.offered, r.unanswered), (50, 50 - answered));
        let p50_ms = |h: &meshtax_model::LatencyHistogram| h.quantile_ns(0.5).unwrap() / 1_000_000;
        assert!(p50_ms(&r.service) < 60, "{r:?}");
        assert!(p50_ms(&r.response) > 100, "{r:?}");
        // That was the server's doing, and the generator says so.
        assert!(
            r.generator_lag.quantile_ns(0.9).unwrap() < 20_000_000,
            "{r:?}"
        );
    });
}

#[test]
fn think_time_slows_a_closed_loop() {
    while_the_machine_is_ours("thinking", || {
        let mut spec = spec(
            app(),
            LoadModel::Closed {
                think_ns: 20_000_000,
            },
        );
        spec.connections = 4;
        spec.window_ns = 1_000_000_000;
        let r = checked(&spec);
        // Four at 50 per second at most.
        assert!((120..=204).contains(&r.offered), "{r:?}");
        // A response is awaited before the pause begins, so the pause is no latency.
        assert!(r.response.quantile_ns(0.5).unwrap() < 10_000_000, "{r:?}");
    });
}

#[test]
fn requests_are_mixed_by_weight() {
    let target = app();
    let mut spec = spec(target, LoadModel::closed());
    let get = Request::get("x".into());
    spec.requests = vec![
        Request {
            weight: 3,
            method: "HEAD".into(),
            ..get.clone()
        },
        get,
    ];
    spec.max_requests = Some(4000);
    let r = checked(&spec);
    // A quarter have the body of 1,024 bytes.
    let bodies = (r.bytes_received as f64 / 4000.0 - 1024.0 / 4.0) / 1024.0;
    assert!((0.0..0.2).contains(&bodies), "{bodies} {r:?}");
}

#[test]
fn a_missing_response_times_out() {
    while_the_machine_is_ours("a timeout", || {
        let (target, _) = noting(Duration::from_millis(300));
        let mut spec = spec(target, LoadModel::open(20.0, Arrivals::Constant));
        spec.connections = 16;
        spec.timeout_ns = Some(100_000_000);
        let r = run(&spec, &mut |_| {}).unwrap();
        assert_eq!((r.errors.timeout, r.offered), (10, 10), "{r:?}");
        assert_eq!((r.unanswered, r.completed), (0, 0));
    });
}

#[test]
fn intervals_add_up_to_the_whole() {
    let mut spec = spec(app(), LoadModel::open(2000.0, Arrivals::Poisson));
    spec.threads = 2;
    spec.warmup_ns = 100_000_000;
    spec.window_ns = 1_050_000_000;
    spec.cooldown_ns = 100_000_000;
    spec.interval_ns = Some(200_000_000);
    let shown = AtomicU64::new(0);
    let mut on_window = |_| {};
    let hooks = Hooks {
        on_progress: Some(&mut |progress| {
            shown.fetch_add(u64::from(progress.last.is_some()), Ordering::Relaxed);
        }),
        ..Hooks::new(&mut on_window)
    };
    let r = run_with(&spec, hooks).unwrap();
    let lengths: Vec<_> = r
        .intervals
        .iter()
        .map(|i| i.length_ns / 1_000_000)
        .collect();
    // A stall of the machine over a boundary makes one interval of two.
    assert_eq!(lengths.iter().sum::<u64>(), 1050);
    let (last, others) = lengths.split_last().unwrap();
    let are_whole = others.iter().all(|ms| ms % 200 == 0) && last % 200 == 50;
    assert!(are_whole, "{lengths:?}");
    let sum = |of: fn(&meshtax_model::trial::LoadInterval) -> u64| -> u64 {
        r.intervals.iter().map(of).sum()
    };
    assert_eq!(sum(|i| i.sent), r.offered);
    assert_eq!(sum(|i| i.responses), r.response.count());
    let mut merged = meshtax_model::HistogramSnapshot::default();
    for interval in &r.intervals {
        merged.merge(&interval.response);
    }
    assert_eq!(merged.expand(), r.response);
    assert!(shown.load(Ordering::Relaxed) >= 1);
}

#[test]
fn warm_up_and_cool_down_are_not_counted() {
    let (target, notes) = noting(Duration::ZERO);
    let mut spec = spec(target, LoadModel::open(1000.0, Arrivals::Constant));
    spec.warmup_ns = 200_000_000;
    spec.cooldown_ns = 300_000_000;
    let r = checked(&spec);
    assert!((499..=501).contains(&r.offered), "{r:?}");
    assert_eq!(r.response.count(), r.offered);
    let seen = notes.lock().unwrap().len();
    assert!((998..=1002).contains(&seen), "{seen}");
}
