//! Answers of HTTP/1.1 as bytes, nearly all of them prebuilt.

use crate::config::Page;
use crate::content::Content;
use crate::link::Link;
use crate::request::{Head, Refusal};

/// So much of a body is prebuilt, in bytes; what is longer goes on from the content.
pub(crate) const PREBUILT_BODY_BYTES: u64 = 256 * 1024;

/// The answers that are the same for every request.
#[derive(Debug)]
pub(crate) struct Answers {
    body: Variants,
    /// Those of pages, none longer than what is prebuilt.
    pages: Vec<Variants>,
    failure: Variants,
}

/// The same answer with what the `connection` header may be.
#[derive(Debug)]
struct Variants {
    status: &'static str,
    bytes: u64,
    keep: Prebuilt,
    keep_1_0: Prebuilt,
    close: Prebuilt,
}

/// An answer, complete or its beginning, and how much of it is the head.
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

    fn of(&self, head: &Head) -> &Prebuilt {
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

/// What the `connection` header says, if it is there at all.
fn connection(head: &Head) -> &'static str {
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

impl Answers {
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

    /// Answers with the body, or with an error. `last`: there is no other request behind it, so
    /// that a prebuilt answer may go straight to the socket.
    pub(crate) fn plain(&self, link: &mut Link, head: &Head, fails: bool, last: bool) {
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
            match (head.to_head, page) {
                (true, _) => {}
                (false, Some(_)) => link.out().extend_from_slice(variants.keep.body()),
                (false, None) => link.stream(0, bytes),
            }
            return;
        }
        let prebuilt = variants.of(head);
        let end = match head.to_head {
            true => prebuilt.head_bytes,
            false => prebuilt.bytes.len(),
        };
        let bytes = &prebuilt.bytes[..end];
        if last && !link.has_unsent() {
            link.send_now(bytes);
        } else {
            link.out().extend_from_slice(bytes);
        }
        if !head.to_head && variants.bytes > PREBUILT_BODY_BYTES {
            link.stream(PREBUILT_BODY_BYTES, variants.bytes - PREBUILT_BODY_BYTES);
        }
    }
}

/// An answer of JSON.
pub(crate) fn write_json(out: &mut Vec<u8>, head: &Head, body: &[u8]) {
    let length = body.len() as u64;
    let (kind, with) = ("application/json", connection(head));
    write_head(out, "200 OK", kind, with, &head.canary, length);
    if !head.to_head {
        out.extend_from_slice(body);
    }
}

/// The last answer on a connection whose bytes are no request.
pub(crate) fn refusal(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::Malformed => {
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
        Refusal::HeadTooLarge => {
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        }
    }
}

/// Sent when a client waits for leave to send its body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
