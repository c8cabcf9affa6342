//! Standard output and standard error that are closed, or whose reader has gone away.

use std::io::pipe;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PATIENCE, Scratch, beside_others, meshtax, prepared};

/// The state of the stream that messages go to.
#[derive(Clone, Copy, Debug)]
enum Messages {
    /// `2>&-`.
    Closed,
    /// A pipe that nobody reads.
    Unread,
}

/// A pipe whose reader has gone away.
fn unread() -> Stdio {
    let (_, writer) = pipe().expect("a pipe");
    writer.into()
}

fn with_messages(scratch: &Scratch, messages: Messages, arguments: &[&str]) -> Command {
    match messages {
        Messages::Unread => {
            let mut command = meshtax(scratch, arguments);
            command.stderr(unread());
            command
        }
        Messages::Closed => {
            let binary = env!("CARGO_BIN_EXE_meshtax");
            let script = ["-c", "exec \"$@\" 2>&-", "sh", binary];
            prepared(Command::new("sh"), scratch, &[&script, arguments].concat())
        }
    }
}

fn status(mut command: Command) -> ExitStatus {
    command.stdout(Stdio::null()).status().expect("a shell")
}

/// Nobody listens on this port at present.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

#[test]
fn commands_work_without_a_reader_of_their_messages() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    for messages in [Messages::Closed, Messages::Unread] {
        let failing = with_messages(&scratch, messages, &["run", "no-such-spec.yaml"]);
        let code = status(failing).code();
        assert!(matches!(code, Some(2 | 10)), "{messages:?}: {code:?}");

        let address = format!("127.0.0.1:{}", free_port());
        let mut serve = with_messages(&scratch, messages, &["serve", "--listen", &address]);
        let mut server = serve.stdout(Stdio::null()).spawn().expect("a shell");
        let started = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(started.elapsed() < PATIENCE, "{messages:?}: no server");
            thread::sleep(Duration::from_millis(5));
        }
        let url = format!("http://{address}/");
        let load = ["load", &url, "-c", "2", "-z", "1s", "--interval", "200ms"];
        let code = status(with_messages(&scratch, messages, &load)).code();
        assert_eq!(code, Some(0), "{messages:?}");

        let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), Signal::INT).expect("a living server");
        let code = server.wait().expect("its own child").code();
        assert_eq!(code, Some(130), "{messages:?}");
    }
}

#[test]
fn results_without_a_reader_are_not_an_error() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    for arguments in [&["presets"][..], &["dataplanes"], &["--help"]] {
        let mut command = meshtax(&scratch, arguments);
        let output = command.stdout(unread()).output().expect("the binary");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {messages}");
    }
}
