//! HTTP/1.1 as bytes: requests out, answers in. Pure, incremental, nothing is stored.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

use crate::spec::Request;

/// The longest head of an answer, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A head in pieces is parsed again with every piece up to this size, beyond it with every line.
const EAGER_HEAD_BYTES: usize = 4096;

/// The most headers of an answer.
const MAX_HEADERS: usize = 128;

/// The longest chunk extension or trailer section, in bytes.
const MAX_CHUNK_EXTRA_BYTES: u32 = 64 * 1024;

/// Why bytes are not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Not HTTP at all.
    #[error("the head is not HTTP/1: {0}")]
    Head(httparse::Error),
    /// The head does not end.
    #[error("the head is longer than {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    /// Lengths that are no number, or contradict each other.
    #[error("the content-length is not one number")]
    ContentLength,
    /// A body whose end cannot be told.
    #[error("the chunks of the body are malformed")]
    Chunk,
    /// 101, which nobody asked for.
    #[error("the answer switches protocols")]
    Upgrade,
}

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Whether the peer lets the connection carry another request.
    pub keep_alive: bool,
}

/// What came of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All bytes were consumed, and the answer goes on.
    More,
    /// The answer ends after so many of the bytes.
    Complete {
        /// The answer.
        answer: Answer,
        /// Bytes that belong to it.
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

/// Reads one answer after another from bytes that come in any pieces.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    state: State,
    /// Only what came of a head that was cut in pieces.
    partial_head: Vec<u8>,
    answer: Answer,
    to_head_request: bool,
    last: LastHead,
}

/// The last head that came in one piece, and what it said: a server's answers mostly begin with
/// the same bytes, and the same bytes mean the same.
#[derive(Clone, Debug)]
struct LastHead {
    bytes: Vec<u8>,
    to_head_request: bool,
    state: State,
    answer: Answer,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseParser {
    /// At the begin of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::Head,
            partial_head: Vec::new(),
            answer: Answer {
                status: 0,
                keep_alive: false,
            },
            to_head_request: false,
            last: LastHead {
                bytes: Vec::new(),
                to_head_request: false,
                state: State::Head,
                answer: Answer {
                    status: 0,
                    keep_alive: false,
                },
            },
        }
    }

    /// The next answer is to a `HEAD` request: it has no body, whatever its head says.
    pub fn expect_head(&mut self, to_head_request: bool) {
        self.to_head_request = to_head_request;
    }

    /// Forgets a half-read answer, for a new connection.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.partial_head.clear();
    }

    /// Takes the next bytes of the connection.
    ///
    /// # Errors
    /// When they cannot be an answer; the parser must be [`reset`](Self::reset) then.
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
                    answer: self.answer,
                    consumed: at,
                });
            }
        }
    }

    /// The peer closed: the answer that this completes, if any.
    pub fn end(&mut self) -> Option<Answer> {
        let complete = self.state == State::UntilClose;
        self.reset();
        complete.then_some(self.answer)
    }

    /// `None`: the head goes on. Otherwise it was interpreted and ends after so many bytes.
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
            // A head ends with a line. Parsing a long one again for every byte that comes would
            // cost seconds.
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

    /// The head is the same as the last one.
    fn as_last_time(&mut self, input: &[u8]) -> Option<usize> {
        let last = &self.last;
        let same = !last.bytes.is_empty()
            && last.to_head_request == self.to_head_request
            && input.starts_with(&last.bytes);
        same.then(|| {
            self.state = last.state.clone();
            self.answer = last.answer;
            last.bytes.len()
        })
    }

    fn remember(&mut self, head: &[u8]) {
        if self.state == State::Head {
            // An interim answer: what follows it decides.
            return;
        }
        self.last.bytes.clear();
        self.last.bytes.extend_from_slice(head);
        self.last.to_head_request = self.to_head_request;
        self.last.state = self.state.clone();
        self.last.answer = self.answer;
    }

    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
        let mut response = Response::new(&mut []);
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
    fn interpret(&mut self, response: &Response<'_, '_>) -> Result<(), ProtocolError> {
        let status = response.code.unwrap_or(0);
        if status == 101 {
            return Err(ProtocolError::Upgrade);
        }
        if (100..200).contains(&status) {
            // Interim: the real answer follows.
            return Ok(());
        }
        let framing = Framing::of(response)?;
        self.answer = Answer {
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
            self.answer.keep_alive = false;
        }
        Ok(())
    }
}

