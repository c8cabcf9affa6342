//! `meshtax load` over TLS: server verification, client certificates, and errors.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use meshtax_tls::{ServerTls, self_signed, server_config};
use rustls::{ServerConnection, StreamOwned};

use crate::support::{Finished, Scratch, beside_others, finish, meshtax};

const USAGE: i32 = 2;
const NOTHING_MEASURED: i32 = 12;

/// Certificate and key in files.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    tls: ServerTls,
}

impl Identity {
    fn of(scratch: &Scratch, name: &str) -> Self {
        let (chain_pem, key_pem) = self_signed(&[name.to_owned()]).expect("a certificate");
        Self {
            certificate: scratch.write(&format!("{name}.pem"), &chain_pem),
            key: scratch.write(&format!("{name}.key"), &key_pem),
            tls: ServerTls {
                chain_pem,
                key_pem,
                ..ServerTls::default()
            },
        }
    }
}

/// Serves HTTP/1.1 over TLS; returns its URL.
fn server(tls: &ServerTls) -> String {
    let config = Arc::new(server_config(tls).expect("a configuration"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let tls = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            thread::spawn(move || {
                let mut reader = BufReader::new(StreamOwned::new(tls, socket));
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap_or(0) > 0 {
                    let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if line == "\r\n" && reader.get_mut().write_all(response).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
        }
    });
    format!("https://{address}/")
}

fn load(scratch: &Scratch, line: &str) -> Finished {
    let line = format!("load {line} -n 20 -c 2");
    let words: Vec<_> = line.split_whitespace().collect();
    finish(meshtax(scratch, &words))
}

#[test]
fn untrusted_server_certificate_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let shop = Identity::of(&scratch, "shop.example");
    let url = server(&shop.tls);
    let ca = shop.certificate.display();

    let trusted = format!("{url} --cacert {ca} --server-name shop.example");
    let finished = load(&scratch, &trusted);
    let stdout = &finished.expect_code(0).stdout;
    assert!(stdout.contains("HTTP/1.1 over TLS"), "{stdout}");
    assert!(stdout.contains("TLS handshake"), "{stdout}");
    assert!(stdout.contains("status        200: 20"), "{stdout}");
    load(&scratch, &format!("{url} --insecure")).expect_code(0);

    let wrong_name = format!("{url} --cacert {ca}");
    let other = Identity::of(&scratch, "other.example");
    let wrong_ca = format!(
        "{url} --cacert {} --server-name shop.example",
        other.certificate.display()
    );
    for line in [wrong_name, wrong_ca] {
        let finished = load(&scratch, &line);
        finished.expect_code(NOTHING_MEASURED);
        let text = &finished.stderr;
        for word in [
            "invalid peer certificate",
            "fix: --cacert FILE",
            "--insecure",
            "--server-name",
        ] {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert_eq!(finished.stdout, "");
    }
    // With a new connection per request, the error occurs during the load.
    let finished = load(
        &scratch,
        &format!("{url} --cacert {ca} --disable-keepalive"),
    );
    let stdout = &finished.expect_code(NOTHING_MEASURED).stdout;
    assert!(stdout.contains("errors        tls 20"), "{stdout}");
    assert!(
        stdout.contains("hint: the TLS handshakes failed: "),
        "{stdout}"
    );
}

#[test]
fn mutual_tls_presents_the_certificate_and_never_prints_the_key() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let shop = Identity::of(&scratch, "shop.example");
    let client = Identity::of(&scratch, "client.example");
    let url = server(&ServerTls {
        client_roots_pem: Some(client.tls.chain_pem.clone()),
        ..shop.tls.clone()
    });
    let identity = format!(
        "--cert {} --key {}",
        client.certificate.display(),
        client.key.display()
    );
    let finished = load(&scratch, &format!("{url} --insecure {identity} --json"));
    let document = finished.expect_code(0).json();
    assert_eq!(document["result"]["status"]["200"], 20);
    assert!(!finished.stdout.contains("BEGIN"), "{}", finished.stdout);

    // In TLS 1.3 a client learns only after its handshake that its certificate is missing.
    load(&scratch, &format!("{url} --insecure")).expect_code(NOTHING_MEASURED);

    let not_its_key = format!(
        "--cert {} --key {}",
        client.certificate.display(),
        shop.key.display()
    );
    let finished = load(&scratch, &format!("{url} --insecure {not_its_key}"));
    finished.expect_code(USAGE);
    assert!(
        finished.stderr.contains("cannot be used together"),
        "{}",
        finished.stderr
    );
}

#[test]
fn plaintext_port_is_reported_for_https() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let finished = load(&scratch, &format!("https://{address}/ --insecure"));
    finished.expect_code(NOTHING_MEASURED);
    let text = &finished.stderr;
    assert!(
        text.contains("see that the server speaks TLS on this port"),
        "{text}"
    );
}
