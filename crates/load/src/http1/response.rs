//! Parses responses incrementally; nothing is stored.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Status};

use super::chunked::ChunkedBody;
use super::error::{MAX_HEAD_BYTES, ProtocolError};

/// A head in pieces is parsed again with every piece up to this size, beyond it with every line.
const EAGER_HEAD_BYTES: usize = 4096;

/// The most headers of a response.
const MAX_HEADERS: usize = 128;

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Whether the peer keeps the connection open for further requests.
    pub keep_alive: bool,
}

/// The outcome of some input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were consumed; the response is incomplete.
    More,
    /// The response ends within the bytes.
    Complete {
        /// The response.
        response: Response,
        /// How many bytes belong to it.
        consumed: usize,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Head,
    Length(u64),
    Chunked(ChunkedBody),
    UntilClose,
}

/// Parses consecutive responses from bytes in any split.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    state: State,
    /// The beginning of a head that arrived in pieces.
    partial_head: Vec<u8>,
    response: Response,
    to_head_request: bool,
    last: LastHead,
}

/// The last head that arrived in one piece, with its meaning: most responses of a server begin with
/// the same bytes.
#[derive(Clone, Debug)]
struct LastHead {
    bytes: Vec<u8>,
    to_head_request: bool,
    state: State,
    response: Response,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseParser {
    /// For a new connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Head,
            partial_head: Vec::new(),
            response: Response {
                status: 0,
                keep_alive: false,
            },
            to_head_request: false,
            last: LastHead {
                bytes: Vec::new(),
                to_head_request: false,
                state: State::Head,
                response: Response {
                    status: 0,
                    keep_alive: false,
                },
            },
        }
    }

    /// Whether the next response is to a `HEAD` request: it has no body then, whatever its head declares.
    pub fn expect_head(&mut self, to_head_request: bool) {
        self.to_head_request = to_head_request;
    }

    /// Discards an incomplete response, for a new connection.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.partial_head.clear();
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// When they are not a response; the parser must be [`reset`](Self::reset) then.
    pub fn feed(&mut self, input: &[u8]) -> Result<Progress, ProtocolError> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let ended = match &mut self.state {
                State::Head => match self.feed_head(rest)? {
                    None => return Ok(Progress::More),
                    Some(used) => {
                        at += used;
                        self.state == State::Length(0)
                    }
                },
                State::Length(left) => {
                    let used = (*left).min(rest.len() as u64);
                    *left -= used;
                    at += used as usize;
                    if *left > 0 {
                        return Ok(Progress::More);
                    }
                    true
                }
                State::Chunked(body) => match body.feed(rest)? {
                    None => return Ok(Progress::More),
                    Some(used) => {
                        at += used;
                        true
                    }
                },
                State::UntilClose => return Ok(Progress::More),
            };
            if ended {
                self.state = State::Head;
                return Ok(Progress::Complete {
                    response: self.response,
                    consumed: at,
                });
            }
        }
    }

    /// The peer closed the connection: the response that this completes, if any.
    pub fn end(&mut self) -> Option<Response> {
        let complete = self.state == State::UntilClose;
        self.reset();
        complete.then_some(self.response)
    }

    /// `None`: the head is incomplete. Otherwise it was interpreted; its length.
    fn feed_head(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.partial_head.is_empty() {
            if let Some(used) = self.as_last_time(input) {
                return Ok(Some(used));
            }
            let Some(used) = self.parse_head(input)? else {
                self.partial_head.extend_from_slice(input);
                return Ok(None);
            };
            self.remember(&input[..used]);
            return Ok(Some(used));
        }
        let before = self.partial_head.len();
        let length = before + input.len();
        if (EAGER_HEAD_BYTES..=MAX_HEAD_BYTES).contains(&length) && !input.contains(&b'\n') {
            // A head ends with a line. Parsing a long one again for every byte would take seconds.
            self.partial_head.extend_from_slice(input);
            return Ok(None);
        }
        let mut head = std::mem::take(&mut self.partial_head);
        head.extend_from_slice(input);
        let parsed = self.parse_head(&head);
        self.partial_head = head;
        let Some(end) = parsed? else {
            return Ok(None);
        };
        self.partial_head.clear();
        Ok(Some(end.saturating_sub(before)))
    }

    /// The length of the head, if it is the same as the last one.
    fn as_last_time(&mut self, input: &[u8]) -> Option<usize> {
        let last = &self.last;
        let same = !last.bytes.is_empty()
            && last.to_head_request == self.to_head_request
            && input.starts_with(&last.bytes);
        same.then(|| {
            self.state = last.state.clone();
            self.response = last.response;
            last.bytes.len()
        })
    }

    fn remember(&mut self, head: &[u8]) {
        if self.state == State::Head {
            // An interim response: the final one follows.
            return;
        }
        self.last.bytes.clear();
        self.last.bytes.extend_from_slice(head);
        self.last.to_head_request = self.to_head_request;
        self.last.state = self.state.clone();
        self.last.response = self.response;
    }

    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let status = ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, bytes, &mut headers)
            .map_err(ProtocolError::Head)?;
        let length = match status {
            Status::Complete(length) => length,
            Status::Partial => bytes.len(),
        };
        if length > MAX_HEAD_BYTES {
            return Err(ProtocolError::HeadTooLong);
        }
        if status.is_partial() {
            return Ok(None);
        }
        self.interpret(&response)?;
        Ok(Some(length))
    }

    /// How the body is framed: RFC 9112, section 6.3.
    fn interpret(&mut self, response: &httparse::Response<'_, '_>) -> Result<(), ProtocolError> {
        let status = response.code.unwrap_or(0);
        if status == 101 {
            return Err(ProtocolError::Upgrade);
        }
        if (100..200).contains(&status) {
            // Interim: the final response follows.
            return Ok(());
        }
        let framing = Framing::of(response)?;
        self.response = Response {
            status,
            keep_alive: framing.keep_alive,
        };
        let bodiless = self.to_head_request || status == 204 || status == 304;
        self.state = if bodiless {
            State::Length(0)
        } else if framing.chunked {
            State::Chunked(ChunkedBody::default())
        } else if framing.transfer_encoded {
            State::UntilClose
        } else {
            framing.length.map_or(State::UntilClose, State::Length)
        };
        if self.state == State::UntilClose {
            self.response.keep_alive = false;
        }
        Ok(())
    }
}

