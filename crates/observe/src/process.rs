//! One process.

use meshtax_model::trial::Memory;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::net::TcpState;
use procfs::process::Process;

use crate::ObserveError;
use crate::time::nanoseconds;

/// CPU that a process has used since it started, user and system, all threads, in nanoseconds.
///
/// # Errors
/// If there is no such process.
pub fn cpu_ns(pid: u32) -> Result<u64, ObserveError> {
    clock_getcpuclockid(Pid::from_raw(pid.cast_signed()))
        .and_then(clock_gettime)
        .map(|t| nanoseconds(&t))
        .map_err(|e| ObserveError::new(format!("the CPU clock of process {pid}"), e))
}

/// A process's resident memory.
///
/// # Errors
/// If there is no such process, or the kernel does not let us see it.
pub fn memory(pid: u32) -> Result<Memory, ObserveError> {
    let failed =
        |e: procfs::ProcError| ObserveError::new(format!("the memory of process {pid}"), e);
    let process = Process::new(pid.cast_signed()).map_err(failed)?;
    let status = process.status().map_err(failed)?;
    let rollup = process.smaps_rollup().map_err(failed)?;
    let pss_bytes = rollup
        .memory_map_rollup
        .0
        .first()
        .and_then(|map| map.extension.map.get("Pss").copied())
        .unwrap_or(0);
    Ok(Memory {
        anonymous_bytes: status.rssanon.unwrap_or(0) * 1024,
        file_bytes: status.rssfile.unwrap_or(0) * 1024,
        pss_bytes,
    })
}

/// Established TCP connections to a local port, in the network namespace of a process.
///
/// # Errors
/// If there is no such process.
pub fn established_connections(pid: u32, local_port: u16) -> Result<u32, ObserveError> {
    let failed =
        |e: procfs::ProcError| ObserveError::new(format!("the connections of process {pid}"), e);
    let process = Process::new(pid.cast_signed()).map_err(failed)?;
    established(&process, local_port).map_err(failed)
}

/// The same, in the network namespace of the calling thread.
///
/// # Errors
/// If `/proc` does not show them.
pub fn established_connections_here(local_port: u16) -> Result<u32, ObserveError> {
    const WHAT: &str = "the connections of this thread";
    // The library follows no links.
    let link = std::fs::read_link("/proc/thread-self").map_err(|e| ObserveError::new(WHAT, e))?;
    Process::new_with_root(std::path::Path::new("/proc").join(link))
        .and_then(|thread| established(&thread, local_port))
        .map_err(|e| ObserveError::new(WHAT, e))
}

fn established(process: &Process, local_port: u16) -> procfs::ProcResult<u32> {
    let entries = process.tcp()?;
    let count = entries
        .iter()
        .filter(|e| e.state == TcpState::Established && e.local_address.port() == local_port)
        .count();
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_this_process_grows_with_work_and_counts_threads_that_ended() {
        let pid = std::process::id();
        let before = cpu_ns(pid).unwrap();
        let spun = std::thread::spawn(|| {
            let start = std::time::Instant::now();
            let mut x = 1_u64;
            while start.elapsed().as_millis() < 30 {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            x
        });
        assert_ne!(spun.join().unwrap(), 0);
        // The thread has ended: a walk over task/* would find nothing of it any more.
        let used = cpu_ns(pid).unwrap() - before;
        assert!(used > 5_000_000, "{used} ns");
    }

    #[test]
    fn a_connection_is_seen_at_its_own_port_only() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(established_connections_here(port).unwrap(), 0);
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _accepted = listener.accept().unwrap();
        for port in [port, client.local_addr().unwrap().port()] {
            assert_eq!(established_connections_here(port).unwrap(), 1);
            assert_eq!(
                established_connections(std::process::id(), port).unwrap(),
                1
            );
        }
    }

    #[test]
    fn memory_of_this_process_is_plausible() {
        let before = memory(std::process::id()).unwrap();
        let held = vec![7_u8; 32 << 20];
        let after = memory(std::process::id()).unwrap();
        assert_eq!(held[31 << 20], 7);
        let grown = after.anonymous_bytes.saturating_sub(before.anonymous_bytes);
        assert!(grown > 30 << 20, "{grown}");
        assert!(after.file_bytes > 0 && after.pss_bytes > 0);
    }

    #[test]
    fn no_such_process_is_an_error() {
        // Above every kernel's largest pid_max.
        assert!(cpu_ns(4_194_305).is_err());
        assert!(memory(4_194_305).is_err());
    }
}
