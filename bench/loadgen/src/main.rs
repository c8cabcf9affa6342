//! What the benchmark of load generators needs besides the generators: two floors to compare with,
//! a server that records arrivals, the analysis of what it recorded, and the measuring of a process
//! from outside. `bench/loadgen/run` drives it; each part can be used by hand, too.

use std::process::ExitCode;

mod analyse;
mod args;
mod client;
mod clock;
mod closed;
mod measure;
mod open;
mod recorder;
mod ring;

const USAGE: &str = "\
loadgen-bench floor-closed ADDRESS [-c CONNECTIONS] [-z SECONDS] [-n REQUESTS] [--uring] [--core N]
    Closed loop, as thin as an honest program can be; over epoll, or over io_uring.
loadgen-bench floor-open ADDRESS -q RATE [-c CONNECTIONS] [-z SECONDS] [--core N]
    Open loop at a constant rate: sleeps until 50 us before each send, then spins.
loadgen-bench recorder [--listen ADDRESS] [--body BYTES] [--capacity N --out FILE] [--core N]
                       [--spin | --uring]
    HTTP/1.1 server that records when each request arrived (u64, little-endian, CLOCK_MONOTONIC ns).
    --spin looks for requests without sleeping; --uring is faster for many keep-alive connections.
    Ends on SIGTERM, SIGINT, or when standard input, if it is a pipe, closes.
loadgen-bench analyse FILE... --rate RATE [--poisson] [--trim SECONDS]
    How evenly the recorded arrivals came; several files are merged first.
loadgen-bench measure --report FILE [--core N] -- PROGRAM [ARGUMENTS...]
    Runs a program and writes the CPU time and peak memory that the kernel counted for it.

Results are a line of JSON on standard output.";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    let done = match command.as_str() {
        "floor-closed" => closed::run(&rest),
        "floor-open" => open::run(&rest),
        "recorder" => recorder::run(&rest),
        "analyse" => analyse::run(&rest),
        "measure" => return measure::run(&rest),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
