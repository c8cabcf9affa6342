//! Bytes in both directions between two ends, until one of them ends.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

/// Copies until `from` ends. Whatever was copied is sent at once: a response must not wait for the next.
pub(super) fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        to.write_all(&buffer[..length])?;
        to.flush()?;
    }
}

/// Connects two sockets. Ends both as soon as one ends: a port-forward has no half-closed connections.
pub(super) fn sockets(a: &TcpStream, b: &TcpStream) {
    let close = || {
        let _ = a.shutdown(Shutdown::Both);
        let _ = b.shutdown(Shutdown::Both);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = copy(a, b);
            close();
        });
        let _ = copy(b, a);
        close();
    });
}