/// The headers that determine the end of a body and whether the connection is kept.
struct Framing {
    length: Option<u64>,
    transfer_encoded: bool,
    chunked: bool,
    keep_alive: bool,
}

impl Framing {
    fn of(response: &httparse::Response<'_, '_>) -> Result<Self, ProtocolError> {
        let mut framing = Self {
            length: None,
            transfer_encoded: false,
            chunked: false,
            keep_alive: response.version == Some(1),
        };
        for header in response.headers.iter() {
            // The length is compared first: most headers are none of these.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    framing.add_length(header.value)?;
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    framing.transfer_encoded = true;
                    framing.chunked = last_token_is(header.value, "chunked");
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    if has_token(header.value, "close") {
                        framing.keep_alive = false;
                    } else if has_token(header.value, "keep-alive") {
                        framing.keep_alive = true;
                    }
                }
                _ => {}
            }
        }
        Ok(framing)
    }

    /// Several equal lengths are one; different ones are an attack or a bug.
    fn add_length(&mut self, value: &[u8]) -> Result<(), ProtocolError> {
        for part in value.split(|b| *b == b',') {
            let part = part.trim_ascii();
            if part.is_empty() || !part.iter().all(u8::is_ascii_digit) {
                return Err(ProtocolError::ContentLength);
            }
            let length = std::str::from_utf8(part)
                .ok()
                .and_then(|digits| digits.parse::<u64>().ok())
                .ok_or(ProtocolError::ContentLength)?;
            if self.length.is_some_and(|known| known != length) {
                return Err(ProtocolError::ContentLength);
            }
            self.length = Some(length);
        }
        Ok(())
    }
}

fn has_token(list: &[u8], token: &str) -> bool {
    list.split(|b| *b == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn last_token_is(list: &[u8], token: &str) -> bool {
    list.split(|b| *b == b',')
        .next_back()
        .is_some_and(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}
