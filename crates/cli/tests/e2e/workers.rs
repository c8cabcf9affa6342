//! Several generators that offer one load: local processes, and workers on other machines.

use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Finished, Running, Scratch, alone, beside_others, finish, meshtax};

const USAGE: i32 = 2;
const NOTHING_MEASURED: i32 = 12;
const SECRET: &str = "correct horse battery staple";

/// A listening command, killed with the test, and its address.
struct Listening {
    _running: Running,
    address: String,
}

impl Listening {
    fn start(scratch: &Scratch, arguments: &[&str], secret: &str) -> Self {
        let mut command = meshtax(scratch, arguments);
        command.env("MESHTAX_WORKER_SECRET", secret);
        let mut running = Running::start(command);
        running.wait_until("its address", |it| it.stderr_text().contains("(Ctrl-C"));
        let text = running.stderr_text();
        let address = text
            .split([' ', '/'])
            .find(|word| word.starts_with("127.0.0.1:"))
            .unwrap_or_else(|| panic!("no address in {text}"));
        Self {
            address: address.to_owned(),
            _running: running,
        }
    }

    fn server(scratch: &Scratch) -> Self {
        Self::start(scratch, &["serve", "--listen", "127.0.0.1:0"], SECRET)
    }

    fn worker(scratch: &Scratch, secret: &str) -> Self {
        Self::start(scratch, &["worker", "--listen", "127.0.0.1:0"], secret)
    }
}

fn load(scratch: &Scratch, server: &Listening, workers: &str, more: &[&str]) -> Finished {
    let url = format!("http://{}/", server.address);
    let mut arguments = vec!["load", &url, "--workers", workers];
    arguments.extend_from_slice(more);
    let mut command = meshtax(scratch, &arguments);
    command.env("MESHTAX_WORKER_SECRET", SECRET);
    finish(command)
}

#[test]
fn processes_and_workers_form_one_load() {
    let _alone = alone();
    let scratch = Scratch::new();
    let server = Listening::server(&scratch);
    let (one, two) = (
        Listening::worker(&scratch, SECRET),
        Listening::worker(&scratch, SECRET),
    );
    let remote = format!("{},{}", one.address, two.address);
    for workers in ["3", &remote] {
        let rate = ["-q", "900", "--arrivals", "constant", "-z", "1s", "--json"];
        let finished = load(&scratch, &server, workers, &rate);
        let result = finished.expect_code(0).json()["result"].clone();
        let offered = result["offered"].as_u64().unwrap();
        assert!((899..=901).contains(&offered), "{workers}: {result}");
        assert_eq!(result["status"]["200"].as_u64(), Some(offered), "{workers}");
        assert_eq!(result["connections_opened"].as_u64(), Some(10), "{workers}");
        // The exact number, however it is divided.
        let finished = load(&scratch, &server, workers, &["-n", "1001", "--json"]);
        let completed = finished.expect_code(0).json()["result"]["completed"].as_u64();
        assert_eq!(completed, Some(1001), "{workers}");
    }
}

#[test]
fn interrupted_workers_report_partial_figures() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let server = Listening::server(&scratch);
    let url = format!("http://{}/", server.address);
    let arguments = [
        "load",
        &url,
        "--workers",
        "2",
        "-q",
        "500",
        "-z",
        "1h",
        "--json",
    ];
    let running = Running::start(meshtax(&scratch, &arguments));
    thread::sleep(Duration::from_secs(2));
    let pid = Pid::from_raw(i32::try_from(running.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let finished = running.finish(Duration::from_secs(10));
    let result = finished.expect_code(130).json()["result"].clone();
    assert!(result["completed"].as_u64().unwrap() > 100, "{result}");
}

#[test]
fn wrong_shared_secret_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let server = Listening::server(&scratch);
    let worker = Listening::worker(&scratch, "another secret of some length");
    let finished = load(&scratch, &server, &worker.address, &["-z", "1s"]);
    finished.expect_code(NOTHING_MEASURED);
    assert!(finished.stderr.contains("secret"), "{}", finished.stderr);
    // An unreachable worker is named with a fix.
    let finished = load(&scratch, &server, "127.0.0.1:1", &["-z", "1s"]);
    finished.expect_code(NOTHING_MEASURED);
    let text = &finished.stderr;
    assert!(
        text.contains("127.0.0.1:1") && text.contains("fix:"),
        "{text}"
    );
    let finished = load(&scratch, &server, "11", &["-z", "1s"]);
    finished.expect_code(USAGE);
    assert!(
        finished.stderr.contains("11 workers"),
        "{}",
        finished.stderr
    );
}
