//! HTTP/1.1 on a connection: one request at a time.

use super::{Answer, Event, WireError};
use crate::http1::{Progress, ResponseParser, encode_request};
use crate::spec::Request;

/// A request's bytes, ready to be sent.
#[derive(Debug)]
pub(crate) struct Http1Request {
    bytes: Vec<u8>,
    /// With the announcement that the connection ends after it.
    closing: Vec<u8>,
    is_head: bool,
}

impl Http1Request {
    pub(crate) fn new(request: &Request) -> Self {
        Self {
            bytes: encode_request(request, false),
            closing: encode_request(request, true),
            is_head: request.method == "HEAD",
        }
    }
}

/// A connection's state.
#[derive(Debug)]
pub(crate) struct Http1 {
    parser: ResponseParser,
    busy: bool,
    /// Whether the answer in hand has begun.
    begun: bool,
    pub(crate) goes_on: bool,
}

impl Default for Http1 {
    fn default() -> Self {
        Self {
            parser: ResponseParser::new(),
            busy: false,
            begun: false,
            goes_on: true,
        }
    }
}

impl Http1 {
    pub(crate) fn start(&mut self, request: &Http1Request, last: bool, out: &mut Vec<u8>) {
        self.busy = true;
        self.begun = false;
        self.parser.expect_head(request.is_head);
        out.extend_from_slice(if last {
            &request.closing
        } else {
            &request.bytes
        });
    }

    pub(crate) fn feed(&mut self, input: &[u8], events: &mut Vec<Event>) -> Result<(), WireError> {
        if !self.busy {
            return Err(WireError::Unasked);
        }
        if !self.begun {
            self.begun = true;
            events.push(Event::FirstByte { slot: 0 });
        }
        if let Progress::Complete { answer, consumed } = self.parser.feed(input)? {
            // Bytes after the answer leave the connection in a state that nobody can tell.
            self.goes_on = answer.keep_alive && consumed == input.len();
            self.answered(answer.status, events);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, events: &mut Vec<Event>) {
        self.goes_on = false;
        if let Some(answer) = self.parser.end().filter(|_| self.busy) {
            self.answered(answer.status, events);
        }
    }

    fn answered(&mut self, status: u16, events: &mut Vec<Event>) {
        self.busy = false;
        let answer = Answer {
            status,
            grpc_status: None,
        };
        events.push(Event::Answer { slot: 0, answer });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(input: &str) -> (Http1, Result<(), WireError>, Vec<Event>) {
        let mut http1 = Http1::default();
        let request = Http1Request::new(&Request::get("a".into()));
        http1.start(&request, false, &mut Vec::new());
        let mut events = Vec::new();
        let result = http1.feed(input.as_bytes(), &mut events);
        (http1, result, events)
    }

    #[test]
    fn two_answers_for_one_request_end_the_connection() {
        let one = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let (http1, result, events) = fed(&one.repeat(2));
        assert_eq!((result, events.len(), http1.goes_on), (Ok(()), 2, false));
    }

    #[test]
    fn an_answer_nobody_asked_for_is_an_error() {
        let (mut http1, ..) = fed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        assert!(http1.goes_on);
        assert_eq!(http1.feed(b"H", &mut Vec::new()), Err(WireError::Unasked));
    }

    #[test]
    fn the_last_request_says_so() {
        let request = Http1Request::new(&Request::get("a".into()));
        let mut out = Vec::new();
        Http1::default().start(&request, true, &mut out);
        assert!(out.windows(19).any(|w| w == b"connection: close\r\n"));
    }
}
