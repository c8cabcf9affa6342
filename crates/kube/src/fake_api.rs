//! An API server for tests: HTTP without TLS on loopback, whose answers the test decides.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::cluster::{Access, Cluster};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// With the query.
    pub(crate) path: String,
    /// `null`: there is none.
    pub(crate) body: Value,
    /// Of a request for a WebSocket.
    key: Option<String>,
}

/// What a request is answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    /// Instead: the messages of a WebSocket, which then ends.
    pub(crate) messages: Option<Vec<Vec<u8>>>,
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Self {
        Self {
            code: 200,
            body,
            messages: None,
        }
    }

    /// A list of pods, events or nodes: their own kinds are not read.
    pub(crate) fn list(items: &[Value]) -> Self {
        Self::ok(json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
    }

    pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message,
        });
        Self {
            code,
            ..Self::ok(body)
        }
    }

    pub(crate) fn messages(messages: Vec<Vec<u8>>) -> Self {
        Self {
            code: 101,
            messages: Some(messages),
            ..Self::ok(Value::Null)
        }
    }
}

/// Serves until the test's process ends.
pub(crate) struct FakeApi {
    at: SocketAddr,
    requests: Arc<Mutex<Vec<Asked>>>,
}

impl FakeApi {
    /// `answer` is given a request, and the number of earlier ones; that for the version is not among them.
    pub(crate) fn start(answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || {
                    let Some(asked) = read(&stream) else {
                        return;
                    };
                    let answer = match asked.path.as_str() {
                        "/version" => Answer::ok(version()),
                        _ => {
                            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                            seen.push(asked.clone());
                            let earlier = seen.len() - 1;
                            drop(seen);
                            answer(&asked, earlier)
                        }
                    };
                    write(&stream, &asked, &answer);
                });
            }
        });
        Self { at, requests }
    }

    /// Connects to it.
    pub(crate) fn cluster(&self) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.at)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        let access = Access {
            kubeconfig: Some(path),
            context: None,
        };
        Cluster::connect(&access).unwrap()
    }

    /// All requests so far but that for the version.
    pub(crate) fn requests(&self) -> Vec<Asked> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut input = BufReader::new(stream);
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut key) = (0, None);
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "sec-websocket-key" => key = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Asked {
        path,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        key,
    })
}

fn write(mut stream: &TcpStream, asked: &Asked, answer: &Answer) {
    if let (Some(messages), Some(key)) = (&answer.messages, &asked.key) {
        let _ = stream.write_all(upgrade(key).as_bytes());
        for message in messages {
            let _ = stream.write_all(&frame(message));
        }
        // An orderly end (opcode 8), and its confirmation.
        let _ = stream.write_all(&[0x88, 0]);
        let _ = stream.read(&mut [0; 64]);
        return;
    }
    let body = answer.body.to_string();
    let (code, length) = (answer.code, body.len());
    let head = format!(
        "HTTP/1.1 {code} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

/// The answer to a request for a WebSocket (RFC 6455).
fn upgrade(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    // In base64.
    let accepted = json!(ByteString(digest.as_ref().to_vec()));
    let accepted = accepted.as_str().unwrap();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {accepted}\r\nsec-websocket-protocol: v4.channel.k8s.io\r\n\r\n"
    )
}

/// A binary message of less than 126 bytes.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = u8::try_from(message.len()).unwrap();
    assert!(length < 126);
    [&[0x82, length], message].concat()
}
