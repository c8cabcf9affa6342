use proptest::prelude::*;

use super::*;
use crate::frame::{self, code};

/// Pieces with bytes of their own; the pieces of a DATA frame are joined.
#[derive(Debug, PartialEq, Eq)]
enum Owned {
    Frame(FrameHeader, Vec<u8>),
    Data(FrameHeader, Vec<u8>, bool),
}

/// What comes of bytes that arrive in pieces of these lengths, in turn.
fn read(bytes: &[u8], lengths: &[usize], max: u32) -> (Vec<Owned>, Option<FrameError>) {
    let mut reader = FrameReader::new(max);
    let mut all: Vec<Owned> = Vec::new();
    let (mut rest, mut turn) = (bytes, 0);
    while !rest.is_empty() {
        let length = lengths[turn % lengths.len()];
        turn += 1;
        let mut input = take(&mut rest, length);
        loop {
            match reader.next(&mut input) {
                Ok(None) => break,
                Ok(Some(piece)) => add(&mut all, &piece),
                Err(error) => return (all, Some(error)),
            }
        }
        assert!(input.is_empty(), "all is used before more is asked for");
    }
    (all, None)
}

fn add(all: &mut Vec<Owned>, piece: &Piece<'_>) {
    match *piece {
        Piece::Frame { header, payload } => all.push(Owned::Frame(header, payload.to_vec())),
        Piece::Data {
            header,
            bytes,
            first: true,
            last,
        } => all.push(Owned::Data(header, bytes.to_vec(), last)),
        Piece::Data { bytes, last, .. } => match all.last_mut() {
            Some(Owned::Data(_, body, done)) if !*done => {
                body.extend_from_slice(bytes);
                *done = last;
            }
            other => panic!("a piece of DATA behind {other:?}"),
        },
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = FrameHeader {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    header.write(&mut out);
    out.extend_from_slice(payload);
    out
}

fn any_frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = || proptest::collection::vec(any::<u8>(), 0..60);
    let one = prop_oneof![
        (any::<bool>(), payload()).prop_map(|(end, body)| {
            let mut out = Vec::new();
            frame::data(&mut out, 1, &body, end);
            out
        }),
        (payload(), 0_u8..20).prop_map(|(body, padding)| {
            let mut padded = vec![padding];
            padded.extend_from_slice(&body);
            padded.extend(vec![0; usize::from(padding)]);
            frame(kind::DATA, flag::PADDED, 3, &padded)
        }),
        (0_usize..70, any::<bool>()).prop_map(|(length, end)| {
            let block = vec![b'h'; length * 700];
            let mut out = Vec::new();
            frame::headers(&mut out, 5, &block, end);
            out
        }),
        (payload(), 0_u8..9, 0_usize..3).prop_map(|(block, padding, continued)| {
            let mut padded = vec![padding, 0, 0, 0, 0, 7];
            padded.extend_from_slice(&block);
            padded.extend(vec![0; usize::from(padding)]);
            let last = |more: usize| {
                if more == continued {
                    flag::END_HEADERS
                } else {
                    0
                }
            };
            let flags = flag::PADDED | flag::PRIORITY | last(0);
            let mut out = frame(kind::HEADERS, flags, 9, &padded);
            for more in 1..=continued {
                out.extend(frame(kind::CONTINUATION, last(more), 9, &block));
            }
            out
        }),
        any::<[u8; 8]>().prop_map(|payload| frame(kind::PING, 0, 0, &payload)),
        any::<bool>().prop_map(|_| frame(kind::SETTINGS, flag::ACK, 0, &[])),
        (1_u32..9).prop_map(|by| frame(kind::WINDOW_UPDATE, 0, 1, &by.to_be_bytes())),
        payload().prop_map(|payload| frame(0x77, 0xff, 2, &payload)),
    ];
    proptest::collection::vec(one, 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_frames(
        bytes in any_frames(),
        lengths in proptest::collection::vec(1_usize..400, 1..6),
    ) {
        let (whole, error) = read(&bytes, &[usize::MAX], 16_384);
        prop_assert_eq!(error, None);
        prop_assert_eq!(&read(&bytes, &lengths, 16_384).0, &whole);
        prop_assert_eq!(&read(&bytes, &[1], 16_384).0, &whole);
        let unfinished = |piece: &Owned| matches!(piece, Owned::Data(_, _, false));
        prop_assert!(!whole.iter().any(unfinished));
    }

    #[test]
    fn garbage_never_panics(
        mut bytes in any_frames(),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..9),
        tail in proptest::collection::vec(any::<u8>(), 0..90),
        lengths in proptest::collection::vec(1_usize..60, 1..4),
    ) {
        bytes.extend(tail);
        for (place, value) in noise {
            if !bytes.is_empty() {
                let at = place.index(bytes.len());
                bytes[at] = value;
            }
        }
        let whole = read(&bytes, &[usize::MAX], 16_384);
        let (pieces, error) = read(&bytes, &lengths, 16_384);
        prop_assert_eq!(error, whole.1);
        prop_assert_eq!(pieces, whole.0);
    }
}

#[test]
fn header_blocks_are_joined_without_padding_and_priority() {
    let mut bytes = frame(
        kind::HEADERS,
        flag::PADDED | flag::PRIORITY | flag::END_STREAM,
        5,
        &[1, 0, 0, 0, 0, 7, b'a', 0],
    );
    bytes.extend(frame(kind::CONTINUATION, 0, 5, b""));
    bytes.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 5, b"bc"));
    for length in 1..=bytes.len() {
        let (pieces, error) = read(&bytes, &[length], 16_384);
        assert_eq!(error, None);
        let [Owned::Frame(header, block)] = &pieces[..] else {
            panic!("{pieces:?}");
        };
        assert_eq!(block, b"abc");
        assert_eq!((header.length, header.stream), (3, 5));
        assert_eq!(header.flags, flag::END_STREAM | flag::END_HEADERS);
        assert_eq!(strip_padding(header, block), Ok(&b"abc"[..]));
    }
}

