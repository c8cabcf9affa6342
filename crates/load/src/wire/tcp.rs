//! A plain echo: what was sent comes back.

use super::{Answer, Event, WireError};

/// A connection's state.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    /// Bytes that are still to come back.
    awaited: usize,
    begun: bool,
}

impl Tcp {
    pub(crate) fn start(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        self.awaited = payload.len();
        self.begun = false;
        out.extend_from_slice(payload);
    }

    pub(crate) fn feed(&mut self, input: &[u8], events: &mut Vec<Event>) -> Result<(), WireError> {
        if input.len() > self.awaited {
            return Err(WireError::Unasked);
        }
        if !self.begun {
            self.begun = true;
            events.push(Event::FirstByte { slot: 0 });
        }
        self.awaited -= input.len();
        if self.awaited == 0 {
            let answer = Answer {
                status: 200,
                grpc_status: None,
            };
            events.push(Event::Answer { slot: 0, answer });
        }
        Ok(())
    }
}
