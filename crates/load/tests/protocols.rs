//! Every protocol, in plaintext, over TLS and over mutual TLS, kept and new connections, both loops,
//! against the real application.

mod quiet;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use meshtax_app::{AppConfig, Identity, Listener, Protocol as Spoken, serve_all};
use meshtax_load::{LoadError, LoadModel, LoadSpec, Protocol, Tls, run};
use meshtax_model::experiment::Arrivals;
use meshtax_model::trial::LoadResult;
use meshtax_tls::{ClientTls, SECRET_NAME, ServerTls, secret_tls};

use quiet::while_the_machine_is_ours;

/// One listener of each kind, and what a client needs for those with TLS.
struct Server {
    http: SocketAddr,
    https: SocketAddr,
    tcp: SocketAddr,
    tls_echo: SocketAddr,
    client: ClientTls,
}

fn server(is_mutual: bool) -> Server {
    let (client, server) = secret_tls("a secret of this test").unwrap();
    let ServerTls {
        chain_pem,
        key_pem,
        client_roots_pem,
        ..
    } = server;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let any = "127.0.0.1:0".parse().unwrap();
        let kinds = [
            Spoken::Http,
            Spoken::Https,
            Spoken::TcpEcho,
            Spoken::TlsEcho,
        ];
        let mut config = AppConfig::new(any);
        config.listeners = kinds
            .map(|protocol| Listener {
                address: any,
                protocol,
            })
            .to_vec();
        config.identity = Some(Identity { chain_pem, key_pem });
        config.client_roots_pem = client_roots_pem.filter(|_| is_mutual);
        let ready = |addresses: &[Listener]| {
            sender
                .send(addresses.iter().map(|l| l.address).collect::<Vec<_>>())
                .unwrap();
        };
        serve_all(&config, ready, &AtomicBool::new(false)).unwrap();
    });
    let at = receiver.recv().unwrap();
    Server {
        http: at[0],
        https: at[1],
        tcp: at[2],
        tls_echo: at[3],
        client,
    }
}

impl Server {
    fn spec(&self, protocol: Protocol, credentials: Option<ClientTls>) -> LoadSpec {
        let target = match (protocol, &credentials) {
            (Protocol::Tcp, None) => self.tcp,
            (Protocol::Tcp, Some(_)) => self.tls_echo,
            (_, None) => self.http,
            (_, Some(_)) => self.https,
        };
        let mut spec = LoadSpec::new(target);
        spec.protocol = protocol;
        spec.tls = credentials.map(|credentials| Tls {
            credentials,
            server_name: SECRET_NAME.into(),
        });
        spec.connections = 4;
        spec.window_ns = 150_000_000;
        spec.seed = 9;
        if protocol == Protocol::Tcp {
            spec.requests[0].body = b"some bytes that come back".to_vec();
        }
        if matches!(protocol, Protocol::Grpc { .. }) {
            spec.requests[0].path = "/meshtax.Echo/Say".into();
            spec.requests[0].body = b"a message".to_vec();
        }
        spec
    }
}

const PROTOCOLS: [Protocol; 4] = [
    Protocol::Http1,
    Protocol::Http2 { streams: 7 },
    Protocol::Grpc { streams: 7 },
    Protocol::Tcp,
];

fn checked(spec: &LoadSpec) -> LoadResult {
    let r = run(spec, &mut |_| {}).unwrap();
    let what = format!("{spec:?} {r:?}");
    assert_eq!(r.errors.total() + r.unanswered, 0, "{what}");
    assert_eq!(r.status[&200], r.offered, "{what}");
    assert!(r.offered >= 20, "{what}");
    assert_eq!(r.response.count(), r.offered, "{what}");
    assert_eq!(r.first_byte.count(), r.offered, "{what}");
    assert!(r.bytes_sent > 0 && r.bytes_received > 0, "{what}");
    if matches!(spec.protocol, Protocol::Grpc { .. }) {
        assert_eq!(r.grpc_status[&0], r.offered, "{what}");
    } else {
        assert!(r.grpc_status.is_empty(), "{what}");
    }
    let opened = r.connections_opened;
    let secured = if spec.tls.is_some() { opened } else { 0 };
    let outside = handshakes_outside(spec, &r);
    let fits = |seen: u64, all: u64| seen <= all && seen + outside >= all;
    assert!(fits(r.connect.count(), opened), "{what}");
    assert!(fits(r.tls_handshake.count(), secured), "{what}");
    r
}

