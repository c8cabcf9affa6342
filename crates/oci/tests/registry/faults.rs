//! An HTTP server in front of the registry, which answers as the test wants. One request per connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text: a form.
    pub(crate) fn form(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn is_blob(&self) -> bool {
        self.path.contains("/blobs/")
    }

    /// The same request without a header.
    pub(crate) fn without(&self, name: &str) -> Self {
        let mut request = self.clone();
        request
            .headers
            .retain(|(found, _)| !found.eq_ignore_ascii_case(name));
        request
    }

    fn read(connection: &TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(connection);
        let mut next = || {
            let lines = reader.by_ref().lines().next();
            lines.unwrap_or(Err(io::ErrorKind::UnexpectedEof.into()))
        };
        let first = next()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = words
            .next()
            .zip(words.next())
            .ok_or(io::ErrorKind::InvalidData)?;
        let mut headers = Vec::new();
        loop {
            let line = next()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut request = Self {
            method,
            path,
            headers,
            body: Vec::new(),
        };
        // What is not read would reset the connection when it is closed.
        let length = request
            .header("Content-Length")
            .map_or(0, |n| n.parse().unwrap());
        reader.take(length).read_to_end(&mut request.body)?;
        Ok(request)
    }
}

/// What is sent back: all bytes of a response. Fewer than it announces are a cut connection.
pub(crate) struct Answer(pub(crate) Vec<u8>);

impl Answer {
    pub(crate) fn of(status: &str, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        Self([head.as_bytes(), body].concat())
    }

    fn body_at(&self) -> usize {
        let end = self.0.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        end.unwrap() + 4
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.0[self.body_at()..]
    }

    /// Ends after so many bytes of the body.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        self.0.truncate(self.body_at() + length);
        self
    }

    /// The same answer with other content of the same length.
    pub(crate) fn garbled(mut self) -> Self {
        let last = self.0.last_mut().unwrap();
        *last ^= 1;
        self
    }
}

/// The registry behind the server.
#[derive(Clone, Copy)]
pub(crate) struct Upstream(pub(crate) u16);

impl Upstream {
    /// What the registry answers.
    pub(crate) fn forward(self, request: &Request) -> Answer {
        let mut connection = TcpStream::connect(("localhost", self.0)).unwrap();
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
            request.method, request.path
        );
        for name in ["Accept", "Range", "Content-Type"] {
            if let Some(value) = request.header(name) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        let length = request.body.len();
        head.push_str(&format!("Content-Length: {length}\r\n\r\n"));
        connection.write_all(head.as_bytes()).unwrap();
        connection.write_all(&request.body).unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        Answer(answer)
    }
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

/// A running server.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let is_stopped = Arc::<AtomicBool>::default();
        let (log, stop) = (Arc::clone(&requests), Arc::clone(&is_stopped));
        let handler: Arc<Handler> = Arc::new(handler);
        let thread = thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                thread::spawn(move || serve(connection.unwrap(), &*handler, &log));
            }
        });
        Self {
            port,
            requests,
            is_stopped,
            thread: Some(thread),
        }
    }

    /// What was asked, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for blobs: the configuration first, then the layers.
    pub(crate) fn blob_requests(&self) -> Vec<Request> {
        let requests = self.requests().into_iter();
        requests.filter(Request::is_blob).collect()
    }
}

fn serve(mut connection: TcpStream, handler: &Handler, log: &Mutex<Vec<Request>>) {
    // The client may close a connection without a request.
    let Ok(request) = Request::read(&connection) else {
        return;
    };
    log.lock().unwrap().push(request.clone());
    let _ = connection.write_all(&handler(&request).0);
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
