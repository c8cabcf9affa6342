//! Captured segments, and what they show: bytes per direction, readable content, TLS handshakes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use meshtax_model::evidence::{Handshake, WireEvidence};
use serde::{Deserialize, Serialize};

use crate::tls_hello::server_hello;

/// A TCP segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Source address and port.
    pub from: (Ipv4Addr, u16),
    /// Destination address and port.
    pub to: (Ipv4Addr, u16),
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Whether SYN is set.
    pub syn: bool,
    /// Its data.
    #[serde(with = "crate::remote::base64_bytes")]
    pub payload: Vec<u8>,
}

/// All segments of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Captured {
    /// In the order of each link.
    pub segments: Vec<Segment>,
    /// Packets that the kernel dropped because they were not read in time: above zero, what is not among the segments may
    /// have passed all the same.
    pub dropped: u64,
}

impl Captured {
    /// Only the segments to or from this address and port.
    #[must_use]
    pub fn at(&self, server: (Ipv4Addr, u16)) -> Self {
        let segments = self.segments.iter();
        let of_server = segments.filter(|s| s.from == server || s.to == server);
        Self {
            segments: of_server.cloned().collect(),
            dropped: self.dropped,
        }
    }

    /// What the segments between any of the clients' pods and any of the servers' show. `canary`: the text whose
    /// readability is checked.
    #[must_use]
    pub fn between(
        &self,
        clients: &[Ipv4Addr],
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
            let to_server = clients.contains(&segment.from.0) && servers.contains(&segment.to.0);
            let to_client = servers.contains(&segment.from.0) && clients.contains(&segment.to.0);
            if !to_server && !to_client {
                continue;
            }
            let (near, far) = if to_server {
                (segment.from, segment.to)
            } else {
                (segment.to, segment.from)
            };
            ports.insert(far.1);
            connections.insert((near, far));
            let stream = streams.entry((to_server, near, far)).or_default();
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

/// One direction of a connection: whether it goes to the server, the client's end, and the server's. The kernel may
/// use one client port for connections to different servers.
type StreamOf = (bool, (Ipv4Addr, u16), (Ipv4Addr, u16));

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
        // A SYN occupies one sequence number; the data begin after it.
        let start = segment.sequence.wrapping_add(u32::from(segment.syn));
        let first = *self.first.get_or_insert(start);
        if !segment.payload.is_empty() {
            self.parts
                .entry(start.wrapping_sub(first))
                .or_insert_with(|| segment.payload.clone());
        }
    }

    /// The bytes in order. Gaps are skipped: a lost segment could hide a canary, but drops are counted,
    /// and a captured retransmission fills the gap.
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
    fn canary_split_over_reordered_segments_is_found() {
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
        let seen = captured.between(&[CLIENT], &[SERVER], b"canary");
        assert!(seen.canary_to_server && !seen.canary_to_client);
        assert_eq!((seen.frames_to_server, seen.connections), (3, 1));
        assert_eq!(seen.ports, [8080]);
    }

    #[test]
    fn segments_are_filtered_by_server_port() {
        let mut elsewhere = to_server(0, b"canary");
        elsewhere.to.1 = 8443;
        let captured = Captured {
            segments: vec![to_server(0, b"plaintext"), elsewhere],
            dropped: 3,
        };
        let seen = captured
            .at((SERVER, 8080))
            .between(&[CLIENT], &[SERVER], b"canary");
        assert_eq!(
            (&seen.ports[..], seen.canary_to_server),
            (&[8080][..], false)
        );
        assert_eq!(seen.dropped, 3, "dropped frames may belong to any port");
    }

    #[test]
    fn same_client_port_to_two_servers_is_two_connections() {
        const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
        let mut elsewhere = to_server(90, b"ary");
        elsewhere.to.0 = OTHER;
        let captured = Captured {
            segments: vec![to_server(0, b"can"), elsewhere],
            dropped: 0,
        };
        let seen = captured.between(&[CLIENT], &[SERVER, OTHER], b"canary");
        assert_eq!((seen.connections, seen.canary_to_server), (2, false));
    }

    #[test]
    fn segments_of_other_pods_are_ignored() {
        let captured = Captured {
            segments: vec![to_server(0, b"canary")],
            dropped: 0,
        };
        let seen = captured.between(&[SERVER], &[CLIENT], b"canary");
        assert!(
            seen.canary_to_client,
            "the same frames, the other way round"
        );
        let seen = captured.between(&[CLIENT], &[Ipv4Addr::new(10, 0, 0, 3)], b"canary");
        assert_eq!(seen, WireEvidence::default());
    }
}
