//! The load generator's end of an HTTP/2 connection: every request ends at most once, whatever
//! the server says, and however its bytes are split.
//!
//! Input: a byte for the protocol and the requests, a byte for how the bytes are split, then what
//! the server sends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use meshtax_load::Protocol;
use meshtax_load::fuzzing::{Client, Outcome};

const STREAMS: u32 = 8;

/// Of which no server may make more wait.
const MOST_UNSENT_BYTES: usize = 1 << 20;

fn client(first: u8) -> Client {
    let streams = STREAMS;
    let protocol = if first & 1 == 0 {
        Protocol::Http2 { streams }
    } else {
        Protocol::Grpc { streams }
    };
    // None, a few, and more than the first window holds.
    let body_bytes = [0, 100, 70_000][usize::from(first >> 1) % 3];
    let mut client = Client::new(protocol, body_bytes);
    client.fill();
    client
}

/// Requests that are sent at once, and no others.
fn at_once(first: u8, bytes: &[u8], piece: usize) -> (bool, Vec<Outcome>) {
    let mut client = client(first);
    let mut all = Vec::new();
    for piece in bytes.chunks(piece) {
        let (goes_on, outcomes) = client.feed(piece);
        all.extend(outcomes);
        if !goes_on {
            return (false, all);
        }
        assert!(client.unsent_bytes() < MOST_UNSENT_BYTES);
    }
    (true, all)
}

/// As in a closed loop: who has its response asks again. Now and then one is given up.
fn again_and_again(first: u8, bytes: &[u8], piece: usize) {
    let mut client = client(first);
    for (turn, piece) in (0_u32..).zip(bytes.chunks(piece)) {
        let (goes_on, _) = client.feed(piece);
        if !goes_on {
            return;
        }
        if turn % 16 == 15 {
            client.give_up(turn / 16 % STREAMS);
        }
        client.fill();
    }
}

fuzz_target!(|data: &[u8]| {
    let [first, split, bytes @ ..] = data else {
        return;
    };
    let whole = at_once(*first, bytes, bytes.len().max(1));
    let piece = usize::from(*split) + 2;
    assert_eq!(at_once(*first, bytes, 1), whole);
    assert_eq!(at_once(*first, bytes, piece), whole);
    again_and_again(*first, bytes, piece);
});
