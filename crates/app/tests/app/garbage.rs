//! Clients that violate HTTP/2, on purpose or by accident.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::OnceLock;
use std::time::Duration;

use meshtax_app::Wait;
use meshtax_http2::frame::{self, FrameHeader, PREFACE, code, flag, kind, setting};
use meshtax_http2::hpack::encode_literal;
use meshtax_http2::reader::{FrameReader, Piece};
use proptest::prelude::*;

use super::App;

fn raw(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = payload.len() as u32;
    let header = FrameHeader {
        length,
        kind,
        flags,
        stream,
    };
    header.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn preface(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame::settings(&mut out, settings);
    out
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        encode_literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

fn get_block() -> Vec<u8> {
    block(&[(":method", "GET"), (":path", "/"), (":scheme", "http")])
}

fn get(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &get_block(), true);
    out
}

/// A request whose body is to follow.
fn post(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::headers(&mut out, stream, &get_block(), false);
    out
}

/// The server's frames until it closes the connection.
struct Reply {
    bodies: usize,
    resets: Vec<(u32, u32)>,
    goaway: Option<u32>,
    pings: Vec<Vec<u8>>,
}

fn reply_to(app: &App, bytes: &[u8]) -> Reply {
    let mut stream = app.connect();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut all = Vec::new();
    if let Err(e) = stream.read_to_end(&mut all) {
        assert_eq!(e.kind(), ErrorKind::ConnectionReset, "it hangs");
    }
    let mut reply = Reply {
        bodies: 0,
        resets: Vec::new(),
        goaway: None,
        pings: Vec::new(),
    };
    let mut input = &all[..];
    let mut reader = FrameReader::new(16_384);
    while let Some(piece) = reader.next(&mut input).unwrap() {
        match piece {
            Piece::Data { last, header, .. } if last && header.has(flag::END_STREAM) => {
                reply.bodies += 1;
            }
            Piece::Frame { header, payload } => match header.kind {
                kind::RST_STREAM => {
                    let code = frame::first_32_bits(payload);
                    reply.resets.push((header.stream, code));
                }
                kind::GOAWAY => reply.goaway = Some(frame::goaway_code(payload)),
                kind::PING => reply.pings.push(payload.to_vec()),
                _ => {}
            },
            Piece::Data { .. } => {}
        }
    }
    reply
}

fn window_update(stream: u32, by: u32) -> Vec<u8> {
    raw(kind::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

fn setting(parameter: u16, value: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::settings(&mut out, &[(parameter, value)]);
    out
}

/// Each of these ends the connection with a GOAWAY of this code. `answered`: requests in them that precede the fault; no
/// other has a response.
fn assert_end_the_connection(code: u32, answered: usize, faults: &[(&str, Vec<u8>)]) {
    let app = App::start(|_| {});
    for (what, bytes) in faults {
        let reply = reply_to(&app, &[preface(&[]), bytes.clone(), get(101)].concat());
        assert_eq!(reply.goaway, Some(code), "{what}");
        assert_eq!(reply.bodies, answered, "{what}");
    }
}

#[test]
fn frames_of_a_wrong_size_end_the_connection() {
    let mut oversized = post(1);
    oversized.extend(raw(kind::DATA, 0, 1, &[0; 16_385]));
    let faults = [
        ("too long a frame", oversized),
        ("a ping of 7 bytes", raw(kind::PING, 0, 0, &[0; 7])),
    ];
    assert_end_the_connection(code::FRAME_SIZE_ERROR, 0, &faults);
}

#[test]
fn frames_without_their_stream_end_the_connection() {
    let faults = [
        ("data of the connection", raw(kind::DATA, 0, 0, b"a")),
        ("data of no stream", raw(kind::DATA, 0, 1, b"a")),
        ("an even stream", get(2)),
        ("a reset", raw(kind::RST_STREAM, 0, 1, &[0; 4])),
        ("a push", raw(kind::PUSH_PROMISE, 4, 1, &[0; 4])),
        ("a continuation", raw(kind::CONTINUATION, 4, 1, &[])),
        ("an update of no stream", window_update(9, 1)),
    ];
    assert_end_the_connection(code::PROTOCOL_ERROR, 0, &faults);
}

#[test]
fn headers_that_cannot_be_decoded_end_the_connection() {
    let faults = [("no headers", raw(kind::HEADERS, 5, 1, &[0xff; 9]))];
    assert_end_the_connection(code::COMPRESSION_ERROR, 0, &faults);
}

#[test]
fn streams_that_end_or_are_skipped_are_not_used_again() {
    let ended = [("a stream that has ended", [get(1), get(1)].concat())];
    assert_end_the_connection(code::STREAM_CLOSED, 1, &ended);
    let skipped = [("a stream that was skipped", [get(5), get(3)].concat())];
    assert_end_the_connection(code::PROTOCOL_ERROR, 1, &skipped);
}

#[test]
fn streams_that_depend_on_themselves_end_the_connection() {
    let priority = [&[0, 0, 0, 1, 9], &get_block()[..]].concat();
    let faults = [
        ("headers", raw(kind::HEADERS, 0x25, 1, &priority)),
        ("a priority", raw(kind::PRIORITY, 0, 7, &[0, 0, 0, 7, 9])),
    ];
    assert_end_the_connection(code::PROTOCOL_ERROR, 0, &faults);
}

#[test]
fn windows_and_settings_out_of_range_end_the_connection() {
    let faults = [
        ("an update by nothing", window_update(0, 0)),
        ("too small a frame size", setting(5, 100)),
        ("a push that is half allowed", setting(2, 2)),
    ];
    assert_end_the_connection(code::PROTOCOL_ERROR, 0, &faults);
    let faults = [
        ("too large a window", window_update(0, 0x7fff_ffff)),
        ("too large a first window", setting(4, 1 << 31)),
    ];
    assert_end_the_connection(code::FLOW_CONTROL_ERROR, 0, &faults);
}

#[test]
fn requests_before_settings_and_endless_headers_are_rejected() {
    let app = App::start(|_| {});
    let unsettled = reply_to(&app, &[PREFACE.to_vec(), get(1)].concat());
    assert_eq!(unsettled.goaway, Some(code::PROTOCOL_ERROR));
    let endless = raw(kind::CONTINUATION, 0, 1, &[0; 16_384]).repeat(9);
    let endless = [preface(&[]), raw(kind::HEADERS, 0, 1, &[]), endless].concat();
    assert_eq!(
        reply_to(&app, &endless).goaway,
        Some(code::ENHANCE_YOUR_CALM)
    );
}

/// Each of these resets stream 1 with this code, and nothing else.
fn assert_reset_the_stream(code: u32, faults: &[(&str, Vec<u8>)]) {
    let app = App::start(|_| {});
    // What was on its way to the stream is ignored.
    let on_its_way = raw(kind::DATA, 0, 1, &[0; 16_000]).repeat(2);
    for (what, bytes) in faults {
        let all = [preface(&[]), bytes.clone(), on_its_way.clone(), get(3)];
        let reply = reply_to(&app, &all.concat());
        assert_eq!(reply.resets, [(1, code)], "{what}");
        assert_eq!(reply.goaway, None, "{what}");
        assert!(reply.bodies >= 1, "{what}");
    }
}

const USUAL: [(&str, &str); 3] = [(":method", "GET"), (":path", "/"), (":scheme", "http")];

fn request_of(headers: &[(&str, &str)]) -> Vec<u8> {
    raw(kind::HEADERS, 5, 1, &block(headers))
}

/// A request with one field more, or with another value of it.
fn request_with(name: &str, value: &str) -> Vec<u8> {
    let kept = USUAL.into_iter().filter(|(n, v)| *n != name || *v == value);
    request_of(&kept.chain([(name, value)]).collect::<Vec<_>>())
}

/// A request with a body of this length, which is to follow.
fn post_of(length: &str) -> Vec<u8> {
    let usual = [(":method", "POST"), (":path", "/"), (":scheme", "http")];
    let all = [&usual[..], &[("content-length", length)]].concat();
    raw(kind::HEADERS, 4, 1, &block(&all))
}

#[test]
fn wrong_pseudo_header_fields_reset_the_stream() {
    let late = [
        (":method", "GET"),
        (":path", "/"),
        ("a", "b"),
        (":scheme", "http"),
    ];
    let faults = [
        ("no path", request_of(&USUAL[..1])),
        ("no method", request_of(&USUAL[1..2])),
        ("no scheme", request_of(&USUAL[..2])),
        ("an empty path", request_with(":path", "")),
        ("a second method", request_with(":method", "GET")),
        ("a response's field", request_with(":status", "200")),
        ("behind another field", request_of(&late)),
    ];
    assert_reset_the_stream(code::PROTOCOL_ERROR, &faults);
}

#[test]
fn forbidden_header_fields_reset_the_stream() {
    let canary = request_with("x-meshtax-canary", "a\r\nb: c");
    let faults = [
        ("an upper-case name", request_with("X-Test", "a")),
        ("connection", request_with("connection", "keep-alive")),
        ("a coding", request_with("te", "trailers, deflate")),
        ("a canary with a line break", canary),
        ("a length, no number", request_with("content-length", "+1")),
        ("a length, no body", request_with("content-length", "1")),
    ];
    assert_reset_the_stream(code::PROTOCOL_ERROR, &faults);
}

#[test]
fn bodies_and_trailers_that_contradict_their_headers_reset_the_stream() {
    let longer = [post_of("1"), raw(kind::DATA, 0, 1, b"ab")];
    let shorter = [post_of("3"), raw(kind::DATA, flag::END_STREAM, 1, b"ab")];
    let path = raw(kind::HEADERS, 5, 1, &block(&[(":path", "/")]));
    let faults = [
        ("a body longer than its length", longer.concat()),
        ("a body shorter than its length", shorter.concat()),
        ("a path in trailers", [post(1), path].concat()),
        ("half trailers", [post(1), post(1)].concat()),
    ];
    assert_reset_the_stream(code::PROTOCOL_ERROR, &faults);
}

#[test]
fn data_behind_the_end_of_a_stream_resets_it() {
    let data = || raw(kind::DATA, 0, 1, b"a");
    let reset = raw(kind::RST_STREAM, 0, 1, &[0; 4]);
    let faults = [
        ("the end of a request", [get(1), data()].concat()),
        ("its own reset", [post(1), reset, data()].concat()),
    ];
    assert_reset_the_stream(code::STREAM_CLOSED, &faults);
}

#[test]
fn window_updates_out_of_range_reset_the_stream() {
    let update = |by| [post(1), window_update(1, by)].concat();
    assert_reset_the_stream(code::PROTOCOL_ERROR, &[("no update", update(0))]);
    let too_large = [("too large a window", update(0x7fff_ffff))];
    assert_reset_the_stream(code::FLOW_CONTROL_ERROR, &too_large);
}

#[test]
fn unknown_frames_and_settings_are_ignored() {
    let app = App::start(|_| {});
    let noise = [
        raw(0xbb, 0xff, 7, b"unknown"),
        raw(kind::PRIORITY, 0, 1, &[0; 5]),
        raw(kind::PING, 0, 0, b"12345678"),
        raw(kind::PING, flag::ACK, 0, b"87654321"),
        raw(kind::GOAWAY, 0, 0, &[0; 12]),
        raw(kind::SETTINGS, 0, 0, &[0xaa, 0xaa, 0, 0, 0, 1]),
    ];
    let reply = reply_to(&app, &[preface(&[]), noise.concat(), get(1)].concat());
    assert_eq!((reply.bodies, reply.goaway), (1, None));
    assert_eq!(reply.pings, [b"12345678"]);
}

#[test]
fn the_preface_is_recognized_in_any_split() {
    let app = App::start(|_| {});
    for piece in [1, 5, 24, 25] {
        let mut stream = app.connect();
        stream.set_nodelay(true).unwrap();
        let bytes = [preface(&[]), get(1)].concat();
        for part in bytes.chunks(piece) {
            stream.write_all(part).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        let mut begin = [0; 4];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(begin[3], kind::SETTINGS);
    }
    // A response would be of no use to a client that speaks neither version.
    let mut wrong = PREFACE.to_vec();
    wrong[20] = b'x';
    assert_eq!(app.exchange(&wrong), "");
    assert_eq!(app.exchange(b"INVALID CONNECTION PREFACE\r\n\r\n"), "");
    assert!(
        app.exchange(b"PRI / HTTP/1.1\r\n\r\n")
            .starts_with("HTTP/1.1 200 ")
    );
    assert_eq!(app.exchange(b"PRI"), "");
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let app = App::start(|_| {});
    let open: Vec<u8> = (0..1200).flat_map(|i| post(1 + 2 * i)).collect();
    let reply = reply_to(&app, &[preface(&[]), open].concat());
    assert_eq!(reply.resets.len(), 200);
    assert_eq!(reply.resets[0], (2001, code::REFUSED_STREAM));
}

#[test]
fn a_client_that_never_reads_is_not_read_from() {
    let app = App::start(|_| {});
    let ping = raw(kind::PING, 0, 0, &[1; 8]).repeat(1000);
    for requests in [false, true] {
        let mut stream = app.connect();
        stream
            .set_write_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        stream
            .write_all(&preface(&[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]))
            .unwrap();
        let flood = |round: u32| match requests {
            false => ping.clone(),
            true => (0..1000)
                .flat_map(|i| get(1 + 2 * (1000 * round + i)))
                .collect(),
        };
        let taken = (0..20_000)
            .take_while(|round| stream.write_all(&flood(*round)).is_ok())
            .count();
        assert!(taken < 5000, "{taken} rounds");
    }
}

#[test]
fn deferred_responses_are_sent_after_the_client_has_ended() {
    let app = App::start(|config| {
        config.wait = Some(Wait::Uniform {
            from_ns: 50_000_000,
            to_ns: 60_000_000,
        });
    });
    let reply = reply_to(&app, &[preface(&[]), get(1), get(3)].concat());
    assert_eq!((reply.bodies, reply.goaway), (2, None));
}

/// One application for all cases, so that what one leaves behind strikes the next.
fn battered() -> &'static App {
    static APP: OnceLock<App> = OnceLock::new();
    APP.get_or_init(|| {
        App::start(|config| {
            config.response_bytes = 100_000;
            config.grpc_echo = true;
        })
    })
}

fn any_frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = || proptest::collection::vec(any::<u8>(), 0..40);
    let stream = || (0_u32..12).prop_map(|i| i);
    let grpc = || {
        block(&[
            (":method", "POST"),
            (":path", "/a/b"),
            (":scheme", "http"),
            ("content-type", "application/grpc"),
        ])
    };
    let one = prop_oneof![
        stream().prop_map(|id| raw(kind::HEADERS, 5, id, &get_block())),
        stream().prop_map(|id| raw(kind::HEADERS, 4, id, &get_block())),
        stream().prop_map(move |id| raw(kind::HEADERS, 4, id, &grpc())),
        (stream(), payload(), any::<bool>()).prop_map(|(id, body, end)| raw(
            kind::DATA,
            u8::from(end),
            id,
            &body
        )),
        (stream(), any::<u32>()).prop_map(|(id, by)| raw(
            kind::WINDOW_UPDATE,
            0,
            id,
            &by.to_be_bytes()
        )),
        (1_u16..7, any::<u32>()).prop_map(|(parameter, value)| {
            let mut out = Vec::new();
            frame::settings(&mut out, &[(parameter, value)]);
            out
        }),
        stream().prop_map(|id| raw(kind::RST_STREAM, 0, id, &[0; 4])),
        (any::<u8>(), any::<u8>(), stream(), payload())
            .prop_map(|(kind, flags, id, payload)| raw(kind, flags, id, &payload)),
        payload(),
    ];
    proptest::collection::vec(one, 0..20).prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_frames_never_break_the_server(bytes in any_frames(), with_preface in 0_u8..10) {
        let app = battered();
        let mut all = if with_preface > 0 { preface(&[]) } else { Vec::new() };
        all.extend(bytes);
        let mut stream = app.connect();
        let _ = stream.write_all(&all);
        let _ = stream.shutdown(Shutdown::Write);
        let end = stream.read_to_end(&mut Vec::new());
        let in_time = end.is_ok() || end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset);
        prop_assert!(in_time, "it hangs");
        prop_assert_eq!(app.stats().connections, 1);
    }
}
