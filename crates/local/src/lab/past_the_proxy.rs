//! A prober that goes past the client's proxy, and is whoever it says it is.

use std::sync::PoisonError;

use meshtax_control_plane::SharedAuthority;
use meshtax_dataplane::{ALLOWED_PATH, DirectTls};
use meshtax_model::evidence::{ProbeResult, probe as names};
use meshtax_tls::Credentials;

use super::hbone::{Refused, Tunnel};
use super::http::{Ask, Heard, ask, connect, failed, handshake};
use super::probes::{Identities, Subject, refused, result};
use crate::tls::{Expect, client_config, workload_identity};

/// A TLS connection past the client's proxy, as somebody; what a GET gets, and the server's identity.
pub(crate) fn direct(
    subject: &Subject<'_>,
    issuer: &SharedAuthority,
    root_pem: String,
    identity: &str,
) -> (Heard, Option<String>) {
    let how = &subject.blueprint.direct_tls;
    direct_by(subject, how, issuer, root_pem, identity)
}

fn direct_by(
    subject: &Subject<'_>,
    how: &DirectTls,
    issuer: &SharedAuthority,
    root_pem: String,
    identity: &str,
) -> (Heard, Option<String>) {
    let leaf = issuer
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .leaf(identity);
    let leaf = match leaf {
        Ok(leaf) => leaf,
        Err(e) => return (Heard::Silence(e.to_string()), None),
    };
    let credentials = Credentials {
        chain_pem: leaf.chain_pem,
        key_pem: leaf.key_pem,
        root_pem,
    };
    let names_server = how.server_name.is_some();
    let config = match client_config(&credentials, Expect::Anyone, &how.alpn, names_server) {
        Ok(config) => config,
        Err(e) => return (Heard::Silence(format!("cannot speak TLS: {e}")), None),
    };
    // A waypoint is asked for the service as clients call it; a server for itself.
    let (address, wanted) = match how.at_waypoint {
        true => (subject.site.waypoint.address, subject.service()),
        false => (subject.site.server.address, subject.server_pod()),
    };
    let connected = connect(subject.outsider, (address, how.port.unwrap_or(wanted.1)))
        .and_then(|stream| handshake(stream, config, how.server_name.as_deref()));
    let (mut tls, certificate) = match connected {
        Ok(connected) => connected,
        Err(heard) => return (heard, None),
    };
    let shown = certificate.as_ref().and_then(workload_identity);
    let request = Ask::get(ALLOWED_PATH);
    if !how.hbone {
        return (ask(&mut tls, &request), shown);
    }
    let heard = match Tunnel::open(tls, wanted) {
        Ok(mut tunnel) => ask(&mut tunnel, &request),
        Err(Refused::Status(status)) => Heard::Answer {
            status,
            body: Vec::new(),
            echoed_canary: None,
        },
        Err(Refused::Broken(e)) => failed("opening a tunnel", &e),
    };
    (heard, shown)
}

/// The permitted identity gets an answer past the client's proxy (without which a refusal of others
/// would prove nothing), and the server shows who it is.
pub(crate) fn server_identity(
    subject: &Subject<'_>,
    identities: &Identities<'_>,
    expected: &str,
    client: &str,
) -> ProbeResult {
    let root = identities.authority_root();
    let (heard, shown) = direct(subject, identities.authority, root, client);
    match shown {
        Some(shown) if shown != expected => result(
            names::SERVER_IDENTITY,
            false,
            format!("the server is {shown}, expected {expected}"),
        ),
        Some(shown) if heard.is_ok() => result(names::SERVER_IDENTITY, true, shown),
        _ => {
            let seen = format!(
                "a direct mutual-TLS request as {client}: {}",
                heard.describe()
            );
            result(names::SERVER_IDENTITY, false, seen)
        }
    }
}

/// Past the waypoint, straight to the server: refused by whoever is the right one.
pub(crate) fn around_the_waypoint(
    subject: &Subject<'_>,
    identities: &Identities<'_>,
    identity: &str,
    server: &str,
) -> ProbeResult {
    let root = identities.authority_root();
    let at_server = DirectTls {
        at_waypoint: false,
        ..subject.blueprint.direct_tls.clone()
    };
    let (heard, shown) = direct_by(subject, &at_server, identities.authority, root, identity);
    let name = names::AROUND_THE_WAYPOINT;
    match shown {
        Some(shown) if shown != server => result(
            name,
            false,
            format!("the server is {shown}, expected {server}"),
        ),
        _ => refused(name, &format!("{identity}, straight to the server"), &heard),
    }
}
