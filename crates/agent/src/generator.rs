//! Drives the load generator: starts it, waits for its window and its result, keeps its connections open.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use meshtax_load::{LoadSpec, Window, WorkerMessage, WorkerRequest};
use meshtax_model::trial::LoadResult;
use meshtax_observe::monotonic_ns;

/// How long starting the generator and opening its connections may take, beyond the load itself.
const GRACE: Duration = Duration::from_secs(15);

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

/// Why there is no load, or no result of it.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// It was not started.
    #[error("cannot start the load generator: {0}")]
    NotStarted(#[from] io::Error),
    /// It reported an error instead of a result: what failed, and the fix.
    #[error("load: {0}")]
    Failed(String),
    /// It sent no message in time.
    #[error("the load generator did not respond within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It ended without a result.
    #[error("the load generator {0}")]
    Ended(String),
    /// Its message cannot be parsed.
    #[error("the load generator's message cannot be parsed: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A message of another kind was due.
    #[error("the load generator sent {sent} instead of {expected}")]
    OutOfOrder {
        /// The kind of message that was due.
        expected: &'static str,
        /// The message that came.
        sent: &'static str,
    },
}

type Message = Result<WorkerMessage, serde_json::Error>;

/// A load that runs. Dropping it ends the worker.
pub struct Generator {
    worker: Box<dyn Worker>,
    messages: Receiver<Message>,
    /// A message that came before it was awaited.
    early: Option<Message>,
    patience: Duration,
    /// While this is open, the worker keeps its connections.
    _hold: Box<dyn Write>,
}

impl Generator {
    /// Sends the request to a worker that was just started.
    ///
    /// # Errors
    /// If it does not take the request.
    pub fn start(started: StartedWorker, spec: LoadSpec) -> Result<Self, GeneratorError> {
        let StartedWorker {
            worker,
            mut input,
            output,
        } = started;
        let load = Duration::from_nanos(spec.warmup_ns + spec.window_ns + spec.drain_ns);
        let request = serde_json::to_vec(&WorkerRequest::holding(spec))?;
        let generator = |input| Self {
            worker,
            messages: read_messages(output),
            early: None,
            patience: GRACE + load,
            _hold: input,
        };
        let sent = input.write_all(&request).and_then(|()| input.flush());
        let generator = generator(input);
        sent?;
        Ok(generator)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.worker.pid()
    }

    /// Waits until all connections are open; the window follows the warm-up.
    ///
    /// # Errors
    /// If the worker ended, failed or did not respond in time.
    pub fn window(&mut self) -> Result<Window, GeneratorError> {
        match self.next()? {
            WorkerMessage::Window(window) => Ok(window),
            other => Err(out_of_order("its window", other)),
        }
    }

    /// Waits until the load and its drain are over.
    ///
    /// # Errors
    /// As [`Self::window`].
    pub fn result(&mut self) -> Result<LoadResult, GeneratorError> {
        match self.next()? {
            WorkerMessage::Result(result) => Ok(*result),
            other => Err(out_of_order("its result", other)),
        }
    }

    /// Waits until an instant of `CLOCK_MONOTONIC`; returns `true` as soon as the load is over.
    pub(crate) fn has_ended_before(&mut self, instant_ns: u64) -> bool {
        if self.early.is_some() {
            return true;
        }
        let left_ns = instant_ns.saturating_sub(monotonic_ns());
        match self.messages.recv_timeout(Duration::from_nanos(left_ns)) {
            Ok(message) => self.early = Some(message),
            Err(RecvTimeoutError::Timeout) => return false,
            // How it ended is reported when its result is awaited.
            Err(RecvTimeoutError::Disconnected) => {}
        }
        true
    }

    fn next(&mut self) -> Result<WorkerMessage, GeneratorError> {
        if let Some(message) = self.early.take() {
            return Ok(message?);
        }
        match self.messages.recv_timeout(self.patience) {
            Ok(message) => Ok(message?),
            Err(RecvTimeoutError::Timeout) => Err(GeneratorError::Timeout(self.patience)),
            Err(RecvTimeoutError::Disconnected) => {
                let how = self.worker.ended().map(ending);
                Err(GeneratorError::Ended(how.unwrap_or_else(|e| e.to_string())))
            }
        }
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.worker.end();
    }
}

fn out_of_order(expected: &'static str, message: WorkerMessage) -> GeneratorError {
    let sent = match message {
        WorkerMessage::Error(reason) => return GeneratorError::Failed(reason),
        WorkerMessage::Ready(_) => "that it is ready",
        WorkerMessage::Window(_) => "a window",
        WorkerMessage::Progress(_) => "its progress",
        WorkerMessage::Result(_) => "a result",
    };
    GeneratorError::OutOfOrder { expected, sent }
}

fn read_messages(output: impl Read + Send + 'static) -> Receiver<Message> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(serde_json::from_str(&line)).is_err() {
                return;
            }
        }
    });
    receiver
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
