//! What a connection makes of its peer's bytes, without a socket: for `fuzz/`, and of no use to
//! anyone else.

use crate::spec::{LoadSpec, Protocol, Request};
use crate::wire::{Encoded, Event, Wire};

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which of those under way.
    pub slot: u32,
    /// Status and gRPC status of its response; `None`: it failed.
    pub status: Option<(u16, Option<u16>)>,
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Client {
    encoded: Encoded,
    wire: Wire,
    /// Which slots have a request, and whether its response has begun.
    slots: Vec<Option<bool>>,
    out: Vec<u8>,
}

impl Client {
    /// A connection that was just opened. Its requests have a body of so many bytes.
    #[must_use]
    pub fn new(protocol: Protocol, body_bytes: usize) -> Self {
        let target = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let mut spec = LoadSpec::new(target);
        spec.protocol = protocol;
        spec.requests = vec![Request {
            body: vec![b'x'; body_bytes],
            ..Request::get("a".into())
        }];
        let encoded = Encoded::new(&spec);
        let mut wire = encoded.wire(protocol.streams());
        let mut out = Vec::new();
        wire.open(&mut out);
        Self {
            encoded,
            wire,
            slots: vec![None; protocol.streams() as usize],
            out,
        }
    }

    /// Sends as many requests as the peer allows. What was written until now has been read.
    pub fn fill(&mut self) {
        self.out.clear();
        for slot in 0..self.slots.len() as u32 {
            let under_way = self.slots.iter().flatten().count() as u32;
            let has_room = self.wire.goes_on() && under_way < self.wire.capacity();
            if has_room && self.slots[slot as usize].is_none() {
                self.slots[slot as usize] = Some(false);
                self.wire
                    .start(&self.encoded, 0, slot, false, &mut self.out);
            }
        }
    }

    /// Takes bytes of the peer; whether it goes on after them, and what ended.
    ///
    /// # Panics
    /// When a request ends that is not under way, or gets a response before its response began: that
    /// is what the fuzzer looks for.
    pub fn feed(&mut self, bytes: &[u8]) -> (bool, Vec<Outcome>) {
        let mut events = Vec::new();
        let fed = self
            .wire
            .feed(&self.encoded, bytes, &mut events, &mut self.out);
        let mut outcomes = Vec::new();
        for event in events {
            match event {
                Event::FirstByte { slot } => {
                    let begun = self.slots[slot as usize].replace(true);
                    assert_eq!(begun, Some(false), "a response begins once");
                }
                Event::Response { slot, status } => {
                    let begun = self.slots[slot as usize].take();
                    assert_eq!(begun, Some(true), "a response begins before it ends");
                    outcomes.push(Outcome {
                        slot,
                        status: Some((status.http, status.grpc)),
                    });
                }
                Event::Failed { slot, .. } => {
                    let begun = self.slots[slot as usize].take();
                    assert!(begun.is_some(), "only what is under way fails");
                    outcomes.push(Outcome { slot, status: None });
                }
            }
        }
        (fed.is_ok(), outcomes)
    }

    /// Gives up a request, if there is one.
    pub fn give_up(&mut self, slot: u32) {
        if self.slots[slot as usize].take().is_some() {
            self.wire.give_up(slot, &mut self.out);
        }
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.out.len()
    }
}