/// The headers that say where a body ends and whether the connection goes on.
struct Framing {
    length: Option<u64>,
    transfer_encoded: bool,
    chunked: bool,
    keep_alive: bool,
}

impl Framing {
    fn of(response: &Response<'_, '_>) -> Result<Self, ProtocolError> {
        let mut framing = Self {
            length: None,
            transfer_encoded: false,
            chunked: false,
            keep_alive: response.version == Some(1),
        };
        for header in response.headers.iter() {
            // By length first: nearly all headers are none of these.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
}

/// Skips a chunked body that comes in any pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChunkedBody {
    state: ChunkState,
    size: u64,
    digits: u32,
    extra_bytes: u32,
}

impl Default for ChunkedBody {
    fn default() -> Self {
        Self {
            state: ChunkState::Size,
            size: 0,
            digits: 0,
            extra_bytes: 0,
        }
    }
}

impl ChunkedBody {
    /// `Some(n)`: the body ends after n of the bytes.
    fn feed(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            if self.state == ChunkState::Data {
                let used = self.size.min((input.len() - at) as u64);
                self.size -= used;
                at += used as usize;
                if self.size == 0 {
                    self.state = ChunkState::DataReturn;
                }
                continue;
            }
            let byte = input[at];
            at += 1;
            if self.state == ChunkState::LastLineFeed && byte == b'\n' {
                return Ok(Some(at));
            }
            self.state = self.after(byte)?;
        }
        Ok(None)
    }

