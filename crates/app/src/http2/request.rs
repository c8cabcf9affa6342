//! Requests of HTTP/2: what their blocks of headers say.

use meshtax_http2::hpack::{Decoder, HpackError};

use crate::request::{Route, Seen, is_own_path, route};

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With the body.
    Plain,
    /// Without a body: HEAD.
    Bodiless,
    /// As a call of gRPC.
    Grpc,
}

/// What an answer needs to know of a request's headers.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) route: Route,
    pub(super) kind: Kind,
    pub(super) expects_continue: bool,
    /// Empty, and without an allocation, in nearly all requests.
    pub(super) canary: Vec<u8>,
    /// Only for [`Route::Echo`].
    pub(super) seen: Option<Box<Seen>>,
}

/// Reads blocks of headers in their order.
#[derive(Debug)]
pub(super) struct Heads {
    decoder: Decoder,
    /// Of the block that is being read; kept for their memory.
    method: Vec<u8>,
    authority: Vec<u8>,
}

impl Heads {
    pub(super) fn new() -> Self {
        Self {
            decoder: Decoder::new(4096),
            method: Vec::new(),
            authority: Vec::new(),
        }
    }

    /// Passes over a block; the tables need it.
    pub(super) fn skip(&mut self, block: &[u8]) -> Result<(), HpackError> {
        self.decoder.decode(block, &mut |_, _| {})
    }

    /// The request of a block; `None` if it lacks what every request has (RFC 9113,
    /// section 8.3.1).
    pub(super) fn read(&mut self, block: &[u8]) -> Result<Option<Request>, HpackError> {
        self.method.clear();
        self.authority.clear();
        let (method, authority) = (&mut self.method, &mut self.authority);
        let mut has_path = false;
        let mut request = Request {
            route: Route::Plain,
            kind: Kind::Plain,
            expects_continue: false,
            canary: Vec::new(),
            seen: None,
        };
        self.decoder.decode(block, &mut |name, value| {
            match name {
                b":path" => {
                    has_path = !value.is_empty();
                    if is_own_path(value) {
                        let path = String::from_utf8_lossy(value);
                        request.route = route(&path);
                        request.seen = (request.route == Route::Echo).then(|| seen(&path));
                    }
                    return;
                }
                b":method" => return method.extend_from_slice(value),
                b":authority" => return authority.extend_from_slice(value),
                b"content-type" if is_grpc(value) => request.kind = Kind::Grpc,
                b"expect" => request.expects_continue = value == b"100-continue",
                b"x-meshtax-canary" => request.canary = value.to_vec(),
                _ => {}
            }
            if let Some(seen) = &mut request.seen {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                seen.headers.push((text(name), text(value)));
            }
        })?;
        if !has_path || method.is_empty() {
            return Ok(None);
        }
        if let Some(seen) = &mut request.seen {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            seen.method = text(method);
            if !authority.is_empty() {
                let header = (":authority".to_owned(), text(authority));
                seen.headers.insert(0, header);
            }
        }
        if method == b"HEAD" {
            request.kind = Kind::Bodiless;
        }
        Ok(Some(request))
    }
}

fn seen(path: &str) -> Box<Seen> {
    Box::new(Seen {
        method: String::new(),
        path: path.to_owned(),
        headers: Vec::new(),
    })
}

/// `application/grpc` and its kin; not gRPC-Web, which is another protocol.
fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
