//! What a server can do to a connection and to its streams: resets, limits, windows and floods.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use meshtax_http2::frame::{self, code, flag, kind, setting};
use meshtax_load::{LoadModel, LoadSpec, Protocol};

use super::peer::*;
use crate::harness::*;
use crate::quiet::while_the_machine_is_ours;

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
