//! Sockets and links in the network namespace of a process.

use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use nix::sched::{CloneFlags, setns};
use procfs::ProcError;
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::Process;

use crate::ObserveError;
use crate::sock_diag::{self, StateFlags, TcpSocket};

/// Established TCP connections to a local port, in the network namespace of a process.
///
/// # Errors
/// If there is no such process.
pub fn established_connections(pid: u32, local_port: u16) -> Result<u32, ObserveError> {
    let found = sockets(pid, &StateFlags::ESTABLISHED)
        .map_err(|e| ObserveError::new(format!("the connections of process {pid}"), e))?;
    Ok(count_at(&found, local_port))
}

/// The same, in the network namespace of the calling thread.
///
/// # Errors
/// If the kernel does not show them.
pub fn established_connections_here(local_port: u16) -> Result<u32, ObserveError> {
    let found = sockets_here(&StateFlags::ESTABLISHED)
        .map_err(|e| ObserveError::new("the connections of this thread", e))?;
    Ok(count_at(&found, local_port))
}

fn count_at(sockets: &[TcpSocket], local_port: u16) -> u32 {
    let there = sockets.iter().filter(|s| s.local_port == local_port);
    u32::try_from(there.count()).unwrap_or(u32::MAX)
}

/// The listening TCP sockets at a port in the network namespace of a process, IPv4 and IPv6, as
/// ascending inode numbers; empty if none listens.
///
/// A socket keeps its inode for life, and the next one gets another: if a server started anew
/// between two looks, or opened its port again, the lists differ. Several sockets listen at one port
/// if each is bound to its own address, or all share it (`SO_REUSEPORT`); the owning
/// process is not reported.
///
/// # Errors
/// If there is no such process, or the kernel does not show its sockets.
pub fn listening_sockets(pid: u32, port: u16) -> Result<Vec<u64>, ObserveError> {
    let found = sockets(pid, &StateFlags::LISTEN)
        .map_err(|e| ObserveError::new(format!("the sockets of process {pid}"), e))?;
    let there = found.iter().filter(|socket| socket.local_port == port);
    let mut inodes: Vec<u64> = there.map(|socket| socket.inode).collect();
    inodes.sort_unstable();
    Ok(inodes)
}

/// The TCP sockets in these states of a process's network namespace, which a thread enters if it is another one.
fn sockets(pid: u32, states: &StateFlags) -> io::Result<Vec<TcpSocket>> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    if is_own(&namespace)? {
        return sockets_here(states);
    }
    let enter = || {
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        sock_diag::tcp_sockets(states)
    };
    let entered = thread::scope(|scope| scope.spawn(enter).join());
    match entered {
        Ok(Ok(found)) => Ok(found),
        // Entering needs privileges, which reading does not.
        _ => sockets_of_proc(&Path::new("/proc").join(pid.to_string()), states),
    }
}

/// Whether this is the network namespace of the calling thread.
fn is_own(namespace: &File) -> io::Result<bool> {
    let own = std::fs::metadata("/proc/thread-self/ns/net")?;
    let other = namespace.metadata()?;
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

fn sockets_here(states: &StateFlags) -> io::Result<Vec<TcpSocket>> {
    sock_diag::tcp_sockets(states).or_else(|_| {
        // The library follows no links.
        let link = std::fs::read_link("/proc/thread-self")?;
        sockets_of_proc(&Path::new("/proc").join(link), states)
    })
}

/// From `/proc`, for kernels without `sock_diag` (gVisor's): 25 times slower.
fn sockets_of_proc(process: &Path, states: &StateFlags) -> io::Result<Vec<TcpSocket>> {
    let process = Process::new_with_root(process.to_owned()).map_err(io::Error::other)?;
    let mut entries = process.tcp().map_err(io::Error::other)?;
    match process.tcp6() {
        Ok(more) => entries.extend(more),
        // A kernel without IPv6.
        Err(ProcError::NotFound(_)) => {}
        Err(e) => return Err(io::Error::other(e)),
    }
    let is_wanted = |entry: &&TcpNetEntry| match entry.state {
        TcpState::Established => states.contains(StateFlags::ESTABLISHED),
        TcpState::Listen => states.contains(StateFlags::LISTEN),
        _ => false,
    };
    let found = entries.iter().filter(is_wanted).map(|entry| TcpSocket {
        local_port: entry.local_address.port(),
        inode: entry.inode,
    });
    Ok(found.collect())
}

/// Bytes that passed the links of a network namespace since these were made, or between two readings.
///
/// As `/proc/PID/net/dev` counts them: with the headers of Ethernet, IP and TCP, but a large frame
/// that the kernel passes over a virtual link in one piece (segmentation offload) counts one set of
/// headers, where a wire would carry one for every 1448 bytes or so. The loopback `lo` is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// Received bytes.
    pub received_bytes: u64,
    /// Sent bytes.
    pub sent_bytes: u64,
}

