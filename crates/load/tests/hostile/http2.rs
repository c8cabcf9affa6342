//! What a server can do to HTTP/2 and to gRPC over it; here, with its responses.

mod connection;
mod peer;

use meshtax_http2::frame::{self, HEADER_BYTES, code, flag, kind};
use meshtax_load::{LoadModel, Protocol};
use meshtax_model::experiment::Arrivals;

use super::quiet::while_the_machine_is_ours;
use crate::harness::*;
use crate::http1::{FIVE_GIGABYTES, as_a_process, one_large, peak_bytes, repeat};
use peer::*;

/// HTTP's and gRPC's.
type Statuses = (u16, u16);

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
