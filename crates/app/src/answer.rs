//! Answers as bytes, nearly all of them prebuilt.

use crate::request::{Head, Refusal};

/// The answers that are the same for every request.
#[derive(Debug)]
pub(crate) struct Answers {
    body: Vec<u8>,
    keep: Prebuilt,
    keep_1_0: Prebuilt,
    close: Prebuilt,
}

/// A complete answer, and how much of it is the head.
#[derive(Debug)]
struct Prebuilt {
    bytes: Vec<u8>,
    head_bytes: usize,
}

impl Prebuilt {
    fn new(connection: &str, body: &[u8]) -> Self {
        let mut bytes = Vec::new();
        write_head(&mut bytes, "text/plain", connection, &[], body.len());
        let head_bytes = bytes.len();
        bytes.extend_from_slice(body);
        Self { bytes, head_bytes }
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

fn write_head(out: &mut Vec<u8>, kind: &str, connection: &str, canary: &[u8], length: usize) {
    out.extend_from_slice(
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n")
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
    pub(crate) fn new(response_bytes: u32) -> Self {
        // Digits: easy to see on the wire, and nothing that a proxy would transform.
        let body: Vec<u8> = (0..response_bytes).map(|i| b'0' + (i % 10) as u8).collect();
        Self {
            keep: Prebuilt::new("", &body),
            keep_1_0: Prebuilt::new("keep-alive", &body),
            close: Prebuilt::new("close", &body),
            body,
        }
    }

    /// The prebuilt answer; `None` when the request wants one of its own.
    pub(crate) fn prebuilt(&self, head: &Head) -> Option<&[u8]> {
        if !head.canary.is_empty() {
            return None;
        }
        let prebuilt = match connection(head) {
            "" => &self.keep,
            "close" => &self.close,
            _ => &self.keep_1_0,
        };
        let end = if head.to_head {
            prebuilt.head_bytes
        } else {
            prebuilt.bytes.len()
        };
        Some(&prebuilt.bytes[..end])
    }

    /// The plain answer with the request's canary.
    pub(crate) fn write_plain(&self, out: &mut Vec<u8>, head: &Head) {
        write_own(out, head, "text/plain", &self.body);
    }
}

/// An answer of JSON.
pub(crate) fn write_json(out: &mut Vec<u8>, head: &Head, body: &[u8]) {
    write_own(out, head, "application/json", body);
}

fn write_own(out: &mut Vec<u8>, head: &Head, kind: &str, body: &[u8]) {
    write_head(out, kind, connection(head), &head.canary, body.len());
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
