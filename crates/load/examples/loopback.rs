//! Measures generator and application against each other on loopback: the application on
//! core 1, the generator on core 0.
//!
//! `cargo run --release -p meshtax-load --example loopback`
#![expect(clippy::print_stdout, reason = "an example that prints its figures")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use meshtax_app::{AppConfig, AppStats, STATS_PATH, serve};
use meshtax_load::{LoadModel, LoadSpec, run};
use meshtax_model::LatencyHistogram;
use meshtax_model::experiment::Arrivals;

fn main() {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        config.cores = Some(vec![1]);
        let task = std::fs::read_link("/proc/thread-self").unwrap();
        let ready = |address| sender.send((address, task)).unwrap();
        serve(&config, ready, &AtomicBool::new(false)).unwrap();
    });
    let (address, task) = receiver.recv().unwrap();
    let app = App {
        address,
        schedstat: std::path::Path::new("/proc").join(task).join("schedstat"),
    };
    let mut spec = LoadSpec::new(address);
    spec.cores = vec![0];
    spec.warmup_ns = 200_000_000;
    spec.window_ns = 2_000_000_000;
    let open = LoadModel::open;
    for round in 0..3 {
        for (name, connections, model, spin) in [
            ("closed, 64", 64, LoadModel::closed(), true),
            ("closed, 1", 1, LoadModel::closed(), true),
            ("poisson 1,000/s", 8, open(1e3, Arrivals::Poisson), true),
            (
                "poisson 1,000/s, no spin",
                8,
                open(1e3, Arrivals::Poisson),
                false,
            ),
            ("constant 10,000/s", 64, open(1e4, Arrivals::Constant), true),
            ("poisson 10,000/s", 64, open(1e4, Arrivals::Poisson), true),
        ] {
            spec.connections = connections;
            spec.model = model;
            spec.spin = spin;
            print!("{round} {name:<25} ");
            let before = app.reading();
            measure(&spec);
            let after = app.reading();
            let cpu_ns = (after.0 - before.0) as f64;
            println!(
                "  app {:.2} us/req",
                cpu_ns / 1e3 / (after.1 - before.1) as f64
            );
        }
    }
}

/// The application's thread, as the kernel and it itself account for it.
struct App {
    address: SocketAddr,
    schedstat: std::path::PathBuf,
}

impl App {
    /// CPU in nanoseconds, and requests, since its start.
    fn reading(&self) -> (u64, u64) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let request = format!("GET {STATS_PATH} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let stats: AppStats = serde_json::from_str(body).unwrap();
        let cpu = std::fs::read_to_string(&self.schedstat).unwrap();
        let cpu_ns = cpu.split(' ').next().unwrap().parse().unwrap();
        (cpu_ns, stats.requests)
    }
}

fn measure(spec: &LoadSpec) {
    let r = run(spec, &mut |_| {}).unwrap();
    let us = |h: &LatencyHistogram, q| h.quantile_ns(q).unwrap_or(0) as f64 / 1e3;
    print!(
        "{:>7.0}/s  response p50 {:>6.1} p99 {:>7.1} us  lag p50 {:>5.1} p99 {:>6.1} us  queued {}  \
         cpu {:.2} us/req  busy {:.2}  longest {:.0} us  {}",
        r.achieved_per_s(),
        us(&r.response, 0.5),
        us(&r.response, 0.99),
        us(&r.generator_lag, 0.5),
        us(&r.generator_lag, 0.99),
        r.queued,
        r.audit.cpu_ns as f64 / 1e3 / r.completed as f64,
        r.audit.busy_share,
        r.audit.longest_loop_ns as f64 / 1e3,
        r.audit
            .generator_bound
            .as_ref()
            .map_or_else(String::new, |bound| format!("{bound:?}"))
    );
}
