//! Records the TCP segments that pass links, one thread for each link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::captured::{Captured, Segment};
use crate::packet_socket::PacketSocket;

/// The memory that the segments of a capture may take, on all its links together. Probes send a few hundred requests: this
/// is a hundred times what they need with responses of the usual size.
const MOST_BYTES: usize = 256 << 20;

/// More passed the links than a capture may hold: it was given up, since absence from a part of it proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {} MiB passed the captured links while the probes ran: use smaller responses, or fewer replicas",
    .most_bytes >> 20
)]
pub struct CaptureTooLarge {
    /// What it may hold.
    pub most_bytes: usize,
}

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    stop: Arc<AtomicBool>,
    /// One for each link.
    threads: Vec<JoinHandle<io::Result<Captured>>>,
}

impl Capture {
    /// Starts recording all links together.
    #[must_use]
    pub fn start(sockets: Vec<PacketSocket>) -> Self {
        Self::within(sockets, MOST_BYTES)
    }

    fn within(sockets: Vec<PacketSocket>, most_bytes: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let room = Arc::new(Room {
            most_bytes,
            taken: AtomicUsize::new(0),
        });
        let record = |socket: PacketSocket| {
            let (stopped, room) = (Arc::clone(&stop), Arc::clone(&room));
            thread::spawn(move || record(&socket, &stopped, &room))
        };
        let threads = sockets.into_iter().map(record).collect();
        Self { stop, threads }
    }

    /// Reads the packets that are still queued, and stops.
    ///
    /// # Errors
    /// If a socket could not be read, or with [`CaptureTooLarge`] within.
    pub fn finish(self) -> io::Result<Captured> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Captured::default();
        for thread in self.threads {
            let panicked = |_| Err(io::Error::other("the capture thread panicked"));
            let link = thread.join().unwrap_or_else(panicked)?;
            // Each connection is on one link: the order of the links does not matter.
            all.segments.extend(link.segments);
            all.dropped += link.dropped;
        }
        Ok(all)
    }
}

/// The memory of a capture.
struct Room {
    most_bytes: usize,
    taken: AtomicUsize,
}

impl Room {
    fn take(&self, segment: &Segment) -> io::Result<()> {
        let bytes = size_of::<Segment>() + segment.payload.len();
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        match before.saturating_add(bytes) <= self.most_bytes {
            true => Ok(()),
            false => Err(io::Error::other(CaptureTooLarge {
                most_bytes: self.most_bytes,
            })),
        }
    }
}

fn record(socket: &PacketSocket, stop: &AtomicBool, room: &Room) -> io::Result<Captured> {
    // With segmentation offload a packet on a virtual link holds up to 64 KiB.
    let mut buffer = vec![0_u8; 1 << 17];
    let mut captured = Captured::default();
    let mut stopping_since = None::<Instant>;
    loop {
        match socket.next(&mut buffer, 10)? {
            Some(packet) => {
                if let Some(segment) = segment(packet) {
                    room.take(&segment)?;
                    captured.segments.push(segment);
                }
            }
            None if stop.load(Ordering::Relaxed) => break,
            None => {}
        }
        // A busy link must not keep the capture running.
        if stop.load(Ordering::Relaxed) {
            let since = *stopping_since.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_millis(500) {
                break;
            }
        }
    }
    captured.dropped = socket.dropped()?;
    Ok(captured)
}

fn segment(packet: &[u8]) -> Option<Segment> {
    let packet = SlicedPacket::from_ip(packet).ok()?;
    let NetSlice::Ipv4(ip) = packet.net? else {
        return None;
    };
    let TransportSlice::Tcp(tcp) = packet.transport? else {
        return None;
    };
    let header = ip.header();
    Some(Segment {
        from: (header.source_addr(), tcp.source_port()),
        to: (header.destination_addr(), tcp.destination_port()),
        sequence: tcp.sequence_number(),
        syn: tcp.syn(),
        payload: tcp.payload().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsRawFd as _;

    use nix::net::if_::if_nametoindex;
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
    };

    use super::*;
    use crate::packet_filter::PacketFilter;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);
    const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 3);

    /// On loopback; `None`, visibly: without root.
    fn on_loopback(filter: &PacketFilter) -> Option<PacketSocket> {
        let loopback = if_nametoindex("lo").unwrap();
        match PacketSocket::filtered(loopback, filter) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let _ = writeln!(io::stderr(), "SKIPPED: a packet socket needs CAP_NET_RAW");
                None
            }
            opened => Some(opened.unwrap()),
        }
    }

    /// Sends a text over a connection between these addresses.
    fn send(from: Ipv4Addr, to: Ipv4Addr, text: &[u8]) {
        let server = TcpListener::bind((to, 0)).unwrap();
        let SocketAddr::V4(at) = server.local_addr().unwrap() else {
            unreachable!("it was bound to an IPv4 address");
        };
        let client = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        let any_port = SockaddrIn::from(SocketAddrV4::new(from, 0));
        bind(client.as_raw_fd(), &any_port).unwrap();
        connect(client.as_raw_fd(), &SockaddrIn::from(at)).unwrap();
        let mut client = TcpStream::from(client);
        let (mut accepted, _) = server.accept().unwrap();
        client.write_all(text).unwrap();
        drop(client);
        let mut read = Vec::new();
        accepted.read_to_end(&mut read).unwrap();
        assert_eq!(read, text);
    }

    #[test]
    fn kernel_passes_only_tcp_between_the_addresses_of_the_filter() {
        let Some(socket) = on_loopback(&PacketFilter::between(&[CLIENT, SERVER])) else {
            return;
        };
        let udp = UdpSocket::bind((CLIENT, 0)).unwrap();
        let discarding = UdpSocket::bind((SERVER, 0)).unwrap();
        udp.send_to(b"datagram", discarding.local_addr().unwrap())
            .unwrap();
        send(STRANGER, SERVER, b"of a stranger");
        send(CLIENT, SERVER, b"canary");
        send(SERVER, STRANGER, b"to a stranger");
        // Not by way of `Capture`, which sees only what it can parse.
        let mut buffer = vec![0_u8; 1 << 17];
        let mut payloads = Vec::new();
        while let Some(packet) = socket.next(&mut buffer, 50).unwrap() {
            let segment = segment(packet).expect("nothing but TCP");
            let ends = [segment.from.0, segment.to.0];
            assert!(ends == [CLIENT, SERVER] || ends == [SERVER, CLIENT]);
            payloads.push(segment.payload);
        }
        assert!(payloads.contains(&b"canary".to_vec()));
        assert_eq!(socket.dropped().unwrap(), 0);
    }

    #[test]
    fn packets_that_were_not_read_in_time_are_counted() {
        let Some(socket) = on_loopback(&PacketFilter::between(&[CLIENT, SERVER])) else {
            return;
        };
        setsockopt(&socket, sockopt::RcvBuf, &1).unwrap();
        send(CLIENT, SERVER, &[7; 100_000]);
        let captured = Capture::start(vec![socket]).finish().unwrap();
        assert!(captured.dropped > 0, "{captured:?}");
    }

    #[test]
    fn capture_that_exceeds_its_memory_is_given_up_as_too_large() {
        let Some(socket) = on_loopback(&PacketFilter::between(&[CLIENT, SERVER])) else {
            return;
        };
        let capture = Capture::within(vec![socket], 50_000);
        send(CLIENT, SERVER, &[7; 100_000]);
        let error = capture.finish().unwrap_err();
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        let most_bytes = 50_000;
        assert_eq!(cause, Some(&CaptureTooLarge { most_bytes }), "{error}");
    }
}
