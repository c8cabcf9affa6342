//! The application over real sockets, against clients that share nothing with it.

mod calls;
mod echo;
mod garbage;
mod grpc;
mod http1;
mod http2;
mod memory;
mod tls;

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use meshtax_app::{AppConfig, AppError, AppStats, Listener, Protocol, serve_all};

/// An application of this process, on ports of its own.
struct App {
    address: SocketAddr,
    listeners: Vec<Listener>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), AppError>>>,
}

impl App {
    fn start(change: impl FnOnce(&mut AppConfig)) -> Self {
        let mut config = AppConfig::new("127.0.0.1:0".parse().unwrap());
        config.response_bytes = 5;
        change(&mut config);
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            serve_all(&config, |all| sender.send(all.to_vec()).unwrap(), &seen)
        });
        let listeners = receiver.recv().unwrap();
        Self {
            address: listeners[0].address,
            listeners,
            stop,
            thread: Some(thread),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream
    }

    /// Sends the bytes, says that no more come, returns all that gets a response.
    fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn stats(&self) -> AppStats {
        let text = self.exchange(b"GET /_meshtax/stats HTTP/1.1\r\n\r\n");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join().unwrap();
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// Another listener, on a free port.
fn listener(protocol: Protocol) -> Listener {
    Listener {
        address: "127.0.0.1:0".parse().unwrap(),
        protocol,
    }
}

/// Runs an asynchronous client; none takes longer than this.
fn wait_for<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(30), client).await };
    runtime.block_on(limited).expect("an answer in time")
}

/// The digits that bodies are made of.
fn digits(count: usize) -> Vec<u8> {
    (0..count).map(|i| b'0' + (i % 10) as u8).collect()
}