    fn after(&mut self, byte: u8) -> Result<ChunkState, ProtocolError> {
        use ChunkState as S;
        Ok(match (self.state, byte) {
            (S::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.digit(byte)?,
            (S::Size, b'\r') if self.digits > 0 => S::SizeLineFeed,
            (S::Size, b';' | b' ' | b'\t') if self.digits > 0 => S::Extension,
            (S::Extension, b'\r') => S::SizeLineFeed,
            (S::Extension, _) if byte != b'\n' => self.extra(S::Extension)?,
            (S::SizeLineFeed, b'\n') => {
                self.digits = 0;
                self.extra_bytes = 0;
                if self.size == 0 {
                    S::TrailerStart
                } else {
                    S::Data
                }
            }
            (S::DataReturn, b'\r') => S::DataLineFeed,
            (S::DataLineFeed, b'\n') => S::Size,
            (S::TrailerStart, b'\r') => S::LastLineFeed,
            (S::Trailer, b'\r') => S::TrailerLineFeed,
            (S::TrailerStart | S::Trailer, _) if byte != b'\n' => self.extra(S::Trailer)?,
            (S::TrailerLineFeed, b'\n') => S::TrailerStart,
            _ => return Err(ProtocolError::Chunk),
        })
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, ProtocolError> {
        // Fifteen hexadecimal digits: no sum of bytes can overflow.
        if self.digits == 15 {
            return Err(ProtocolError::Chunk);
        }
        let value = (byte as char).to_digit(16).ok_or(ProtocolError::Chunk)?;
        self.digits += 1;
        self.size = self.size * 16 + u64::from(value);
        Ok(ChunkState::Size)
    }

    fn extra(&mut self, state: ChunkState) -> Result<ChunkState, ProtocolError> {
        self.extra_bytes += 1;
        if self.extra_bytes > MAX_CHUNK_EXTRA_BYTES {
            return Err(ProtocolError::Chunk);
        }
        Ok(state)
    }
}

/// The bytes of a request; with `close`, the connection is to end after it.
#[must_use]
pub fn encode_request(request: &Request, close: bool) -> Vec<u8> {
    let mut text = format!(
        "{} {} HTTP/1.1\r\nhost: {}\r\n",
        request.method, request.path, request.host
    );
    for (name, value) in &request.headers {
        text.push_str(name);
        text.push_str(": ");
        text.push_str(value);
        text.push_str("\r\n");
    }
    if close {
        text.push_str("connection: close\r\n");
    }
    let expects_body = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if expects_body || !request.body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", request.body.len()));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&request.body);
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All answers in the bytes, fed in pieces of these sizes (cyclically).
    fn parse(
        bytes: &[u8],
        pieces: &[usize],
    ) -> Result<(Vec<Answer>, Option<Answer>), ProtocolError> {
        let mut parser = ResponseParser::new();
        let (mut answers, mut at, mut turn) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let piece = pieces[turn % pieces.len()].max(1);
            turn += 1;
            let end = (at + piece).min(bytes.len());
            while at < end {
                match parser.feed(&bytes[at..end])? {
                    Progress::More => at = end,
                    Progress::Complete { answer, consumed } => {
                        at += consumed;
                        answers.push(answer);
                    }
                }
            }
        }
        Ok((answers, parser.end()))
    }

    fn one(text: &str) -> Answer {
        let (answers, rest) = parse(text.as_bytes(), &[usize::MAX >> 1]).unwrap();
        assert_eq!((answers.len(), rest), (1, None), "{text}");
        answers[0]
    }

    fn answer(status: u16, keep_alive: bool) -> Answer {
        Answer { status, keep_alive }
    }

    #[test]
    fn lengths_and_connection() {
        assert_eq!(
            one("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
            answer(200, true)
        );
        assert_eq!(
            one("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok"),
            answer(200, true)
        );
        assert_eq!(one("HTTP/1.1 204 No Content\r\n\r\n"), answer(204, true));
        assert_eq!(
            one("HTTP/1.1 304 N\r\ncontent-length: 9\r\n\r\n"),
            answer(304, true)
        );
        assert_eq!(
            one("HTTP/1.1 500 E\r\nconnection: Foo, Close\r\ncontent-length: 0\r\n\r\n"),
            answer(500, false)
        );
        assert_eq!(
            one("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx"),
            answer(200, false)
        );
        assert_eq!(
            one("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\nx"),
            answer(200, true)
        );
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n";
        assert_eq!(one(&format!("{head}0\r\n\r\n")), answer(200, true));
        assert_eq!(
            one(&format!(
                "{head}3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nx: y\r\n\r\n"
            )),
            answer(200, true)
        );
        for bad in [
            "\r\n",
            "g\r\n",
            "3\r\nabcd\r\n",
            "3\nabc",
            "1000000000000000\r\n",
            "0\r\n\rx",
        ] {
            let text = format!("{head}{bad}");
            assert_eq!(
                parse(text.as_bytes(), &[1]),
                Err(ProtocolError::Chunk),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn interim_answers_are_passed_over() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\n\
                    HTTP/1.1 201 Made\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(one(text), answer(201, true));
        let upgrade = b"HTTP/1.1 101 Switching\r\n\r\n";
        assert_eq!(parse(upgrade, &[5]), Err(ProtocolError::Upgrade));
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let (answers, rest) = parse(b"HTTP/1.1 200 OK\r\n\r\nbody", &[3]).unwrap();
        assert_eq!((answers.len(), rest), (0, Some(answer(200, false))));
        let cut = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbody", &[3]).unwrap();
        assert_eq!(cut, (vec![], None));
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let mut parser = ResponseParser::new();
        parser.expect_head(true);
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n";
        let complete = Progress::Complete {
            answer: answer(200, true),
            consumed: bytes.len(),
        };
        assert_eq!(parser.feed(bytes), Ok(complete));
    }

    #[test]
    fn what_cannot_be_an_answer_is_an_error() {
        for bad in ["SSH-2.0-x\r\n", "HTTP/1.1 20x\r\n\r\n"] {
            assert!(parse(bad.as_bytes(), &[4]).is_err(), "{bad}");
        }
        for length in ["x", "-1", "1, 2", "99999999999999999999999"] {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            assert_eq!(
                parse(text.as_bytes(), &[7]),
                Err(ProtocolError::ContentLength)
            );
        }
        let long = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(MAX_HEAD_BYTES));
        assert_eq!(
            parse(long.as_bytes(), &[4096]),
            Err(ProtocolError::HeadTooLong)
        );
    }

    #[test]
    fn a_request_has_a_length_when_it_may_have_a_body() {
        let mut request = Request::get("127.0.0.1:80".into());
        request.headers.push(("x-a".into(), "b".into()));
        let text =
            |request: &Request, close| String::from_utf8(encode_request(request, close)).unwrap();
        assert_eq!(
            text(&request, false),
            "GET / HTTP/1.1\r\nhost: 127.0.0.1:80\r\nx-a: b\r\n\r\n"
        );
        request.method = "POST".into();
        request.body = "é".into();
        let text = text(&request, true);
        assert!(
            text.ends_with("connection: close\r\ncontent-length: 2\r\n\r\né"),
            "{text}"
        );
    }

    #[test]
    fn what_the_last_head_said_does_not_stick() {
        let mut parser = ResponseParser::new();
        let long = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let short = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
        let head = &long[..long.len() - 2];
        for (bytes, is_head) in [
            (&long[..], false),
            (long, false),
            (short, false),
            (head, true),
            (long, false),
        ] {
            parser.expect_head(is_head);
            let complete = Progress::Complete {
                answer: answer(200, true),
                consumed: bytes.len(),
            };
            assert_eq!(parser.feed(bytes), Ok(complete));
        }
    }

    #[test]
    fn a_long_head_byte_by_byte_ends_too() {
        let text = format!(
            "HTTP/1.1 200 OK\r\na: {}\r\ncontent-length: 1\r\n\r\nx",
            "y".repeat(60_000)
        );
        let (answers, _) = parse(text.as_bytes(), &[1]).unwrap();
        assert_eq!(answers, [answer(200, true)]);
    }

    /// One well-formed answer: (status, how its body is framed, the body).
    fn encoded() -> impl Strategy<Value = Vec<u8>> {
        let body = proptest::collection::vec(any::<u8>(), 0..300);
        (200_u16..600, 0..3_u8, body, 1..50_usize).prop_map(|(status, kind, body, chunk)| {
            let mut bytes = format!("HTTP/1.1 {status} Some Reason\r\nserver: x\r\n").into_bytes();
            if kind == 2 {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                if status != 204 && status != 304 {
                    for piece in body.chunks(chunk) {
                        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                        bytes.extend_from_slice(piece);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(b"0\r\nt: v\r\n\r\n");
                }
                return bytes;
            }
            let body = if status == 204 || status == 304 {
                &[][..]
            } else {
                &body
            };
            bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
            bytes.extend_from_slice(body);
            bytes
        })
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            answers in proptest::collection::vec(encoded(), 1..5),
            pieces in proptest::collection::vec(1_usize..80, 1..8),
        ) {
            let bytes = answers.concat();
            let whole = parse(&bytes, &[bytes.len()]);
            prop_assert_eq!(whole.as_ref().unwrap().0.len(), answers.len());
            prop_assert_eq!(&whole, &parse(&bytes, &pieces));
            prop_assert_eq!(&whole, &parse(&bytes, &[1]));
        }

        #[test]
        fn garbage_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            pieces in proptest::collection::vec(1_usize..80, 1..8),
        ) {
            let _ = parse(&bytes, &pieces);
        }

        #[test]
        fn damaged_answers_never_panic(
            mut bytes in encoded(),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let at = at.index(bytes.len());
            bytes[at] = value;
            let whole = parse(&bytes, &[bytes.len()]);
            prop_assert_eq!(whole, parse(&bytes, &[1]));
        }
    }
}
