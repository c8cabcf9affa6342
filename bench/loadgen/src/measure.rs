//! Runs a program and writes what the kernel counted for it.
//!
//! A process of its own, and a small one, because a program's peak memory is never less than that
//! of whoever started it: `exec` hands the mark on.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};

use nix::sys::resource::{UsageWho, getrusage};

use crate::args::Args;
use crate::clock::{now_ns, pin};

pub(crate) fn run(words: &[String]) -> ExitCode {
    match measure(words) {
        Ok(code) => ExitCode::from(code),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(125)
        }
    }
}

fn measure(words: &[String]) -> Result<u8, String> {
    let split = words.iter().position(|word| word == "--");
    let split = split.ok_or("give the program after --")?;
    let args = Args::parse(&words[..split], &[])?;
    let path: String = args.get("--report")?.ok_or("give --report FILE")?;
    let program = words.get(split + 1).ok_or("give the program after --")?;
    pin(args.get("--core")?)?;

    let mut report = File::create(&path).map_err(|e| format!("{path}: {e}"))?;
    let begin_ns = now_ns();
    let mut child = Command::new(program)
        .args(&words[split + 2..])
        .spawn()
        .map_err(|e| format!("{program}: {e}"))?;
    // At once: whoever waits for it may want to send a signal.
    writeln!(report, "{{\"pid\":{}}}", child.id()).map_err(|e| format!("{path}: {e}"))?;
    let status = child.wait().map_err(|e| format!("{program}: {e}"))?;
    let wall_ns = now_ns() - begin_ns;
    // This process has had no other child.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| e.to_string())?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    writeln!(
        report,
        "{{\"exit\":{},\"wall_s\":{},\"user_s\":{},\"system_s\":{},\"peak_kib\":{},\
         \"switches\":{},\"preempted\":{}}}",
        code(status),
        wall_ns as f64 / 1e9,
        seconds(usage.user_time()),
        seconds(usage.system_time()),
        usage.max_rss(),
        usage.voluntary_context_switches(),
        usage.involuntary_context_switches()
    )
    .map_err(|e| format!("{path}: {e}"))?;
    Ok(u8::try_from(code(status)).unwrap_or(125))
}

fn code(status: std::process::ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
