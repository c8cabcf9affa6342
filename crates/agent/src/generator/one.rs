//! One client's part of a load: the exchange with its worker.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use meshtax_load::{LoadSpec, Window, WorkerMessage, WorkerOrder, WorkerRequest};
use meshtax_model::trial::LoadResult;
use meshtax_observe::monotonic_ns;
use serde::Serialize;

use super::error::GeneratorError;
use super::worker::{ClientWorker, StartedWorker, Worker, ending};

/// How long starting the generator and opening its connections may take, beyond the load itself.
const GRACE: Duration = Duration::from_secs(15);

type Message = Result<WorkerMessage, serde_json::Error>;

/// One client's part of a load.
pub(super) struct Generator {
    pub(super) client: String,
    pub(super) worker: Box<dyn Worker>,
    messages: Receiver<Message>,
    /// A message that came before it was awaited.
    early: Option<Message>,
    patience: Duration,
    /// Its orders. While this is open, the worker keeps its connections.
    input: Box<dyn Write>,
}

impl Generator {
    pub(super) fn start(client: ClientWorker, spec: LoadSpec) -> Result<Self, GeneratorError> {
        let StartedWorker {
            worker,
            input,
            output,
        } = client.started;
        let load = Duration::from_nanos(spec.warmup_ns + spec.window_ns + spec.drain_ns);
        let mut generator = Self {
            client: client.client,
            worker,
            messages: read_messages(output),
            early: None,
            patience: GRACE + load,
            input,
        };
        generator.send(&WorkerRequest::holding(spec))?;
        Ok(generator)
    }

    fn send(&mut self, what: &impl Serialize) -> Result<(), GeneratorError> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.input.write_all(&line)?;
        Ok(self.input.flush()?)
    }

    /// `None`: at once.
    pub(super) fn order_start(
        &mut self,
        at_monotonic_ns: Option<u64>,
    ) -> Result<(), GeneratorError> {
        self.send(&WorkerOrder::Start {
            in_ns: 0,
            at_monotonic_ns,
        })
    }

    /// Waits until all connections are open; returns the name of its clock.
    pub(super) fn clock(&mut self) -> Result<String, GeneratorError> {
        match self.next()? {
            WorkerMessage::Ready(clock) => Ok(clock),
            other => Err(out_of_order("that it is ready", other)),
        }
    }

    pub(super) fn window(&mut self) -> Result<Window, GeneratorError> {
        match self.next()? {
            WorkerMessage::Window(window) => Ok(window),
            other => Err(out_of_order("its window", other)),
        }
    }

    /// The result, and the number of connections that are still open.
    pub(super) fn result(&mut self) -> Result<(LoadResult, u32), GeneratorError> {
        match self.next()? {
            WorkerMessage::Result { load, open } => Ok((*load, open)),
            other => Err(out_of_order("its result", other)),
        }
    }

    pub(super) fn has_ended_before(&mut self, instant_ns: u64) -> bool {
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
        WorkerMessage::NotConnected(reason) => return GeneratorError::NotConnected(reason),
        WorkerMessage::Error(reason) => return GeneratorError::Failed(reason),
        WorkerMessage::Ready(_) => "that it is ready",
        WorkerMessage::Window(_) => "a window",
        WorkerMessage::Progress(_) => "its progress",
        WorkerMessage::Result { .. } => "a result",
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
