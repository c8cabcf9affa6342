//! What passes the link between the nodes while the probes run, and what it proves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use meshtax_model::evidence::{Handshake, WireEvidence};

use super::packet_socket::PacketSocket;
use crate::tls_wire::server_hello;

/// One TCP segment as it passed.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) from: (Ipv4Addr, u16),
    pub(crate) to: (Ipv4Addr, u16),
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) payload: Vec<u8>,
}

/// All segments of a capture.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) segments: Vec<Segment>,
    pub(crate) dropped: u64,
}

/// A capture that is under way.
#[derive(Debug)]
pub(crate) struct Capture {
    stop: Arc<AtomicBool>,
    /// One for each link.
    threads: Vec<JoinHandle<io::Result<Captured>>>,
}

impl Capture {
    pub(crate) fn start(sockets: Vec<PacketSocket>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let record = |socket: PacketSocket| {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || record(&socket, &stopped))
        };
        let threads = sockets.into_iter().map(record).collect();
        Self { stop, threads }
    }

    /// Reads what is still queued, and ends.
    pub(crate) fn finish(self) -> io::Result<Captured> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Captured::default();
        for thread in self.threads {
            let panicked = |_| Err(io::Error::other("the capture thread panicked"));
            let of_link = thread.join().unwrap_or_else(panicked)?;
            // A connection is on one link: the order of links is none of segments.
            all.segments.extend(of_link.segments);
            all.dropped += of_link.dropped;
        }
        Ok(all)
    }
}

