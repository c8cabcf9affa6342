//! A TCP echo.

use super::event::{Event, ResponseStatus, WireError};

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    /// Bytes of the echo still missing.
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
            return Err(WireError::Unsolicited);
        }
        if !self.begun {
            self.begun = true;
            events.push(Event::FirstByte { slot: 0 });
        }
        self.awaited -= input.len();
        if self.awaited == 0 {
            let status = ResponseStatus {
                http: 200,
                grpc: None,
            };
            events.push(Event::Response { slot: 0, status });
        }
        Ok(())
    }
}