#[test]
fn flow_control_length_is_reported_once_with_padding() {
    let bytes = frame(kind::DATA, flag::PADDED, 1, &[2, b'x', b'y', 0, 0]);
    let mut reader = FrameReader::new(16_384);
    let mut counted = 0;
    for byte in &bytes {
        let mut input = std::slice::from_ref(byte);
        while let Some(piece) = reader.next(&mut input).unwrap() {
            if let Piece::Data { header, first, .. } = piece {
                counted += if first { header.length } else { 0 };
            }
        }
    }
    assert_eq!(counted, 5);
}

#[test]
fn invalid_frames_are_rejected() {
    let wrong = [
        (frame(kind::PING, 0, 0, &[0; 7]), code::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, 0, 0, &[0; 5]), code::FRAME_SIZE_ERROR),
        (frame(kind::SETTINGS, 1, 0, &[0; 6]), code::FRAME_SIZE_ERROR),
        (frame(kind::DATA, 0, 1, &[0; 101]), code::FRAME_SIZE_ERROR),
        (frame(kind::DATA, 8, 1, &[]), code::FRAME_SIZE_ERROR),
        (frame(kind::DATA, 8, 1, &[1]), code::PROTOCOL_ERROR),
        (frame(kind::DATA, 0, 0, &[1]), code::PROTOCOL_ERROR),
        (frame(kind::SETTINGS, 0, 1, &[]), code::PROTOCOL_ERROR),
        (frame(kind::CONTINUATION, 4, 1, &[]), code::PROTOCOL_ERROR),
    ];
    for (bytes, code) in wrong {
        let (pieces, error) = read(&bytes, &[3], 100);
        assert_eq!(error.map(|e| e.code()), Some(code), "{bytes:?}");
        assert!(pieces.is_empty());
    }
    let mut between = frame(kind::HEADERS, 0, 1, b"a");
    between.extend(frame(kind::PING, 0, 0, &[0; 8]));
    let error = read(&between, &[9], 100).1;
    assert_eq!(error, Some(FrameError::Order { kind: kind::PING }));
}

#[test]
fn an_endless_header_block_is_rejected() {
    let mut bytes = frame(kind::HEADERS, 0, 1, b"a");
    for _ in 0..MAX_BLOCK_BYTES {
        bytes.extend(frame(kind::CONTINUATION, 0, 1, b""));
    }
    let error = read(&bytes, &[16_384], 16_384).1.unwrap();
    assert_eq!(error.code(), code::ENHANCE_YOUR_CALM);
}
