//! Encodes requests.

use crate::spec::Request;

/// Encodes a request; with `close`, it has `connection: close`.
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
