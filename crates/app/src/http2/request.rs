//! HTTP/2 requests: what their header blocks contain.

use meshtax_http2::hpack::{Decoder, HpackError};

use crate::route::{ReceivedRequest, Route, is_own_path, route};

/// The form of a request's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// Headers and a body.
    WithBody,
    /// Headers only: the request is a HEAD.
    HeadersOnly,
    /// A gRPC message and trailers.
    Grpc,
}

/// The parts of a request's headers that decide its response.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) route: Route,
    pub(super) kind: ResponseKind,
    pub(super) expects_continue: bool,
    /// Bytes of its body, if a `content-length` declares them.
    pub(super) content_length: Option<u64>,
    /// Empty, and without an allocation, in nearly all requests.
    pub(super) canary: Vec<u8>,
    /// Only for [`Route::Echo`].
    pub(super) received: Option<Box<ReceivedRequest>>,
}

/// Decodes a connection's header blocks in the order in which they arrive.
#[derive(Debug)]
pub(super) struct RequestDecoder {
    decoder: Decoder,
    /// Scratch space for the block being decoded, kept to avoid allocations.
    method: Vec<u8>,
    authority: Vec<u8>,
}

/// The pseudo-header fields of a request (RFC 9113, section 8.3.1), as bits.
const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const PATH: u8 = 4;
const AUTHORITY: u8 = 8;

/// Which fields a block has had so far, and whether one of them makes the request malformed.
#[derive(Debug, Default)]
struct Fields {
    pseudo: u8,
    has_regular: bool,
    malformed: bool,
}

impl Fields {
    /// Each pseudo-header field may occur once, ahead of the regular ones.
    fn pseudo(&mut self, field: u8) {
        self.malformed |= self.has_regular || self.pseudo & field != 0;
        self.pseudo |= field;
    }

    fn lacks_required(&self) -> bool {
        self.pseudo & (METHOD | SCHEME | PATH) != METHOD | SCHEME | PATH
    }
}

impl RequestDecoder {
    pub(super) fn new() -> Self {
        Self {
            decoder: Decoder::new(4096),
            method: Vec::new(),
            authority: Vec::new(),
        }
    }

    /// Decodes a request's trailers, or a block that no stream wants: the HPACK table needs it. False
    /// if they are malformed.
    pub(super) fn trailers(&mut self, block: &[u8]) -> Result<bool, HpackError> {
        let mut well_formed = true;
        self.decoder.decode(block, &mut |name, _| {
            well_formed &= is_field_name(name);
        })?;
        Ok(well_formed)
    }

    /// Decodes a request's headers; `None` if they are malformed (RFC 9113, section 8.1.1).
    pub(super) fn request(&mut self, block: &[u8]) -> Result<Option<Request>, HpackError> {
        self.method.clear();
        self.authority.clear();
        let (method, authority) = (&mut self.method, &mut self.authority);
        let mut fields = Fields::default();
        let mut request = Request {
            route: Route::Plain,
            kind: ResponseKind::WithBody,
            expects_continue: false,
            content_length: None,
            canary: Vec::new(),
            received: None,
        };
        self.decoder.decode(block, &mut |name, value| {
            match name {
                b":path" => {
                    fields.pseudo(PATH);
                    fields.malformed |= value.is_empty();
                    if is_own_path(value) {
                        let path = String::from_utf8_lossy(value);
                        request.route = route(&path);
                        request.received =
                            (request.route == Route::Echo).then(|| Box::new(received(&path)));
                    }
                    return;
                }
                b":method" => {
                    fields.pseudo(METHOD);
                    return method.extend_from_slice(value);
                }
                b":scheme" => return fields.pseudo(SCHEME),
                b":authority" => {
                    fields.pseudo(AUTHORITY);
                    return authority.extend_from_slice(value);
                }
                _ => {
                    fields.has_regular = true;
                    fields.malformed |= !request.regular_field(name, value);
                }
            }
            if let Some(received) = &mut request.received {
                received.headers.push((text(name), text(value)));
            }
        })?;
        if fields.malformed || fields.lacks_required() || method.is_empty() {
            return Ok(None);
        }
        if let Some(received) = &mut request.received {
            received.method = text(method);
            if !authority.is_empty() {
                let header = (":authority".to_owned(), text(authority));
                received.headers.insert(0, header);
            }
        }
        if method == b"HEAD" {
            request.kind = ResponseKind::HeadersOnly;
        }
        Ok(Some(request))
    }
}

impl Request {
    /// Takes a field that is not a pseudo-header field; false if it makes the request malformed.
    fn regular_field(&mut self, name: &[u8], value: &[u8]) -> bool {
        match name {
            b"content-type" if is_grpc(value) => self.kind = ResponseKind::Grpc,
            b"content-length" => {
                let length = decimal(value);
                let conflicts = self.content_length.is_some() && self.content_length != length;
                self.content_length = length;
                return length.is_some() && !conflicts;
            }
            b"expect" => self.expects_continue = value == b"100-continue",
            b"x-meshtax-canary" => {
                self.canary = value.to_vec();
                // It is copied into other messages, also into those of HTTP/1.1.
                return !value.iter().any(u8::is_ascii_control);
            }
            // Fields of a single connection have no meaning here (section 8.2.2).
            b"te" => return value.eq_ignore_ascii_case(b"trailers"),
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return false,
            _ => return is_field_name(name),
        }
        true
    }
}

/// Whether a name may stand among the regular fields: not a pseudo-header field, and in lower case
/// (RFC 9113, section 8.2.1).
fn is_field_name(name: &[u8]) -> bool {
    !matches!(name.first(), None | Some(b':')) && !name.iter().any(u8::is_ascii_uppercase)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    // `parse` itself would accept a sign.
    let digits = Some(digits).filter(|d| d.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn received(path: &str) -> ReceivedRequest {
    ReceivedRequest {
        method: String::new(),
        path: path.to_owned(),
        headers: Vec::new(),
    }
}

/// `application/grpc` and its subtypes; gRPC-Web is another protocol.
fn is_grpc(content_type: &[u8]) -> bool {
    content_type
        .strip_prefix(b"application/grpc")
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}
