//! TLS in front of a server.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A certificate of `localhost` that is its own authority.
pub(crate) struct Identity {
    pub(crate) pem: String,
    config: Arc<ServerConfig>,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key.into())
            .unwrap();
        Self {
            pem: issued.cert.pem(),
            config: Arc::new(config),
        }
    }

    /// Accepts connections until the test's process ends, and passes each one's request to the server behind.
    pub(crate) fn serve(&self, behind: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::clone(&self.config);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(tls, connection.unwrap());
                // A client that does not trust the certificate ends the connection.
                thread::spawn(move || pass(stream, behind));
            }
        });
        port
    }
}

fn pass(mut stream: StreamOwned<ServerConnection, TcpStream>, behind: u16) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", behind))?;
    let mut line = String::new();
    let mut reader = BufReader::new(&mut stream);
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        server.write_all(line.as_bytes())?;
    }
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    stream.write_all(&answer)?;
    stream.conn.send_close_notify();
    stream.flush()
}
