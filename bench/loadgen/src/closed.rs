//! The floor of a closed loop: what the kernel takes, and as little as possible besides.

use std::net::SocketAddr;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::args::Args;
use crate::client::{Got, READ_BYTES, connect, histogram, report, request};
use crate::clock::{SECOND_NS, now_ns, pin, timespec};

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &[])?;
    let target: SocketAddr = args.first("the server's ADDRESS:PORT")?;
    let connections = args.or("-c", 64)?;
    let seconds: f64 = args.or("-z", 86_400.0)?;
    let requests: u64 = args.or("-n", u64::MAX)?;
    pin(args.get("--core")?)?;

    let request = request(target);
    let (set, mut all) = connect(
        target,
        connections,
        args.get::<String>("--congestion")?.as_deref(),
    )?;
    let mut latencies = histogram()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(64);
    let (mut sent, mut completed) = (0, 0);
    let begin_ns = now_ns();
    let end_ns = begin_ns + (seconds * SECOND_NS as f64) as u64;
    // So long an answer may take at the end.
    let patience_ns = 2 * SECOND_NS;
    for connection in all
        .iter_mut()
        .take(usize::try_from(requests).unwrap_or(usize::MAX))
    {
        connection.send(&request, now_ns())?;
        sent += 1;
    }
    while completed < sent {
        events.clear();
        match epoll::wait(
            &set,
            spare_capacity(&mut events),
            Some(&timespec(patience_ns)),
        ) {
            Ok(0) => return Err(format!("{} answers never came", sent - completed)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll: {e}")),
        }
        for event in &events {
            let connection = &mut all[event.data.u64() as usize];
            if connection.read(&mut buffer)? == Got::More {
                continue;
            }
            let now_ns = now_ns();
            latencies.saturating_record(now_ns - connection.since_ns);
            completed += 1;
            if now_ns < end_ns && sent < requests {
                connection.send(&request, now_ns)?;
                sent += 1;
            }
        }
    }
    report(completed, (now_ns() - begin_ns) as f64 / 1e9, &latencies);
    Ok(())
}
