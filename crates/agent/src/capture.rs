//! Records the TCP segments that pass links, one thread for each link.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

use crate::captured::{Captured, Segment};
use crate::packet_socket::PacketSocket;

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
        let stop = Arc::new(AtomicBool::new(false));
        let record = |socket: PacketSocket| {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || record(&socket, &stopped))
        };
        let threads = sockets.into_iter().map(record).collect();
        Self { stop, threads }
    }

    /// Reads the frames that are still queued, and stops.
    ///
    /// # Errors
    /// If a socket could not be read.
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

fn record(socket: &PacketSocket, stop: &AtomicBool) -> io::Result<Captured> {
    // With segmentation offload a frame on a virtual link holds up to 64 KiB.
    let mut buffer = vec![0_u8; 1 << 17];
    let mut captured = Captured::default();
    let mut stopping_since = None::<Instant>;
    loop {
        match socket.next(&mut buffer, 10)? {
            Some(frame) => captured.segments.extend(segment(frame)),
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

fn segment(frame: &[u8]) -> Option<Segment> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
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