/// How many handshakes may be in no histogram. Kept connections are opened before the window; of others, those after
/// the window: for requests that were late, and one of each idle connection.
fn handshakes_outside(spec: &LoadSpec, r: &LoadResult) -> u64 {
    match spec.requests_per_connection {
        None => 0,
        Some(_) => r.offered - r.completed + u64::from(spec.connections),
    }
}

fn all_loads(server: &Server, credentials: Option<&ClientTls>) {
    while_the_machine_is_ours("all loads", || each_load(server, credentials));
}

fn each_load(server: &Server, credentials: Option<&ClientTls>) {
    for protocol in PROTOCOLS {
        for lifetime in [None, Some(1), Some(5)] {
            for model in [
                LoadModel::closed(),
                LoadModel::open(400.0, Arrivals::Poisson),
            ] {
                let mut spec = server.spec(protocol, credentials.cloned());
                spec.requests_per_connection = lifetime;
                spec.model = model;
                let r = checked(&spec);
                let least = lifetime.map_or(4, |most| r.offered / u64::from(most));
                assert!(r.connections_opened >= least, "{spec:?} {r:?}");
            }
        }
    }
}

#[test]
fn every_protocol_works_in_plaintext() {
    all_loads(&server(false), None);
}

#[test]
fn every_protocol_works_over_tls() {
    let server = server(false);
    let trusting = ClientTls {
        chain_pem: None,
        key_pem: None,
        ..server.client.clone()
    };
    all_loads(&server, Some(&trusting));
}

#[test]
fn every_protocol_works_over_mutual_tls() {
    let server = server(true);
    all_loads(&server, Some(&server.client));
}

#[test]
fn untrusted_certificates_are_accepted_only_on_request() {
    let server = server(false);
    let insecure = ClientTls {
        insecure: true,
        ..ClientTls::default()
    };
    checked(&server.spec(Protocol::Http1, Some(insecure)));
    let (stranger, _) = secret_tls("another secret").unwrap();
    let error = run(&server.spec(Protocol::Http1, Some(stranger)), &mut |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LoadError::Connect { .. }), "{text}");
    assert!(
        text.contains("certificate") && text.contains("trust"),
        "{text}"
    );
}

#[test]
fn a_missing_client_certificate_is_reported() {
    let server = server(true);
    let anonymous = ClientTls {
        chain_pem: None,
        key_pem: None,
        ..server.client.clone()
    };
    let mut spec = server.spec(Protocol::Http1, Some(anonymous));
    spec.connect_timeout_ns = 500_000_000;
    // TLS 1.3's client is done before the server has judged it: the load may begin, and fail.
    match run(&spec, &mut |_| {}) {
        Err(error) => assert!(error.to_string().contains("TLS"), "{error}"),
        Ok(r) => assert!(r.completed == 0 && r.errors.total() > 0, "{r:?}"),
    }
}

#[test]
fn bodies_pass_in_both_directions_over_http2() {
    let server = server(false);
    for credentials in [
        None,
        Some(ClientTls {
            insecure: true,
            ..ClientTls::default()
        }),
    ] {
        let mut spec = server.spec(Protocol::Http2 { streams: 3 }, credentials);
        spec.requests[0].method = "POST".into();
        spec.requests[0].body = vec![b'x'; 300_000];
        spec.window_ns = 3_600_000_000_000;
        spec.max_requests = Some(40);
        let r = checked(&spec);
        assert!(r.bytes_sent > 40 * 300_000, "{r:?}");
    }
}
