//! TCP that comes back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use meshtax_app::Protocol;

use super::{App, listener};

fn echo() -> App {
    App::start(|config| config.listeners = vec![listener(Protocol::TcpEcho)])
}

#[test]
fn every_byte_is_echoed() {
    let app = echo();
    let mut stream = app.connect();
    for message in [&b"a"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 5000]] {
        stream.write_all(message).unwrap();
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, message);
    }
}

#[test]
fn a_long_stream_is_echoed_to_its_end() {
    let app = echo();
    let sent: Vec<u8> = (0..20_000_000_u32).map(|i| (i % 251) as u8).collect();
    let mut reader = app.connect();
    let mut writer = reader.try_clone().unwrap();
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        back
    });
    assert!(back == sent);
}

#[test]
fn an_echo_client_that_does_not_read_is_not_read_from() {
    let app = echo();
    let mut stream = app.connect();
    stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let taken = (0..1000)
        .take_while(|_| stream.write_all(&[1; 100_000]).is_ok())
        .count();
    assert!(taken < 500, "{taken} times 100 kB were taken");
}

#[test]
fn listeners_have_their_own_protocols() {
    let app = App::start(|config| {
        config.threads = 2;
        config.listeners.push(listener(Protocol::TcpEcho));
        config.listeners.push(listener(Protocol::Http));
    });
    for (at, begins) in [
        (0, "HTTP/1.1 200"),
        (1, "GET / HTTP/1"),
        (2, "HTTP/1.1 200"),
    ] {
        let mut stream = TcpStream::connect(app.listeners[at].address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(begin, begins.as_bytes());
    }
}
