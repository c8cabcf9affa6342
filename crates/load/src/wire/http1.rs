//! HTTP/1.1 on a connection: one request at a time.

use super::event::{Event, ResponseStatus, WireError};
use crate::http1::{Progress, ResponseParser, encode_request};
use crate::spec::Request;

/// A request's bytes, ready to be sent.
#[derive(Debug)]
pub(crate) struct Http1Request {
    bytes: Vec<u8>,
    /// The same with `connection: close`.
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

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Http1 {
    parser: ResponseParser,
    busy: bool,
    /// Whether the current response has begun.
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
            return Err(WireError::Unsolicited);
        }
        if !self.begun {
            self.begun = true;
            events.push(Event::FirstByte { slot: 0 });
        }
        if let Progress::Complete { response, consumed } = self.parser.feed(input)? {
            // Bytes behind the response leave the connection in an unknown state.
            self.goes_on = response.keep_alive && consumed == input.len();
            self.complete(response.status, events);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, events: &mut Vec<Event>) {
        self.goes_on = false;
        if let Some(response) = self.parser.end().filter(|_| self.busy) {
            self.complete(response.status, events);
        }
    }

    fn complete(&mut self, http: u16, events: &mut Vec<Event>) {
        self.busy = false;
        let status = ResponseStatus { http, grpc: None };
        events.push(Event::Response { slot: 0, status });
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
    fn two_responses_to_one_request_end_the_connection() {
        let one = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let (http1, result, events) = fed(&one.repeat(2));
        assert_eq!((result, events.len(), http1.goes_on), (Ok(()), 2, false));
    }

    #[test]
    fn an_unsolicited_response_is_an_error() {
        let (mut http1, ..) = fed("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        assert!(http1.goes_on);
        assert_eq!(
            http1.feed(b"H", &mut Vec::new()),
            Err(WireError::Unsolicited)
        );
    }

    #[test]
    fn the_last_request_announces_the_close() {
        let request = Http1Request::new(&Request::get("a".into()));
        let mut out = Vec::new();
        Http1::default().start(&request, true, &mut out);
        assert!(out.windows(19).any(|w| w == b"connection: close\r\n"));
    }
}
