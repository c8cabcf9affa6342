//! A worker of the load generator, wherever it runs, and its protocol's two ends.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// A started worker of the load generator ([`meshtax_load::worker_main`]), wherever it runs.
pub trait Worker {
    /// The process whose links carry the load.
    fn pid(&self) -> u32;
    /// Waits for its end. Called after its output has ended.
    ///
    /// # Errors
    /// If its end cannot be seen.
    fn ended(&mut self) -> io::Result<ExitStatus>;
    /// Ends it now.
    fn end(&mut self);
}

impl Worker for Child {
    fn pid(&self) -> u32 {
        self.id()
    }

    fn ended(&mut self) -> io::Result<ExitStatus> {
        self.wait()
    }

    fn end(&mut self) {
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// A worker with both ends of its protocol.
pub struct StartedWorker {
    /// The worker itself.
    pub worker: Box<dyn Worker>,
    /// Its request goes here. It keeps its connections until this is closed.
    pub input: Box<dyn Write>,
    /// Its messages come from here.
    pub output: Box<dyn Read + Send>,
}

impl StartedWorker {
    /// A worker in a process of its own. `spawn` starts the command where the load is to come from.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = spawn(&mut command)?;
        let no_pipe = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input: ChildStdin = child.stdin.take().ok_or_else(no_pipe)?;
        let output: ChildStdout = child.stdout.take().ok_or_else(no_pipe)?;
        Ok(Self {
            worker: Box::new(child),
            input: Box::new(input),
            output: Box::new(output),
        })
    }
}

/// One client's part of a load: where it comes from, and what offers it there.
pub struct ClientWorker {
    /// The name of the client's pod.
    pub client: String,
    /// The worker there.
    pub started: StartedWorker,
}

/// How a process ended, in words: `was killed by signal 9`, `exited with 1`.
#[must_use]
pub fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}
