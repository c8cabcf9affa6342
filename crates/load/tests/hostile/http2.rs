//! What a server can do to HTTP/2 and to gRPC over it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meshtax_http2::frame::{self, FrameHeader, HEADER_BYTES, PREFACE, code, flag, kind, setting};
use meshtax_http2::hpack::encode_literal;
use meshtax_load::{LoadModel, LoadSpec, Protocol};
use meshtax_model::experiment::Arrivals;

use super::quiet::while_the_machine_is_ours;
use crate::harness::*;
use crate::http1::{FIVE_GIGABYTES, as_a_process, one_large, peak_bytes, repeat};

const BOTH: [Protocol; 2] = [
    Protocol::Http2 { streams: 3 },
    Protocol::Grpc { streams: 3 },
];

/// What gets a response on a stream.
type Reply = fn(u32) -> Vec<u8>;

/// HTTP's and gRPC's.
type Statuses = (u16, u16);

/// The server's end of a connection: frames in, whatever bytes out.
struct Peer {
    stream: TcpStream,
    /// Requests until now.
    requests: u32,
    /// Whether the client has taken note of our settings.
    acknowledged: bool,
}

/// What [`Peer::next`] came upon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A request is complete.
    Request(u32),
    /// Nothing for a while; only with a read timeout.
    Nothing,
    Gone,
}

impl Peer {
    /// Reads the preface and sends these settings.
    fn accept(stream: TcpStream, settings: &[(u16, u32)]) -> Option<Self> {
        let mut peer = Self {
            stream,
            requests: 0,
            acknowledged: false,
        };
        let mut preface = [0; PREFACE.len()];
        peer.stream.read_exact(&mut preface).ok()?;
        assert_eq!(preface, PREFACE);
        let mut out = Vec::new();
        frame::settings(&mut out, settings);
        peer.send(&out).then_some(peer)
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    fn frame(&mut self) -> std::io::Result<(FrameHeader, Vec<u8>)> {
        let mut bytes = [0; HEADER_BYTES];
        // Peeked at first, so that a read timeout between two frames loses nothing.
        if self.stream.peek(&mut [0])? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.stream.read_exact(&mut bytes)?;
        let header = FrameHeader::parse(&bytes);
        let mut payload = vec![0; header.length as usize];
        self.stream.read_exact(&mut payload)?;
        Ok((header, payload))
    }

    fn next(&mut self) -> Next {
        loop {
            let (header, payload) = match self.frame() {
                Ok(frame) => frame,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Next::Nothing,
                Err(_) => return Next::Gone,
            };
            if header.kind == kind::DATA && !payload.is_empty() {
                self.send(&window_update(0, payload.len() as u32));
                self.send(&window_update(header.stream, payload.len() as u32));
            }
            match header.kind {
                kind::SETTINGS if header.has(flag::ACK) => self.acknowledged = true,
                kind::SETTINGS => {
                    let mut out = Vec::new();
                    frame::settings_ack(&mut out);
                    self.send(&out);
                }
                kind::HEADERS | kind::DATA if header.has(flag::END_STREAM) => {
                    self.requests += 1;
                    return Next::Request(header.stream);
                }
                kind::GOAWAY => return Next::Gone,
                _ => {}
            }
        }
    }
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = payload.len() as u32;
    FrameHeader {
        length,
        kind,
        flags,
        stream,
    }
    .write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        encode_literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

const STATUS: (&str, &str) = (":status", "200");
const GRPC_STATUS: (&str, &str) = ("grpc-status", "0");

fn head(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &block(&[STATUS]), false);
    out
}

fn body(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::data(&mut out, stream, b"\0\0\0\0\x02ok", false);
    out
}

fn trailers(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &block(&[GRPC_STATUS]), true);
    out
}

/// Right for HTTP/2 and for gRPC.
fn answer(stream: u32) -> Vec<u8> {
    [head(stream), body(stream), trailers(stream)].concat()
}

fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::rst_stream(&mut out, stream, code);
    out
}

fn goaway(last: u32, code: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::goaway(&mut out, last, code);
    out
}

fn window_update(stream: u32, more: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::window_update(&mut out, stream, more);
    out
}

/// Sends what `reply` makes of each request; `false`: closes after it.
fn replying(reply: impl Fn(&mut Peer, u32) -> bool + Send + Sync + 'static) -> SocketAddr {
    replying_after(&[], reply)
}

