//! A TLS connection that one thread reads and another writes at the same time.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::Connection;

/// One read's size: a TLS record and its head.
const READ_BYTES: usize = 17 * 1024;

struct Shared {
    tls: Mutex<Connection>,
    socket: TcpStream,
}

impl Shared {
    fn tls(&self) -> MutexGuard<'_, Connection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what TLS has to send. The lock is held, so that records keep their order.
    fn flush(&self, tls: &mut Connection) -> io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(&mut &self.socket)?;
        }
        Ok(())
    }
}

/// The end that reads.
pub struct DuplexReader {
    shared: Arc<Shared>,
    /// What was read from the socket; TLS has taken it up to `taken`, of `filled`.
    raw: Vec<u8>,
    taken: usize,
    filled: usize,
    ended: bool,
}

/// The end that writes. Dropped, it tells the peer that nothing more comes.
pub struct DuplexWriter {
    shared: Arc<Shared>,
}

/// Ends the handshake and takes the connection apart.
///
/// What was written before the handshake's end, and the end of the stream with it, TLS could not
/// vouch for.
///
/// # Errors
/// When the handshake fails, or the peer does not go on with it for so long.
pub fn split(
    tls: impl Into<Connection>,
    mut socket: TcpStream,
    patience: Duration,
) -> io::Result<(DuplexReader, DuplexWriter)> {
    let mut tls = tls.into();
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    socket.set_read_timeout(None)?;
    tls.set_buffer_limit(None);
    let shared = Arc::new(Shared {
        tls: Mutex::new(tls),
        socket,
    });
    shared.flush(&mut shared.tls())?;
    let reader = DuplexReader {
        shared: Arc::clone(&shared),
        raw: vec![0; READ_BYTES],
        taken: 0,
        filled: 0,
        ended: false,
    };
    Ok((reader, DuplexWriter { shared }))
}

impl Read for DuplexReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut tls = self.shared.tls();
            match tls.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !self.ended => {}
                done => return done,
            }
            if self.taken == self.filled {
                // Without the lock: meanwhile the other end writes.
                drop(tls);
                self.filled = (&self.shared.socket).read(&mut self.raw)?;
                self.taken = 0;
                self.ended = self.filled == 0;
                tls = self.shared.tls();
            }
            // At the end of the stream TLS must hear of it, too.
            self.taken += tls.read_tls(&mut &self.raw[self.taken..self.filled])?;
            let state = tls.process_new_packets();
            self.shared.flush(&mut tls)?;
            state.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }
}

impl Write for DuplexWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut tls = self.shared.tls();
        let count = tls.writer().write(bytes)?;
        self.shared.flush(&mut tls)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut tls = self.shared.tls();
        self.shared.flush(&mut tls)
    }
}

impl Drop for DuplexWriter {
    fn drop(&mut self) {
        let mut tls = self.shared.tls();
        tls.send_close_notify();
        // The peer may be gone; and whoever reads at this end must hear of it.
        let _ = self.shared.flush(&mut tls);
        let _ = self.shared.socket.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;
    use crate::{SECRET_NAME, client_config, secret_tls, server_config};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn both_directions_work_until_one_end_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (client, server) = secret_tls("s").unwrap();
        let server = Arc::new(server_config(&server).unwrap());
        let echo = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let tls = rustls::ServerConnection::new(server).unwrap();
            let (reader, mut writer) = split(tls, socket, PATIENCE).unwrap();
            for line in BufReader::new(reader).lines() {
                writeln!(writer, "{}", line.unwrap()).unwrap();
            }
        });
        let config = Arc::new(client_config(&client).unwrap());
        let tls = rustls::ClientConnection::new(config, SECRET_NAME.try_into().unwrap()).unwrap();
        let (reader, mut writer) =
            split(tls, TcpStream::connect(address).unwrap(), PATIENCE).unwrap();
        let heard = std::thread::spawn(move || {
            BufReader::new(reader).lines().map_while(Result::ok).count()
        });
        let line = "x".repeat(50_000);
        for _ in 0..40 {
            writeln!(writer, "{line}").unwrap();
        }
        drop(writer);
        assert_eq!(heard.join().unwrap(), 40);
        echo.join().unwrap();
    }
}
