//! Both sides against each other, in memory.

use std::sync::Arc;

use meshtax_tls::{ClientTls, ServerTls, TlsError, client_config, self_signed, server_config};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConnection, ServerConnection};

fn certificate(name: &str) -> (String, String) {
    self_signed(&[name.to_owned()]).unwrap()
}

fn server(name: &str) -> ServerTls {
    let (chain_pem, key_pem) = certificate(name);
    ServerTls {
        chain_pem,
        key_pem,
        ..ServerTls::default()
    }
}

/// Hands bytes to and fro until both are content, or one is not.
fn shake(
    client: &ClientTls,
    server: &ServerTls,
    name: &str,
) -> Result<(ClientConnection, ServerConnection), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = Arc::new(client_config(client).unwrap());
    let mut client = ClientConnection::new(client, name)?;
    let mut server = ServerConnection::new(Arc::new(server_config(server).unwrap()))?;
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut &bytes[..]).unwrap();
        server.process_new_packets()?;
        bytes.clear();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut &bytes[..]).unwrap();
        client.process_new_packets()?;
    }
    Ok((client, server))
}

fn trusting(server: &ServerTls) -> ClientTls {
    ClientTls {
        roots_pem: Some(server.chain_pem.clone()),
        ..ClientTls::default()
    }
}

#[test]
fn a_trusted_server_is_used_with_the_single_cipher() {
    let server = server("localhost");
    let (client, _) = shake(&trusting(&server), &server, "localhost").unwrap();
    let suite = client.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS13_AES_128_GCM_SHA256);
}

#[test]
fn names_and_issuers_are_verified_unless_disabled() {
    let server = server("127.0.0.1");
    assert!(shake(&trusting(&server), &server, "127.0.0.1").is_ok());
    assert!(shake(&trusting(&server), &server, "localhost").is_err());
    let other = trusting(&self::server("127.0.0.1"));
    assert!(shake(&other, &server, "127.0.0.1").is_err());
    let insecure = ClientTls {
        insecure: true,
        ..other
    };
    assert!(shake(&insecure, &server, "localhost").is_ok());
}

#[test]
fn the_servers_preference_decides_the_protocol() {
    let protocols = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let mut server = server("a.test");
    server.alpn = protocols(["h2", "http/1.1"]);
    let mut client = trusting(&server);
    client.alpn = protocols(["http/1.1", "h2"]);
    let (client, server) = shake(&client, &server, "a.test").unwrap();
    assert_eq!(client.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
}

#[test]
fn mutual_tls_accepts_only_certificates_of_its_authority() {
    let (chain, key) = certificate("client");
    let mut server = server("a.test");
    server.client_roots_pem = Some(chain.clone());
    let nobody = trusting(&server);
    assert!(shake(&nobody, &server, "a.test").is_err());
    let mut known = nobody.clone();
    (known.chain_pem, known.key_pem) = (Some(chain), Some(key));
    assert!(shake(&known, &server, "a.test").is_ok());
    let (chain, key) = certificate("client");
    let mut stranger = nobody;
    (stranger.chain_pem, stranger.key_pem) = (Some(chain), Some(key));
    assert!(shake(&stranger, &server, "a.test").is_err());
}

#[test]
fn errors_name_the_text_and_the_fix() {
    let text = |error: Result<_, TlsError>| {
        let error: TlsError = Result::<(), _>::unwrap_err(error);
        error.to_string()
    };
    let client = |client: ClientTls| text(client_config(&client).map(|_| ()));
    let own = |chain: Option<&str>, key: Option<&str>| ClientTls {
        insecure: true,
        chain_pem: chain.map(str::to_owned),
        key_pem: key.map(str::to_owned),
        ..ClientTls::default()
    };
    let (chain, key) = certificate("a");
    let (_, other_key) = certificate("b");
    let missing = client(own(Some(&chain), None));
    assert!(
        missing.contains("client's private key is missing"),
        "{missing}"
    );
    let missing = client(own(None, Some(&key)));
    assert!(
        missing.contains("certificate chain is missing"),
        "{missing}"
    );
    let wrong = client(own(Some(&chain), Some(&other_key)));
    assert!(wrong.contains("cannot be used together"), "{wrong}");
    let wrong = client(own(Some("hello"), Some(&key)));
    assert!(
        wrong.contains("client's certificate chain has no"),
        "{wrong}"
    );
    let wrong = client(own(Some(&chain), Some(&chain)));
    assert!(wrong.contains("-----BEGIN PRIVATE KEY-----"), "{wrong}");
    let cut = &chain[..chain.len() / 2];
    let wrong = text(
        server_config(&ServerTls {
            chain_pem: cut.to_owned(),
            ..ServerTls::default()
        })
        .map(|_| ()),
    );
    assert!(
        wrong.contains("server's certificate chain cannot be read"),
        "{wrong}"
    );
    let roots = client(ClientTls {
        roots_pem: Some(key),
        ..ClientTls::default()
    });
    assert!(roots.contains("trusted authorities has no"), "{roots}");
    let names = text(self_signed(&["ä".to_owned()]).map(|_| ()));
    assert!(names.contains('ä'), "{names}");
}

#[test]
fn client_settings_round_trip_through_json() {
    let client: ClientTls = serde_json::from_str(r#"{"insecure": true}"#).unwrap();
    assert!(client.insecure && client.roots_pem.is_none());
    let back = serde_json::to_string(&client).unwrap();
    assert_eq!(serde_json::from_str::<ClientTls>(&back).unwrap(), client);
    assert!(serde_json::from_str::<ClientTls>(r#"{"insecur": true}"#).is_err());
}
