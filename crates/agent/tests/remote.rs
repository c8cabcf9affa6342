//! An agent and its client, over real sockets on loopback.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::process::Command;
use std::thread;
use std::time::Duration;

use meshtax_agent::remote::{Agent, AgentClient, AgentError, Token};

const TIMEOUT: Duration = Duration::from_secs(5);

/// A privileged port that no test binds: a port that was free a moment ago may be another test's by now.
const NOBODY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));

/// The agent's worker here repeats what it reads.
fn cat() -> Command {
    Command::new("cat")
}

/// Starts an agent. It serves until the test's process ends.
fn agent() -> SocketAddr {
    let agent = Agent::listen(0).unwrap();
    let at = agent.address().unwrap();
    thread::spawn(move || agent.serve(&Token::new("secret"), cat));
    at
}

fn client() -> AgentClient {
    AgentClient::new(agent(), "secret".into())
}

#[test]
fn wrong_token_is_rejected() {
    let stranger = AgentClient::new(agent(), "guess".into());
    assert!(matches!(stranger.host(), Err(AgentError::Unauthorized)));
    assert!(matches!(stranger.clock(), Err(AgentError::Unauthorized)));
    let connected = stranger.connect(NOBODY, TIMEOUT);
    assert!(matches!(connected, Err(AgentError::Unauthorized)));
}

#[test]
fn taken_port_is_an_error() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = Agent::listen(port).unwrap_err();
    assert!(error.to_string().contains(&port.to_string()), "{error}");
}

#[test]
fn clock_of_the_same_kernel_has_no_offset_beyond_its_error() {
    let clock = client().clock().unwrap();
    assert!(
        clock.offset_ns.unsigned_abs() <= clock.error_ns,
        "{clock:?}"
    );
    assert!(clock.error_ns < 50_000_000, "{clock:?}");
}

#[test]
fn connection_carries_bytes_both_ways_until_either_end_closes() {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = server.local_addr().unwrap();
    let echoing = thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut received = [0_u8; 4];
        stream.read_exact(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let mut socket = client().connect(to, TIMEOUT).unwrap();
    socket.write_all(b"ping").unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).unwrap();
    assert_eq!(response, b"ping");
    echoing.join().unwrap();
}

#[test]
fn refused_connection_is_the_same_error_as_in_the_pod() {
    match client().connect(NOBODY, TIMEOUT) {
        Err(AgentError::Failed(error)) => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("nobody listens there"),
    }
}

#[test]
fn worker_runs_beside_the_agent_and_ends_with_its_connection() {
    let started = client().start_worker().unwrap();
    let (mut worker, mut input) = (started.worker, started.input);
    input.write_all(b"request\n").unwrap();
    let mut output = BufReader::new(started.output);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "request\n");
    worker.end();
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn agent_that_is_gone_is_unreachable_and_not_an_answer() {
    let nobody = AgentClient::new(NOBODY, "secret".into());
    assert!(matches!(nobody.host(), Err(AgentError::Unreachable(_))));
}
