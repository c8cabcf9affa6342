//! A prober that bypasses the client's proxy, with an identity of its choice.

use std::net::Ipv4Addr;
use std::sync::Arc;

use meshtax_dataplane::{ALLOWED_PATH, CallIdentity, DirectTls};
use meshtax_tls::spiffe::{Expect, client_config, workload_identity};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::deployment::Issuer;
use crate::finding::Finding;
use crate::hbone::{Refused, Tunnel};
use crate::http::{HttpOutcome, HttpRequest, failed, send};
use crate::requests::{connect, refused, request};
use crate::subject::Subject;
use crate::vantage::{Connection, Endpoint};

/// The outcome of a GET over a TLS connection past the client's proxy, and the server's identity.
type Direct = (HttpOutcome, Option<String>);

/// Where the prober connects to, and what it asks for there.
struct Destination<'a> {
    /// The proxy's address.
    address: Ipv4Addr,
    /// The application behind it.
    application: Endpoint,
    /// The service's address, as its callers connect to it.
    service: Endpoint,
    /// The host in the request.
    host: &'a str,
    /// The server name (SNI), where the contract has one.
    server_name: Option<&'a str>,
}

impl<'a> Destination<'a> {
    /// A waypoint accepts requests for the service as clients call it; a server those for itself.
    fn first(subject: &Subject<'a>, how: &'a DirectTls) -> Self {
        let (address, application) = match how.at_waypoint {
            true => (subject.site.waypoint.address, subject.first().to),
            false => (subject.server_pod().0, subject.server_pod()),
        };
        Self {
            address,
            application,
            service: subject.first().to,
            host: subject.first().host(),
            server_name: how.server_name.as_deref(),
        }
    }

    /// The first pod of a service; `None`: there is no such service.
    fn service(subject: &Subject<'a>, identity: &'a CallIdentity) -> Option<Self> {
        let service = subject.site.service(&identity.service)?;
        let address = service.pods.first()?.address;
        let has_name = subject.contract.direct_tls.server_name.is_some();
        Some(Self {
            address,
            application: (address, service.port()),
            service: service.endpoint(),
            host: &service.name,
            server_name: has_name.then_some(identity.expected.as_str()),
        })
    }
}

/// A GET with this identity: from a pod without a mesh, past the client's proxy; or, where the mesh certifies no prober,
/// from the pod that has the identity.
fn direct(
    subject: &Subject<'_>,
    how: &DirectTls,
    to: &Destination<'_>,
    (issuer, identity): (Issuer, &str),
) -> Direct {
    let holders = &subject.contract.holders;
    match issuer {
        Issuer::Mesh if !holders.is_empty() => by_holder(subject, how, to, identity),
        _ => attempt(subject, how, to, issuer, identity).unwrap_or_else(|outcome| (outcome, None)),
    }
}

/// The request goes through the proxies of the pod that has the identity. The server's certificate is the one that it
/// presents to a client of another authority, before it looks at that client's.
fn by_holder(
    subject: &Subject<'_>,
    how: &DirectTls,
    to: &Destination<'_>,
    identity: &str,
) -> Direct {
    let holder = subject.contract.holders.get(identity);
    let Some(from) = holder.and_then(|pod| subject.deployment.pod(pod)) else {
        let why = format!("no pod has the identity {identity}");
        return (HttpOutcome::Silence(why), None);
    };
    let outcome = request(from, to.service, &HttpRequest::get(to.host, ALLOWED_PATH));
    if !outcome.is_ok() {
        return (outcome, None);
    }
    match attempt(subject, how, to, Issuer::Foreign, identity) {
        Ok((_, shown)) => (outcome, shown),
        Err(no_handshake) => (no_handshake, None),
    }
}

fn attempt(
    subject: &Subject<'_>,
    how: &DirectTls,
    to: &Destination<'_>,
    issuer: Issuer,
    identity: &str,
) -> Result<Direct, HttpOutcome> {
    let credentials = subject.deployment.credentials(issuer, identity);
    let credentials = credentials.map_err(|e| HttpOutcome::Silence(e.to_string()))?;
    let send_sni = to.server_name.is_some();
    let config = client_config(&credentials, Expect::Anyone, &how.alpn, send_sni)
        .map_err(|e| HttpOutcome::Silence(format!("cannot speak TLS: {e}")))?;
    let proxy = (to.address, how.port.unwrap_or(to.application.1));
    let stream = connect(subject.deployment.outsider(), proxy)?;
    let (mut tls, certificate) = handshake(stream, config, to.server_name)?;
    let shown = certificate.as_ref().and_then(workload_identity);
    let get = HttpRequest::get(to.host, ALLOWED_PATH);
    if !how.hbone {
        return Ok((send(&mut tls, &get), shown));
    }
    let outcome = match Tunnel::open(tls, to.application) {
        Ok(mut tunnel) => send(&mut tunnel, &get),
        Err(Refused::Status(status)) => HttpOutcome::Response {
            status,
            body: Vec::new(),
            echoed_canary: None,
        },
        Err(Refused::Broken(e)) => failed("opening a tunnel", &e),
    };
    Ok((outcome, shown))
}

