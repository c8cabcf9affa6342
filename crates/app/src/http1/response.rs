//! HTTP/1.1 responses as bytes, nearly all of them prebuilt.

use super::request::{Refusal, RequestHead};
use crate::config::Page;
use crate::content::{Content, PREBUILT_BODY_BYTES};
use crate::link::Link;

/// The responses that are the same for every request.
#[derive(Debug)]
pub(crate) struct Http1Responses {
    body: Variants,
    /// Those of pages; each is prebuilt as a whole.
    pages: Vec<Variants>,
    failure: Variants,
}

/// A response with each possible `connection` header.
#[derive(Debug)]
struct Variants {
    status: &'static str,
    bytes: u64,
    keep: Prebuilt,
    keep_1_0: Prebuilt,
    close: Prebuilt,
}

/// A whole response or its first part, and the length of its head.
#[derive(Debug)]
struct Prebuilt {
    bytes: Vec<u8>,
    head_bytes: usize,
}

impl Variants {
    fn new(status: &'static str, content: &Content) -> Self {
        let with = |connection| Prebuilt::new(status, connection, content);
        Self {
            status,
            bytes: content.bytes(),
            keep: with(""),
            keep_1_0: with("keep-alive"),
            close: with("close"),
        }
    }

    fn of(&self, head: &RequestHead) -> &Prebuilt {
        match connection(head) {
            "" => &self.keep,
            "close" => &self.close,
            _ => &self.keep_1_0,
        }
    }
}

impl Prebuilt {
    fn new(status: &str, connection: &str, content: &Content) -> Self {
        let mut bytes = Vec::new();
        let length = content.bytes();
        write_head(&mut bytes, status, "text/plain", connection, &[], length);
        let head_bytes = bytes.len();
        content.append(&mut bytes, 0, length.min(PREBUILT_BODY_BYTES));
        Self { bytes, head_bytes }
    }

    fn body(&self) -> &[u8] {
        &self.bytes[self.head_bytes..]
    }
}

/// The value of the `connection` header; empty for none.
fn connection(head: &RequestHead) -> &'static str {
    match (head.keep_alive, head.http_1_0) {
        (true, false) => "",
        (true, true) => "keep-alive",
        (false, _) => "close",
    }
}

fn write_head(
    out: &mut Vec<u8>,
    status: &str,
    kind: &str,
    connection: &str,
    canary: &[u8],
    length: u64,
) {
    out.extend_from_slice(
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n")
            .as_bytes(),
    );
    if !connection.is_empty() {
        out.extend_from_slice(format!("connection: {connection}\r\n").as_bytes());
    }
    if !canary.is_empty() {
        out.extend_from_slice(crate::CANARY_HEADER.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(canary);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

impl Http1Responses {
    pub(crate) fn new(content: &Content, pages: &[Page]) -> Self {
        let nothing = Content::new(Vec::new(), 0);
        let page = |page: &Page| {
            let content = Content::new(Vec::new(), u64::from(page.response_bytes));
            Variants::new("200 OK", &content)
        };
        Self {
            body: Variants::new("200 OK", content),
            pages: pages.iter().map(page).collect(),
            failure: Variants::new("503 Service Unavailable", &nothing),
        }
    }

    /// Responds with the body, or with an error. `last`: no other request follows in the input, so
    /// that a prebuilt response may go straight to the socket.
    pub(crate) fn plain(&self, link: &mut Link, head: &RequestHead, fails: bool, last: bool) {
        let page = head.page.and_then(|page| self.pages.get(page));
        let variants = match (fails, page) {
            (true, _) => &self.failure,
            (false, Some(page)) => page,
            (false, None) => &self.body,
        };
        if !head.canary.is_empty() {
            let (status, bytes) = (variants.status, variants.bytes);
            let with = connection(head);
            write_head(link.out(), status, "text/plain", with, &head.canary, bytes);
            match (head.is_head, page) {
                (true, _) => {}
                (false, Some(_)) => link.out().extend_from_slice(variants.keep.body()),
                (false, None) => link.stream(0, bytes),
            }
            return;
        }
        let prebuilt = variants.of(head);
        let end = match head.is_head {
            true => prebuilt.head_bytes,
            false => prebuilt.bytes.len(),
        };
        let bytes = &prebuilt.bytes[..end];
        if last && !link.has_unsent() {
            link.send_now(bytes);
        } else {
            link.out().extend_from_slice(bytes);
        }
        if !head.is_head && variants.bytes > PREBUILT_BODY_BYTES {
            link.stream(PREBUILT_BODY_BYTES, variants.bytes - PREBUILT_BODY_BYTES);
        }
    }
}

/// Appends a JSON response.
pub(crate) fn write_json(out: &mut Vec<u8>, head: &RequestHead, body: &[u8]) {
    let length = body.len() as u64;
    let (kind, with) = ("application/json", connection(head));
    write_head(out, "200 OK", kind, with, &head.canary, length);
    if !head.is_head {
        out.extend_from_slice(body);
    }
}

/// The last response on a connection whose request is rejected.
pub(crate) fn refusal(refusal: Refusal) -> &'static [u8] {
    match refusal {
        // Whatever the peer speaks, it would not understand a response.
        Refusal::NotHttp1 => b"",
        Refusal::Malformed => {
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
        Refusal::HeadTooLarge => {
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
    }
}

/// Sent to a client that waits before it sends its body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
