//! TCP connections from one address to another, which can be cut.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Accepts connections until the test's process ends.
pub(super) struct Relay {
    pub(super) at: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// From a free port of this address.
    pub(super) fn start(from: &str, to: SocketAddr) -> Self {
        let listener = TcpListener::bind((from, 0)).expect("a free port");
        let at = listener.local_addr().expect("an address");
        let open = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::clone(&open);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(to) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                        continue;
                    };
                    thread::spawn(move || carry(&from, &to));
                }
                accepted.lock().expect("no panic").extend([near, far]);
            }
        });
        Self { at, open }
    }

    /// Closes all connections. Returns how many had been opened.
    pub(super) fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().expect("no panic"));
        for stream in &open {
            let _ = stream.shutdown(Shutdown::Both);
        }
        open.len() / 2
    }
}

fn carry(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