impl LinkReading {
    /// All links but `lo`, in the network namespace of a process.
    ///
    /// # Errors
    /// If there is no such process, or what `/proc` shows is of another form.
    pub fn of(pid: u32) -> Result<Self, ObserveError> {
        let what = || format!("the links of process {pid}");
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev"))
            .map_err(|e| ObserveError::new(what(), e))?;
        Self::parse(&text)
            .ok_or_else(|| ObserveError::new(what(), io::Error::from(io::ErrorKind::InvalidData)))
    }

    /// What passed between an earlier reading and this one; nothing if a link was taken away since
    /// and took more with it.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            received_bytes: self.received_bytes.saturating_sub(earlier.received_bytes),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
        }
    }

    /// Two lines of headings, then `name: ` and 16 numbers: received first, sent ninth.
    fn parse(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        for line in text.lines().skip(2) {
            // The name of an alias has a colon itself.
            let (name, numbers) = line.rsplit_once(':')?;
            let mut numbers = numbers.split_ascii_whitespace();
            let link = Self {
                received_bytes: numbers.next()?.parse().ok()?,
                sent_bytes: numbers.nth(7)?.parse().ok()?,
            };
            if name.trim() != "lo" {
                sum += link;
            }
        }
        Some(sum)
    }
}

impl AddAssign for LinkReading {
    fn add_assign(&mut self, other: Self) {
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_is_matched_by_its_port_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(established_connections_here(port).unwrap(), 0);
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
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
    fn connection_from_ipv4_to_a_server_at_an_ipv6_address_is_counted() {
        // Without IPv6 there is no such server.
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            return;
        };
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _accepted = listener.accept().unwrap();
        assert_eq!(established_connections_here(port).unwrap(), 1);
    }

    #[test]
    fn proc_shows_the_same_sockets_as_sock_diag() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _accepted = listener.accept().unwrap();
        let at_port = |sockets: Vec<TcpSocket>| -> Vec<TcpSocket> {
            let there = sockets.into_iter().filter(|s| s.local_port == port);
            there.collect()
        };
        for states in [StateFlags::LISTEN, StateFlags::ESTABLISHED] {
            let fast = at_port(sock_diag::tcp_sockets(&states).unwrap());
            let slow = at_port(sockets_of_proc(Path::new("/proc/self"), &states).unwrap());
            assert_eq!(fast.len(), 1, "{states:?}");
            assert_eq!(fast, slow);
        }
    }

    #[test]
    fn reopened_listening_socket_has_another_id() {
        let pid = std::process::id();
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let before = listening_sockets(pid, port).unwrap();
        assert_eq!(before.len(), 1);
        assert_eq!(listening_sockets(pid, port).unwrap(), before);
        // A second address at the same port, and another family where there is one.
        let second = TcpListener::bind(("127.0.0.2", port)).unwrap();
        let third = TcpListener::bind(("::1", port)).ok();
        let both = listening_sockets(pid, port).unwrap();
        assert_eq!(both.len(), 2 + usize::from(third.is_some()));
        assert!(both.is_sorted() && both.contains(&before[0]));
        drop((first, second, third));
        assert_eq!(listening_sockets(pid, port).unwrap(), []);
        let _again = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let after = listening_sockets(pid, port).unwrap();
        assert_eq!(after.len(), 1);
        assert_ne!(after, before);
    }

    const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 5000    50    0    0    0     0          0         0   5000     50    0    0    0     0       0          0
  eth0: 1200    12    0    1    0     0          0         0   3400     20    0    0    0     0       0          0
eth0:1:   30     1    0    0    0     0          0         0     40      1    0    0    0     0       0          0
";

    #[test]
    fn links_are_summed_without_loopback() {
        let expected = LinkReading {
            received_bytes: 1230,
            sent_bytes: 3440,
        };
        assert_eq!(LinkReading::parse(DEV), Some(expected));
        let later = LinkReading::parse(&DEV.replace(" 3400 ", " 4400 ")).unwrap();
        let passed = later.since(&expected);
        assert_eq!((passed.received_bytes, passed.sent_bytes), (0, 1000));
        assert_eq!(expected.since(&later).sent_bytes, 0);
    }

    #[test]
    fn malformed_links_are_an_error_and_no_links_are_zero_bytes() {
        assert_eq!(LinkReading::parse(""), Some(LinkReading::default()));
        assert_eq!(LinkReading::parse("a\nb\n eth0: 1 2 3\n"), None);
        assert_eq!(LinkReading::parse("a\nb\n eth0\n"), None);
        assert_eq!(LinkReading::parse(&DEV.replace("1200", "-3")), None);
    }

    #[test]
    fn links_of_this_process_can_be_read() {
        let before = LinkReading::of(std::process::id()).unwrap();
        let after = LinkReading::of(std::process::id()).unwrap();
        assert!(after.received_bytes >= before.received_bytes);
        assert!(LinkReading::of(4_194_305).is_err());
        assert!(listening_sockets(4_194_305, 80).is_err());
    }
}