type TlsStream = StreamOwned<ClientConnection, Box<dyn Connection>>;

/// A TLS connection, and the server's certificate.
fn handshake(
    stream: Box<dyn Connection>,
    config: ClientConfig,
    server_name: Option<&str>,
) -> Result<(TlsStream, Option<CertificateDer<'static>>), HttpOutcome> {
    let name = match server_name {
        Some(name) => ServerName::try_from(name.to_owned())
            .map_err(|e| HttpOutcome::Silence(format!("{name} is not a server name: {e}")))?,
        None => ServerName::IpAddress(Ipv4Addr::LOCALHOST.into()),
    };
    let connection = ClientConnection::new(Arc::new(config), name)
        .map_err(|e| HttpOutcome::Silence(format!("cannot start a TLS handshake: {e}")))?;
    let mut tls = StreamOwned::new(connection, stream);
    while tls.conn.is_handshaking() {
        tls.conn
            .complete_io(&mut tls.sock)
            .map_err(|e| failed("the TLS handshake", &e))?;
    }
    let certificates = tls.conn.peer_certificates();
    let certificate = certificates.and_then(|chain| chain.first());
    let certificate = certificate.map(|c| c.clone().into_owned());
    Ok((tls, certificate))
}

/// The permitted identity gets a response past the client's proxy (without which a refusal of others would prove
/// nothing), and the server proves its identity.
pub(crate) fn server_identity(subject: &Subject<'_>, expected: &str, client: &str) -> Finding {
    let how = &subject.contract.direct_tls;
    accepted(subject, &Destination::first(subject, how), expected, client)
}

fn accepted(subject: &Subject<'_>, to: &Destination<'_>, expected: &str, client: &str) -> Finding {
    let how = &subject.contract.direct_tls;
    let (outcome, shown) = direct(subject, how, to, (Issuer::Mesh, client));
    match shown {
        Some(shown) if shown != expected => {
            Finding::failed(format!("the server is {shown}, expected {expected}"))
        }
        Some(shown) if outcome.is_ok() => Finding::passed(shown),
        _ => Finding::failed(format!(
            "a direct mutual-TLS request as {client} to {}: {outcome}",
            to.host
        )),
    }
}

/// An identity that the policy does not allow, or one that another authority certified, is refused.
pub(crate) fn refused_identity(
    subject: &Subject<'_>,
    issuer: Issuer,
    identity: &str,
    who: &str,
) -> Finding {
    let how = &subject.contract.direct_tls;
    let to = Destination::first(subject, how);
    let (outcome, _) = direct(subject, how, &to, (issuer, identity));
    refused(who, &outcome)
}

/// Each service accepts a caller, proves its own identity, and refuses wrong ones.
pub(crate) fn call_identities(subject: &Subject<'_>, services: &[CallIdentity]) -> Finding {
    let of_service = services.iter().map(|of| call_identity(subject, of));
    match of_service.into_iter().find(|finding| !finding.passed) {
        Some(failed) => failed,
        None => {
            let refused: usize = services.iter().map(|of| of.forbidden.len() + 1).sum();
            let count = services.len();
            Finding::passed(format!(
                "{count} services accept a caller and refuse {refused} wrong identities"
            ))
        }
    }
}

fn call_identity(subject: &Subject<'_>, of: &CallIdentity) -> Finding {
    let Some(to) = Destination::service(subject, of) else {
        return Finding::failed(format!("there is no service {}", of.service));
    };
    let accepted = accepted(subject, &to, &of.expected, &of.caller);
    if !accepted.passed {
        return accepted;
    }
    let how = &subject.contract.direct_tls;
    let foreign = (
        Issuer::Foreign,
        of.caller.as_str(),
        " from another authority",
    );
    let forbidden = of.forbidden.iter();
    let forbidden = forbidden.map(|identity| (Issuer::Mesh, identity.as_str(), ""));
    for (issuer, identity, whence) in std::iter::once(foreign).chain(forbidden) {
        let (outcome, _) = direct(subject, how, &to, (issuer, identity));
        let finding = refused(&format!("{identity}{whence}, to {}", of.service), &outcome);
        if !finding.passed {
            return finding;
        }
    }
    accepted
}

/// Past the waypoint, straight to the server: refused by the server itself.
pub(crate) fn waypoint_bypass(subject: &Subject<'_>, identity: &str, server: &str) -> Finding {
    let at_server = DirectTls {
        at_waypoint: false,
        ..subject.contract.direct_tls.clone()
    };
    let to = Destination::first(subject, &at_server);
    let (outcome, shown) = direct(subject, &at_server, &to, (Issuer::Mesh, identity));
    match shown {
        Some(shown) if shown != server => {
            Finding::failed(format!("the server is {shown}, expected {server}"))
        }
        _ => refused(&format!("{identity}, straight to the server"), &outcome),
    }
}
