//! The floor of an open loop: a constant rate, kept by sleeping and then spinning.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU64;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::args::Args;
use crate::client::{Got, READ_BYTES, connect, histogram, report, request};
use crate::clock::{SECOND_NS, now_ns, pin, timespec};

/// A sleep ends so long before the next send; what remains is spun.
const SPIN_NS: u64 = 50_000;

/// Sends between two looks at the sockets, when there is something to catch up with.
const SENDS_PER_LOOK: usize = 16;

/// Responses are awaited so long after the last send.
const PATIENCE_NS: u64 = 2 * SECOND_NS;

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &[])?;
    let target: SocketAddr = args.first("the server's ADDRESS:PORT")?;
    let connections = args.or("-c", 64)?;
    let rate: f64 = args.get("-q")?.ok_or("give the rate with -q")?;
    let seconds: f64 = args.or("-z", 10.0)?;
    pin(args.get("--core")?)?;
    let slack = NonZeroU64::new(1);
    rustix::thread::set_current_timer_slack(slack).map_err(|e| format!("timer slack: {e}"))?;

    let request = request(target);
    let (set, mut all) = connect(target, connections)?;
    // In turn, as the tools do: taking the last one again would carry all on a few connections,
    // and save the kernel an acknowledgement of its own for each of the others.
    let mut free: VecDeque<usize> = (0..connections).collect();
    let mut latencies = histogram()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut events = Vec::with_capacity(64);
    let total = (rate * seconds) as u64;
    let begin_ns = now_ns() + 2_000_000;
    // Multiplied, not added: the millionth instant is as exact as the first.
    let intended_ns = |index: u64| begin_ns + (index as f64 * 1e9 / rate) as u64;
    let give_up_ns = intended_ns(total) + PATIENCE_NS;
    let (mut sent, mut completed) = (0, 0);
    let mut now = now_ns();
    while completed < total {
        let mut sends = 0;
        while sent < total && intended_ns(sent) <= now && sends < SENDS_PER_LOOK {
            let Some(index) = free.pop_front() else { break };
            all[index].send(&request, intended_ns(sent))?;
            sent += 1;
            sends += 1;
            now = now_ns();
        }
        if now >= give_up_ns {
            return Err(format!("{} answers never came", sent - completed));
        }
        let until_ns = if sent < total && !free.is_empty() {
            intended_ns(sent).saturating_sub(SPIN_NS)
        } else {
            give_up_ns
        };
        let wait = timespec(until_ns.saturating_sub(now));
        events.clear();
        match epoll::wait(&set, spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("epoll: {e}")),
        }
        for event in &events {
            let index = event.data.u64() as usize;
            let connection = &mut all[index];
            if connection.read(&mut buffer)? == Got::Answer {
                latencies.saturating_record(now_ns().saturating_sub(connection.since_ns));
                completed += 1;
                free.push_back(index);
            }
        }
        now = now_ns();
    }
    report(completed, (now - begin_ns) as f64 / 1e9, &latencies);
    Ok(())
}
