//! Long bodies are nobody's memory.

use std::io::{Read, Write};
use std::time::Duration;

use meshtax_http2::frame::{self, PREFACE, setting};
use meshtax_http2::hpack::encode_literal;

use super::App;

/// What this process has in memory, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

fn http1_request() -> Vec<u8> {
    b"GET / HTTP/1.1\r\n\r\n".repeat(3)
}

/// Three requests, with windows that hold all their responses.
fn http2_requests() -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    frame::settings(&mut out, &[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    frame::window_update(&mut out, 0, 0x7fff_0000);
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":path", "/"), (":scheme", "http")] {
        encode_literal(&mut block, name.as_bytes(), value.as_bytes());
    }
    for stream in [1, 3, 5] {
        frame::headers(&mut out, stream, &block, true);
    }
    out
}

#[test]
fn long_bodies_are_not_buffered() {
    let app = App::start(|config| config.response_bytes = 100_000_000);
    // Other tests run in this process at the same time, so the bound is wide: copies would be
    // four gigabytes.
    let before = resident();
    for request in [http1_request(), http2_requests()] {
        let mut streams: Vec<_> = (0..20).map(|_| app.connect()).collect();
        for stream in &mut streams {
            stream.write_all(&request).unwrap();
            stream.read_exact(&mut [0; 20]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        let grown = resident().saturating_sub(before);
        assert!(grown < 300_000_000, "{grown} bytes");
    }
}