fn record(socket: &PacketSocket, stop: &AtomicBool) -> io::Result<Captured> {
    // With segmentation offload a frame on a virtual link holds up to 64 KiB.
    let mut buffer = vec![0_u8; 1 << 17];
    let mut captured = Captured::default();
    let mut last = None::<Instant>;
    loop {
        match socket.next(&mut buffer, 10)? {
            Some(frame) => captured.segments.extend(segment(frame)),
            None if stop.load(Ordering::Relaxed) => break,
            None => {}
        }
        // A link that never falls silent must not keep the capture going.
        if stop.load(Ordering::Relaxed) {
            let since = *last.get_or_insert_with(Instant::now);
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

/// What is captured on the links of pods by which some traffic passes that does not cross the nodes.
#[derive(Debug)]
pub(crate) struct OfPods<T> {
    /// `None`: there is no waypoint.
    pub(crate) waypoint: Option<T>,
    /// `None`: there is no gateway.
    pub(crate) gateway: Option<T>,
}

impl<T> Default for OfPods<T> {
    fn default() -> Self {
        Self {
            waypoint: None,
            gateway: None,
        }
    }
}

impl Captured {
    /// Only what goes to this address and port, or comes from there.
    pub(crate) fn at(&self, server: (Ipv4Addr, u16)) -> Self {
        let segments = self.segments.iter();
        let of_server = segments.filter(|s| s.from == server || s.to == server);
        Self {
            segments: of_server.cloned().collect(),
            dropped: self.dropped,
        }
    }

    /// What the segments between a client's pod and any of the servers' show.
    pub(crate) fn between(
        &self,
        client: Ipv4Addr,
        servers: &[Ipv4Addr],
        canary: &[u8],
    ) -> WireEvidence {
        let mut evidence = WireEvidence {
            dropped: self.dropped,
            ..WireEvidence::default()
        };
        let mut ports = BTreeSet::new();
        let mut connections = BTreeSet::new();
        let mut streams: BTreeMap<StreamOf, Stream> = BTreeMap::new();
        for segment in &self.segments {
            let to_server = segment.from.0 == client && servers.contains(&segment.to.0);
            let to_client = servers.contains(&segment.from.0) && segment.to.0 == client;
            if !to_server && !to_client {
                continue;
            }
            let (near, far) = if to_server {
                (segment.from, segment.to)
            } else {
                (segment.to, segment.from)
            };
            ports.insert(far.1);
            connections.insert((near.1, far));
            let stream = streams.entry((to_server, near.1, far)).or_default();
            stream.add(segment);
            if segment.payload.is_empty() {
                continue;
            }
            let (frames, bytes) = if to_server {
                (
                    &mut evidence.frames_to_server,
                    &mut evidence.bytes_to_server,
                )
            } else {
                (
                    &mut evidence.frames_to_client,
                    &mut evidence.bytes_to_client,
                )
            };
            *frames += 1;
            *bytes += segment.payload.len() as u64;
        }
        evidence.ports = ports.into_iter().collect();
        evidence.connections = connections.len() as u32;
        judge_streams(&streams, canary, &mut evidence);
        evidence
    }
}

/// A direction of a connection: whether to the server, from which port, and with which server. To different servers
/// the kernel gives one port to several connections.
type StreamOf = (bool, u16, (Ipv4Addr, u16));

fn judge_streams(streams: &BTreeMap<StreamOf, Stream>, canary: &[u8], evidence: &mut WireEvidence) {
    let mut handshakes: Vec<Handshake> = Vec::new();
    for ((to_server, ..), stream) in streams {
        let bytes = stream.assemble();
        if contains(&bytes, canary) {
            if *to_server {
                evidence.canary_to_server = true;
            } else {
                evidence.canary_to_client = true;
            }
        }
        if *to_server {
            evidence.http_to_server |= begins_with_method(&bytes);
        } else {
            evidence.http_to_client |= bytes.starts_with(b"HTTP/1.");
        }
        if !to_server
            && let Some(handshake) = server_hello(&bytes)
            && !handshakes.contains(&handshake)
        {
            handshakes.push(handshake);
        }
    }
    evidence.handshakes = handshakes;
}

/// One direction of one connection, put in order.
#[derive(Debug, Default)]
struct Stream {
    first: Option<u32>,
    parts: BTreeMap<u32, Vec<u8>>,
}

impl Stream {
    fn add(&mut self, segment: &Segment) {
        // A SYN takes a place in the sequence; the data begin after it.
        let start = segment.sequence.wrapping_add(u32::from(segment.syn));
        let first = *self.first.get_or_insert(start);
        if !segment.payload.is_empty() {
            self.parts
                .entry(start.wrapping_sub(first))
                .or_insert_with(|| segment.payload.clone());
        }
    }

    /// The bytes in order; a gap is skipped (a missing piece may hide a canary, but drops are
    /// counted apart, and a retransmission that was seen fills it).
    fn assemble(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut reached = 0_u32;
        for (offset, part) in &self.parts {
            let overlap = reached.saturating_sub(*offset) as usize;
            if let Some(fresh) = part.get(overlap..) {
                bytes.extend_from_slice(fresh);
            }
            reached = reached.max(offset.saturating_add(part.len() as u32));
        }
        bytes
    }
}

fn begins_with_method(bytes: &[u8]) -> bool {
    [&b"GET "[..], b"POST "]
        .iter()
        .any(|method| bytes.starts_with(method))
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty()
        && haystack
            .windows(needle.len())
            .any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn to_server(sequence: u32, payload: &[u8]) -> Segment {
        Segment {
            from: (CLIENT, 4000),
            to: (SERVER, 8080),
            sequence,
            syn: false,
            payload: payload.to_vec(),
        }
    }

    #[test]
    fn a_canary_split_over_segments_out_of_order_is_found() {
        let captured = Captured {
            segments: vec![
                Segment {
                    syn: true,
                    ..to_server(u32::MAX - 2, b"")
                },
                to_server(3, b"ary"),
                to_server(u32::MAX - 1, b"xxcan"),
                to_server(u32::MAX - 1, b"xxcan"),
            ],
            dropped: 0,
        };
        let seen = captured.between(CLIENT, &[SERVER], b"canary");
        assert!(seen.canary_to_server && !seen.canary_to_client);
        assert_eq!((seen.frames_to_server, seen.connections), (3, 1));
        assert_eq!(seen.ports, [8080]);
    }

    #[test]
    fn one_port_is_looked_at_by_itself() {
        let mut elsewhere = to_server(0, b"canary");
        elsewhere.to.1 = 8443;
        let captured = Captured {
            segments: vec![to_server(0, b"in clear"), elsewhere],
            dropped: 3,
        };
        let seen = captured
            .at((SERVER, 8080))
            .between(CLIENT, &[SERVER], b"canary");
        assert_eq!(
            (&seen.ports[..], seen.canary_to_server),
            (&[8080][..], false)
        );
        assert_eq!(seen.dropped, 3, "what was missed may have been of any port");
    }

    #[test]
    fn one_port_to_two_servers_is_two_connections() {
        const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
        let mut elsewhere = to_server(90, b"ary");
        elsewhere.to.0 = OTHER;
        let captured = Captured {
            segments: vec![to_server(0, b"can"), elsewhere],
            dropped: 0,
        };
        let seen = captured.between(CLIENT, &[SERVER, OTHER], b"canary");
        assert_eq!((seen.connections, seen.canary_to_server), (2, false));
    }

    #[test]
    fn other_pods_do_not_count() {
        let captured = Captured {
            segments: vec![to_server(0, b"canary")],
            dropped: 0,
        };
        let seen = captured.between(SERVER, &[CLIENT], b"canary");
        assert!(
            seen.canary_to_client,
            "the same frames, the other way round"
        );
        let seen = captured.between(CLIENT, &[Ipv4Addr::new(10, 0, 0, 3)], b"canary");
        assert_eq!(seen, WireEvidence::default());
    }
}
