//! Single requests: those of every load, and of probes that use the load generator.

use std::net::Ipv4Addr;

use meshtax_dataplane::{ALLOWED_CALL, ALLOWED_PATH, GATEWAY_PORT, GATEWAY_TLS_PORT, Site};
use meshtax_load::{LoadSpec, Protocol as Wire, Request, Tls};
use meshtax_model::experiment::{Ingress, Protocol};
use meshtax_tls::ClientTls;

/// A request that every policy allows, in this protocol, one at a time on a connection. `to` is its target, `host` the
/// name of the service. The `body` is a call's message, or what TCP echoes; HTTP has a GET without one.
#[must_use]
pub fn request(
    host: &str,
    to: (Ipv4Addr, u16),
    protocol: Protocol,
    path: Option<&str>,
    body: Vec<u8>,
) -> LoadSpec {
    let mut request = Request {
        path: path.unwrap_or(ALLOWED_PATH).to_owned(),
        ..Request::get(format!("{host}:{}", to.1))
    };
    let protocol = match protocol {
        Protocol::Http1 => Wire::Http1,
        Protocol::Http2 => Wire::Http2 { streams: 1 },
        Protocol::Grpc => {
            request.method = "POST".into();
            request.path = ALLOWED_CALL.into();
            request.body = body;
            Wire::Grpc { streams: 1 }
        }
        Protocol::Tcp => {
            request.body = body;
            Wire::Tcp
        }
    };
    LoadSpec {
        protocol,
        requests: vec![request],
        ..LoadSpec::new(to.into())
    }
}

/// The gateway's port for this kind of ingress.
#[must_use]
pub fn gateway_port(ingress: Ingress) -> u16 {
    match ingress {
        Ingress::Plaintext => GATEWAY_PORT,
        Ingress::Tls => GATEWAY_TLS_PORT,
    }
}

/// A request of clients outside the mesh; `address` is what they connect to.
#[must_use]
pub fn load_from_outside(site: &Site, address: Ipv4Addr, ingress: Ingress) -> LoadSpec {
    let host = &site.entry_point().name;
    let to = (address, gateway_port(ingress));
    LoadSpec {
        tls: (ingress == Ingress::Tls).then(any_certificate),
        ..request(host, to, Protocol::Http1, None, Vec::new())
    }
}

/// TLS to the gateway. Its certificate is not for the name that clients call, so they accept any, like `oha --insecure`.
fn any_certificate() -> Tls {
    Tls {
        credentials: ClientTls {
            insecure: true,
            ..ClientTls::default()
        },
        server_name: "server".into(),
    }
}