fn replying_after(
    settings: &'static [(u16, u32)],
    reply: impl Fn(&mut Peer, u32) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    server(move |_, stream| {
        let Some(mut peer) = Peer::accept(stream, settings) else {
            return;
        };
        while let Next::Request(stream) = peer.next() {
            if !reply(&mut peer, stream) {
                return;
            }
        }
    })
}

/// Responses with what `bytes` makes of the stream's number.
fn with(bytes: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> SocketAddr {
    replying(move |peer, stream| peer.send(&bytes(stream)))
}

fn all_answered(what: &str, target: SocketAddr) {
    for protocol in BOTH {
        for (name, spec, result) in offer_all(&loads(target, protocol)) {
            let result = result.unwrap();
            let name = format!("{what}: {name}");
            assert!(answered(&result) > 2, "{name}: {result:?}");
            assert_eq!(failed(&result), 0, "{name}: {result:?}");
            assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            let is_grpc = matches!(spec.protocol, Protocol::Grpc { .. });
            assert_eq!(result.grpc_status.is_empty(), !is_grpc, "{name}");
        }
    }
}

fn all_fail(what: &str, target: SocketAddr, kinds: &[&str]) {
    for protocol in BOTH {
        for (name, spec, result) in offer_all(&few(loads_for(target, protocol, kinds))) {
            let result = result.unwrap();
            let name = format!("{what}: {name}");
            assert_eq!(answered(&result), 0, "{name}: {result:?}");
            assert!(failed(&result) > 0, "{name}: {result:?}");
            only(&result, &name, kinds);
            if spec.model.is_closed() {
                assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            }
        }
    }
}

#[test]
fn valid_http2_responses_are_accepted() {
    all_answered("right", with(answer));
    // By single bytes.
    let target = replying(|peer, stream| {
        let answer = answer(stream);
        answer.iter().all(|byte| peer.send(&[*byte]))
    });
    all_answered("by bytes", target);
}

#[test]
fn a_close_at_every_byte_of_a_response_is_counted() {
    for protocol in [
        Protocol::Http2 { streams: 1 },
        Protocol::Grpc { streams: 1 },
    ] {
        let length = answer(3).len();
        for position in 0..length {
            let target = replying(move |peer, stream| {
                let bytes = answer(stream);
                if peer.requests < 2 {
                    return peer.send(&bytes);
                }
                peer.send(&bytes[..position]);
                false
            });
            let mut spec = spec(target, protocol, LoadModel::closed());
            spec.connections = 1;
            spec.max_requests = Some(4);
            let result = offer(&spec).unwrap();
            assert_eq!(result.offered, 4, "{position} {result:?}");
            assert_eq!(answered(&result), 2, "{position} {result:?}");
            assert_eq!(result.errors.reset, 2, "{position} {result:?}");
        }
    }
}

#[test]
fn invalid_frames_are_errors() {
    while_the_machine_is_ours("frames that cannot be", || {
        let wrong: [(&str, Reply); 22] = [
            ("no frame", |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
            ("DATA on 0", |_| frame_of(kind::DATA, 0, 0, b"x")),
            ("HEADERS on 0", |_| {
                frame_of(kind::HEADERS, 4, 0, &block(&[STATUS]))
            }),
            ("short PING", |_| frame_of(kind::PING, 0, 0, &[0; 7])),
            ("PING on 1", |s| frame_of(kind::PING, 0, s, &[0; 8])),
            ("odd SETTINGS", |_| frame_of(kind::SETTINGS, 0, 0, &[0; 5])),
            ("SETTINGS with ACK", |_| {
                frame_of(kind::SETTINGS, 1, 0, &[0; 6])
            }),
            ("long frame", |s| frame_of(kind::DATA, 0, s, &[0; 16_385])),
            ("longest frame", |s| {
                frame_of(77, 0, s, &[])
                    .iter()
                    .enumerate()
                    .map(|(at, byte)| if at < 3 { 0xff } else { *byte })
                    .collect()
            }),
            ("short WINDOW_UPDATE", |s| {
                frame_of(kind::WINDOW_UPDATE, 0, s, &[0; 3])
            }),
            ("short RST_STREAM", |s| {
                frame_of(kind::RST_STREAM, 0, s, &[0; 3])
            }),
            ("short GOAWAY", |_| frame_of(kind::GOAWAY, 0, 0, &[0; 7])),
            ("CONTINUATION alone", |s| {
                frame_of(kind::CONTINUATION, 4, s, &block(&[STATUS]))
            }),
            ("PING in a block", |s| {
                [
                    frame_of(kind::HEADERS, 0, s, &block(&[STATUS])),
                    frame_of(kind::PING, 0, 0, &[0; 8]),
                ]
                .concat()
            }),
            ("another's CONTINUATION", |s| {
                [
                    frame_of(kind::HEADERS, 0, s, &block(&[STATUS])),
                    frame_of(kind::CONTINUATION, 4, s + 2, &[]),
                ]
                .concat()
            }),
            ("PUSH_PROMISE", |s| {
                frame_of(kind::PUSH_PROMISE, 4, s, &[0, 0, 0, 2])
            }),
            ("padding of DATA", |s| {
                [head(s), frame_of(kind::DATA, flag::PADDED, s, &[9, 1])].concat()
            }),
            ("padding of HEADERS", |s| {
                frame_of(kind::HEADERS, flag::PADDED | 4, s, &[200, 1, 2])
            }),
            ("an index of nothing", |s| {
                frame_of(kind::HEADERS, 4, s, &[0x80])
            }),
            ("an index of the empty table", |s| {
                frame_of(kind::HEADERS, 4, s, &[0x80 | 62])
            }),
            ("a header cut short", |s| {
                frame_of(kind::HEADERS, 4, s, &[0, 5, b'a'])
            }),
            ("a table that was not agreed", |s| {
                frame_of(kind::HEADERS, 4, s, &[0x3f, 0xff, 0xff, 0x7f])
            }),
        ];
        each(&wrong, |(what, bytes)| {
            all_fail(what, with(*bytes), &["protocol"]);
        });
    });
}

#[test]
fn invalid_http2_responses_are_errors() {
    let ended: [(&str, Reply); 5] = [
        ("a body alone", |s| {
            frame_of(kind::DATA, flag::END_STREAM, s, b"x")
        }),
        ("no status", |s| {
            frame_of(kind::HEADERS, 5, s, &block(&[("server", "x")]))
        }),
        ("nothing at all", |s| frame_of(kind::HEADERS, 5, s, &[])),
        ("a status that is none", |s| {
            frame_of(kind::HEADERS, 5, s, &block(&[(":status", "2o0")]))
        }),
        ("an interim answer alone", |s| {
            frame_of(kind::HEADERS, 5, s, &block(&[(":status", "100")]))
        }),
    ];
    each(&ended, |(what, bytes)| {
        all_fail(what, with(*bytes), &["protocol"]);
    });
    let endless: [(&str, Reply); 3] = [
        ("a head alone", head),
        ("no end", |s| [head(s), body(s)].concat()),
        ("another stream's", |s| answer(s + 1000)),
    ];
    each(&endless, |(what, bytes)| {
        all_fail(what, with(*bytes), &["timeout"]);
    });
}

#[test]
fn http2_responses_with_every_feature_are_accepted() {
    let padding = |length: u8, content: &[u8]| {
        [&[length], content, &vec![0; usize::from(length)][..]].concat()
    };
    let padded = move |s: u32| {
        let block = [&[0, 0, 0, 0, 9][..], &block(&[STATUS])].concat();
        let flags = flag::PADDED | flag::PRIORITY | flag::END_HEADERS;
        [
            frame_of(kind::HEADERS, flags, s, &padding(255, &block)),
            frame_of(kind::DATA, flag::PADDED, s, &padding(255, &[])),
            frame_of(kind::DATA, flag::PADDED, s, &padding(0, b"x")),
            frame_of(kind::DATA, flag::PADDED, s, &padding(255, &[7; 16_000])),
            trailers(s),
        ]
        .concat()
    };
    all_answered("padding", with(padded));
    all_answered(
        "continuation",
        with(|s| {
            let block = block(&[STATUS, ("x", "some header that is long enough")]);
            let mut out = frame_of(kind::HEADERS, 0, s, &block[..1]);
            for byte in &block[1..] {
                out.extend(frame_of(kind::CONTINUATION, 0, s, &[*byte]));
            }
            out.extend(frame_of(kind::CONTINUATION, flag::END_HEADERS, s, &[]));
            [out, body(s), trailers(s)].concat()
        }),
    );
    all_answered(
        "interim answers",
        with(|s| {
            let interim = frame_of(kind::HEADERS, 4, s, &block(&[(":status", "103")]));
            [interim.repeat(20), answer(s)].concat()
        }),
    );
    all_answered(
        "unknown frames",
        with(|s| {
            let unknown = frame_of(0xf0, 0xff, s, &[1; 100]);
            let priority = frame_of(kind::PRIORITY, 0, s, &[0; 5]);
            let update = window_update(0, 1);
            [unknown, priority, update, answer(s)].concat()
        }),
    );
    all_answered(
        "other streams",
        with(|s| {
            [
                answer(2),
                answer(s + 1000),
                rst_stream(s + 1002, 1),
                answer(s),
            ]
            .concat()
        }),
    );
    all_answered("twice", with(|s| [answer(s), answer(s)].concat()));
    all_answered(
        "and a reset",
        with(|s| [answer(s), rst_stream(s, code::NO_ERROR)].concat()),
    );
    all_answered("a table of its own", with(answer_with_a_table));
}

/// Its status goes into the table and is used from there; then the table is made small.
fn answer_with_a_table(stream: u32) -> Vec<u8> {
    let first = [&[0x48, 3][..], b"200", &[0x80 | 62]].concat();
    let last = [&[0x20, 0x3f, 0xe1, 0x1f][..], &block(&[GRPC_STATUS])].concat();
    [
        frame_of(kind::HEADERS, 4, stream, &first),
        body(stream),
        frame_of(kind::HEADERS, 5, stream, &last),
    ]
    .concat()
}

#[test]
fn every_stream_is_reset() {
    for code in [code::NO_ERROR, code::REFUSED_STREAM, 0xffff_ffff] {
        all_fail("reset", with(move |s| rst_stream(s, code)), &["reset"]);
    }
    let within = |s| [head(s), body(s), rst_stream(s, code::INTERNAL_ERROR)].concat();
    all_fail("within", with(within), &["reset"]);
}

#[test]
fn a_goaway_during_the_load_reopens_the_connection() {
    for protocol in BOTH {
        // After three requests the others have failed.
        let hard = replying(|peer, stream| {
            let sent = peer.send(&answer(stream));
            sent && (peer.requests < 3 || {
                peer.send(&goaway(stream, code::NO_ERROR));
                read_all(&mut peer.stream);
                false
            })
        });
        for (name, spec, result) in offer_all(&loads(hard, protocol)) {
            let result = result.unwrap();
            only(&result, &name, &["reset"]);
            assert!(answered(&result) > 2, "{name}: {result:?}");
            assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            if spec.requests_per_connection.is_none() {
                assert!(result.connections_opened > 3, "{name}: {result:?}");
            }
        }
        // All that was sent before gets a response.
        let graceful = replying(|peer, stream| {
            if peer.requests == 3 {
                peer.send(&goaway(u32::MAX >> 1, code::NO_ERROR));
            }
            peer.send(&answer(stream))
        });
        for (name, spec, result) in offer_all(&loads(graceful, protocol)) {
            let result = result.unwrap();
            assert_eq!(failed(&result), 0, "{name}: {result:?}");
            assert_eq!(result.unanswered, 0, "{name}: {result:?}");
            if spec.requests_per_connection.is_none() {
                assert!(result.connections_opened > 3, "{name}: {result:?}");
            }
        }
    }
}

#[test]
fn an_immediate_goaway_is_handled() {
    let target = server(|_, stream| {
        if let Some(mut peer) = Peer::accept(stream, &[]) {
            peer.send(&goaway(0, code::ENHANCE_YOUR_CALM));
            read_all(&mut peer.stream);
        }
    });
    for protocol in BOTH {
        for (name, spec, result) in offer_all(&loads_for(target, protocol, &["reset"])) {
            let Some(result) = result else { continue };
            assert_eq!(answered(&result), 0, "{name}");
            only(&result, &name, &["reset"]);
            // Not again and again as fast as it goes.
            assert!(result.connections_opened < 100, "{name}: {result:?}");
            if spec.requests_per_connection.is_some() {
                assert!(result.errors.reset > 0, "{name}: {result:?}");
            }
        }
    }
}

#[test]
fn a_limit_of_one_stream_is_respected() {
    let at_once = Arc::new(AtomicU64::new(0));
    let most = Arc::clone(&at_once);
    let target = server(move |_, stream| {
        let settings = [(setting::MAX_CONCURRENT_STREAMS, 1)];
        let Some(mut peer) = Peer::accept(stream, &settings) else {
            return;
        };
        let patience = Some(Duration::from_millis(2));
        let _ = peer.stream.set_read_timeout(patience);
        let mut waiting = Vec::new();
        loop {
            // What comes after the settings were heard counts.
            let knew = peer.acknowledged;
            match peer.next() {
                Next::Gone => return,
                Next::Request(stream) => {
                    waiting.push(stream);
                    if knew {
                        most.fetch_max(waiting.len() as u64, Ordering::Relaxed);
                    }
                }
                Next::Nothing => {
                    for stream in waiting.drain(..) {
                        peer.send(&answer(stream));
                    }
                }
            }
        }
    });
    all_answered("one at a time", target);
    assert_eq!(at_once.load(Ordering::Relaxed), 1);
}

#[test]
fn a_limit_of_no_streams_is_respected() {
    while_the_machine_is_ours("no stream at all", || {
        const NONE: &[(u16, u32)] = &[(setting::MAX_CONCURRENT_STREAMS, 0)];
        // What was sent before the settings came gets a response.
        let never = replying_after(NONE, |peer, stream| peer.send(&answer(stream)));
        for protocol in BOTH {
            let all: Vec<_> = loads(never, protocol).into_iter().map(hurried).collect();
            for (name, spec, result) in offer_all(&all) {
                let result = result.unwrap();
                only(&result, &name, &[]);
                if spec.requests_per_connection.is_none() {
                    assert!(answered(&result) < 30, "{name}: {result:?}");
                }
            }
        }
        // Streams are allowed after a while.
        let later = server(|_, stream| {
            let Some(mut peer) = Peer::accept(stream, NONE) else {
                return;
            };
            std::thread::sleep(Duration::from_millis(30));
            let mut more = Vec::new();
            frame::settings(&mut more, &[(setting::MAX_CONCURRENT_STREAMS, 2)]);
            peer.send(&more);
            while let Next::Request(stream) = peer.next() {
                peer.send(&answer(stream));
            }
        });
        all_answered("later", later);
    });
}

/// The same loads with a body.
fn with_body(target: SocketAddr, protocol: Protocol, bytes: usize) -> Vec<LoadSpec> {
    let mut all = loads(target, protocol);
    for spec in &mut all {
        spec.requests[0].method = "POST".into();
        spec.requests[0].body = vec![b'x'; bytes];
    }
    all
}

#[test]
fn closed_windows_are_respected() {
    const SHUT: &[(u16, u32)] = &[(setting::INITIAL_WINDOW_SIZE, 0)];
    for protocol in BOTH {
        // Never opened: what was sent before the settings came may be answered.
        let never = replying_after(SHUT, |peer, stream| peer.send(&answer(stream)));
        let all = with_body(never, protocol, 100_000);
        for (name, _, result) in offer_all(&all.into_iter().map(hurried).collect::<Vec<_>>()) {
            only(&result.unwrap(), &name, &["timeout"]);
        }
        // Opened byte by byte, and then for all.
        let slowly = server(|_, stream| {
            let Some(mut peer) = Peer::accept(stream, SHUT) else {
                return;
            };
            let mut opened = 0;
            loop {
                let Ok((header, _)) = peer.frame() else {
                    return;
                };
                let ended = header.has(flag::END_STREAM);
                match header.kind {
                    kind::HEADERS if header.stream > opened => {
                        opened = header.stream;
                        for _ in 0..5 {
                            peer.send(&window_update(opened, 1));
                            peer.send(&window_update(0, 1));
                        }
                        peer.send(&window_update(opened, 3000));
                        peer.send(&window_update(0, 3000));
                    }
                    kind::DATA if ended => {
                        peer.send(&answer(header.stream));
                    }
                    _ => {}
                }
            }
        });
        for (name, _, result) in offer_all(&with_body(slowly, protocol, 2000)) {
            let result = result.unwrap();
            assert!(answered(&result) > 2, "{name}: {result:?}");
            assert_eq!(failed(&result) + result.unanswered, 0, "{name}");
        }
    }
}

#[test]
fn window_overflows_are_errors() {
    let target = replying_after(
        &[
            (setting::INITIAL_WINDOW_SIZE, u32::MAX),
            (setting::MAX_CONCURRENT_STREAMS, u32::MAX),
            (setting::MAX_FRAME_SIZE, u32::MAX),
            (0xffff, 7),
        ],
        |peer, stream| {
            let mut out = window_update(0, u32::MAX).repeat(10);
            out.extend(window_update(stream, u32::MAX).repeat(10));
            out.extend(window_update(stream, 0));
            out.extend(answer(stream));
            peer.send(&out)
        },
    );
    for protocol in BOTH {
        for (name, _, result) in offer_all(&with_body(target, protocol, 100_000)) {
            // To refuse such windows is right as well.
            let Some(result) = result else { continue };
            only(&result, &name, &["protocol"]);
        }
    }
}

#[test]
fn a_response_before_the_request_was_sent_completes_it() {
    // The window holds 65,535 of the body's bytes: the response comes before the rest could.
    for protocol in BOTH {
        let target = server(|_, stream| {
            let Some(mut peer) = Peer::accept(stream, &[]) else {
                return;
            };
            while let Ok((header, payload)) = peer.frame() {
                if header.kind == kind::HEADERS {
                    peer.send(&answer(header.stream));
                }
                if header.kind == kind::DATA && header.length > 0 {
                    // The connection's window, not the stream's.
                    peer.send(&window_update(0, payload.len() as u32));
                }
            }
        });
        for (name, _, result) in offer_all(&with_body(target, protocol, 200_000)) {
            let result = result.unwrap();
            assert!(answered(&result) > 2, "{name}: {result:?}");
            assert_eq!(failed(&result) + result.unanswered, 0, "{name}");
        }
    }
}

#[test]
fn floods() {
    let floods: [(&str, Vec<u8>); 8] = [
        ("PING", frame_of(kind::PING, 0, 0, &[7; 8])),
        ("SETTINGS", frame_of(kind::SETTINGS, 0, 0, &[])),
        (
            "SETTINGS with windows",
            frame_of(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
        ),
        ("PRIORITY", frame_of(kind::PRIORITY, 0, 1, &[0; 5])),
        ("empty DATA", frame_of(kind::DATA, 0, 1, &[])),
        ("WINDOW_UPDATE", window_update(0, 1)),
        (
            "interim answers",
            frame_of(kind::HEADERS, 4, 1, &block(&[(":status", "102")])),
        ),
        ("RST_STREAM", rst_stream(99, 0)),
    ];
    for (what, bytes) in floods {
        let answers = matches!(what, "PING" | "SETTINGS" | "SETTINGS with windows");
        let target = server(move |_, stream| {
            if let Some(mut peer) = Peer::accept(stream, &[]) {
                // Without ever reading again.
                flood(&mut peer.stream, &bytes);
            }
        });
        for protocol in BOTH {
            let mut spec = hurried(spec(target, protocol, LoadModel::closed()));
            spec.connections = 1;
            spec.timeout_ns = None;
            spec.requests_per_connection = Some(1);
            let result = offer(&spec).unwrap();
            let name = format!("{what}: {}", named(&spec));
            if answers {
                // What it asks for and does not take must not be kept for it.
                assert!(result.errors.protocol > 0, "{name}: {result:?}");
            } else {
                only(&result, &name, &[]);
            }
        }
    }
}

#[test]
fn endless_header_blocks_are_errors() {
    let target = replying(|peer, stream| {
        peer.send(&frame_of(kind::HEADERS, 0, stream, &block(&[STATUS])));
        flood(
            &mut peer.stream,
            &frame_of(kind::CONTINUATION, 0, stream, &[0; 100]),
        );
        false
    });
    all_fail("continuation", target, &["protocol"]);
    let target = replying(|peer, stream| {
        peer.send(&frame_of(kind::HEADERS, 0, stream, &[]));
        flood(
            &mut peer.stream,
            &frame_of(kind::CONTINUATION, 0, stream, &[]),
        );
        false
    });
    all_fail("empty continuation", target, &["protocol"]);
    // A few bytes that stand for many headers.
    let bomb = [&[0x40, 1, b'a', 0x7f, 0x80 | 32, 0x1e][..], &[b'b'; 4000]].concat();
    let bomb = [bomb, vec![0x80 | 62; 12_000]].concat();
    let target = with(move |s| frame_of(kind::HEADERS, 4, s, &bomb));
    all_fail("bomb", target, &["protocol"]);
}

#[test]
fn grpc_without_trailers_is_an_error() {
    let grpc = Protocol::Grpc { streams: 2 };
    let cases: [(&str, Reply, Option<Statuses>); 5] = [
        (
            "none",
            |s| [head(s), frame_of(kind::DATA, 1, s, b"x")].concat(),
            None,
        ),
        (
            "without a status",
            |s| {
                let mut out = head(s);
                frame::headers(&mut out, s, &block(&[("x", "y")]), true);
                out
            },
            None,
        ),
        (
            "a status that is none",
            |s| {
                let mut out = head(s);
                frame::headers(&mut out, s, &block(&[("grpc-status", "OK")]), true);
                out
            },
            None,
        ),
        (
            "trailers alone",
            |s| {
                let mut out = Vec::new();
                let headers = [STATUS, ("grpc-status", "12"), ("grpc-message", "no")];
                frame::headers(&mut out, s, &block(&headers), true);
                out
            },
            Some((200, 12)),
        ),
        (
            "a status beyond all",
            |s| {
                let mut out = head(s);
                frame::headers(&mut out, s, &block(&[("grpc-status", "65535")]), true);
                out
            },
            Some((200, 999)),
        ),
    ];
    for (what, bytes, wanted) in cases {
        let target = with(bytes);
        for (name, _, result) in offer_all(&loads_for(target, grpc, &[])) {
            let result = result.unwrap();
            let name = format!("{what}: {name}");
            let Some((status, grpc_status)) = wanted else {
                assert_eq!(answered(&result), 0, "{name}: {result:?}");
                assert!(result.errors.protocol > 0, "{name}: {result:?}");
                only(&result, &name, &["protocol"]);
                continue;
            };
            let answers = answered(&result);
            assert!(answers > 2, "{name}: {result:?}");
            assert_eq!(result.status[&status], answers, "{name}");
            assert_eq!(result.grpc_status[&grpc_status], answers, "{name}");
            assert_eq!(result.succeeded, 0, "{name}");
            assert_eq!(result.errors.total(), 0, "{name}");
        }
    }
    // A proxy's error page has none either, and is a response.
    let page = |s| {
        let mut out = Vec::new();
        frame::headers(&mut out, s, &block(&[(":status", "503")]), true);
        out
    };
    let mut spec = spec(with(page), grpc, LoadModel::open(200.0, Arrivals::Constant));
    spec.requests_per_connection = Some(1);
    let result = offer(&spec).unwrap();
    assert_eq!(result.status[&503], result.offered, "{result:?}");
}

/// Runs only as the child of the next test, whose memory it measures.
#[test]
#[ignore = "measures this process: run by memory_does_not_grow_with_the_body"]
fn five_gigabytes() {
    const FRAME: u64 = 16_384;
    let read = |length: u64| {
        one_large(Protocol::Http2 { streams: 1 }, move |stream| {
            let Some(mut peer) = Peer::accept(stream, &[]) else {
                return;
            };
            let Next::Request(stream) = peer.next() else {
                return;
            };
            peer.send(&head(stream));
            // Whatever the windows are.
            let block = frame_of(kind::DATA, 0, stream, &[b'x'; FRAME as usize]);
            repeat(&mut peer.stream, &block, length / FRAME);
            peer.send(&trailers(stream));
            read_all(&mut peer.stream);
        })
    };
    read(5_000_000);
    let before = peak_bytes();
    let framed = FIVE_GIGABYTES / FRAME * (FRAME + HEADER_BYTES as u64);
    assert!((framed..framed + 200).contains(&read(FIVE_GIGABYTES)));
    let grown = peak_bytes() - before;
    assert!(grown < 8_000_000, "{grown} bytes more");
}

#[test]
fn memory_does_not_grow_with_the_body() {
    as_a_process("http2::five_gigabytes");
}
