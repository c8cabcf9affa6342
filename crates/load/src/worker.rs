//! The load generator as a separate process: JSON in, JSON lines out.
//!
//! A single worker reads one request and writes its result. One of several (`together`) reports when
//! its connections are open, waits for the order to start, and can be stopped.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use meshtax_model::trial::LoadResult;
use serde::{Deserialize, Serialize};

use crate::clock::{clock_name, now_ns};
use crate::error::{ConnectProblem, LoadError};
use crate::run::{Hooks, Progress, Window, run_with};
use crate::spec::LoadSpec;

/// The protocol's version, in both directions.
pub const WORKER_PROTOCOL: u32 = 3;

/// The input of a worker: one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRequest {
    /// [`WORKER_PROTOCOL`].
    pub protocol: u32,
    /// The load.
    pub spec: LoadSpec,
    /// Keep the connections open after the result until the input ends, so that the caller can inspect
    /// the proxies between both ends. There are no reports of progress.
    #[serde(default)]
    pub hold: bool,
    /// It is one of several: it waits for [`WorkerOrder::Start`], reports its progress, and stops on
    /// [`WorkerOrder::Stop`] or when the input ends.
    #[serde(default)]
    pub together: bool,
}

/// An order to one of several workers, after its request: one JSON object per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum WorkerOrder {
    /// Begin.
    Start {
        /// How long after this is read, in nanoseconds.
        in_ns: u64,
        /// The exact instant, for a worker with the same `CLOCK_MONOTONIC`.
        at_monotonic_ns: Option<u64>,
    },
    /// End the window now.
    Stop,
}

/// Counts since the start of a worker's load, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProgress {
    /// Requests sent.
    pub sent: u64,
    /// Responses of any status.
    pub responses: u64,
    /// Errors of any kind.
    pub failed: u64,
    /// Connections that are open.
    pub connections: u32,
}

impl From<Progress<'_>> for WorkerProgress {
    fn from(progress: Progress<'_>) -> Self {
        Self {
            sent: progress.sent,
            responses: progress.responses,
            failed: progress.failed,
            connections: progress.connections,
        }
    }
}

impl WorkerRequest {
    /// A request in the present version.
    #[must_use]
    pub fn new(spec: LoadSpec) -> Self {
        Self {
            protocol: WORKER_PROTOCOL,
            spec,
            hold: false,
            together: false,
        }
    }

    /// The same for one of several workers, with the connections kept open until the input ends.
    #[must_use]
    pub fn holding(spec: LoadSpec) -> Self {
        Self {
            hold: true,
            together: true,
            ..Self::new(spec)
        }
    }
}

/// The output of a worker: one JSON object per line. The last one is a result or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WireMessage", into = "WireMessage")]
pub enum WorkerMessage {
    /// All connections are open; the worker waits for the order to start. The text identifies its clock:
    /// workers with the same text have the same `CLOCK_MONOTONIC`.
    Ready(String),
    /// All connections are open; the warm-up is about to begin.
    Window(Window),
    /// Its progress.
    Progress(WorkerProgress),
    /// The result of the load.
    Result {
        /// Its figures.
        load: Box<LoadResult>,
        /// Connections that are still open.
        open: u32,
    },
    /// There is no load, because what accepts its connections did not: the error.
    NotConnected(String),
    /// There is no result for another reason: the error.
    Error(String),
}

impl WorkerMessage {
    fn of(error: &WorkerError) -> Self {
        let reason = error.to_string();
        match error {
            WorkerError::Load(LoadError::Connect { problem, .. })
                if *problem != ConnectProblem::Local =>
            {
                Self::NotConnected(reason)
            }
            _ => Self::Error(reason),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Ready,
    Window,
    Progress,
    Result,
    NotConnected,
    Error,
}

/// A message in its JSON form. Not an internally tagged enum: serde buffers the content of such an
/// enum, which breaks maps with numeric keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WireMessage {
    v: u32,
    event: Event,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<WorkerProgress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<LoadResult>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl From<WorkerMessage> for WireMessage {
    fn from(message: WorkerMessage) -> Self {
        let mut line = Self {
            v: WORKER_PROTOCOL,
            event: Event::Error,
            clock: None,
            window: None,
            progress: None,
            result: None,
            open: None,
            reason: None,
        };
        match message {
            WorkerMessage::Ready(clock) => {
                line.event = Event::Ready;
                line.clock = Some(clock);
            }
            WorkerMessage::Progress(progress) => {
                line.event = Event::Progress;
                line.progress = Some(progress);
            }
            WorkerMessage::Window(window) => {
                line.event = Event::Window;
                line.window = Some(window);
            }
            WorkerMessage::Result { load, open } => {
                line.event = Event::Result;
                line.result = Some(load);
                line.open = Some(open);
            }
            WorkerMessage::NotConnected(reason) => {
                line.event = Event::NotConnected;
                line.reason = Some(reason);
            }
            WorkerMessage::Error(reason) => line.reason = Some(reason),
        }
        line
    }
}

impl TryFrom<WireMessage> for WorkerMessage {
    type Error = MessageError;

    fn try_from(line: WireMessage) -> Result<Self, MessageError> {
        if line.v != WORKER_PROTOCOL {
            return Err(MessageError::Protocol { found: line.v });
        }
        match line.event {
            Event::Ready => line.clock.map(Self::Ready),
            Event::Window => line.window.map(Self::Window),
            Event::Progress => line.progress.map(Self::Progress),
            Event::Result => {
                let both = line.result.zip(line.open);
                both.map(|(load, open)| Self::Result { load, open })
            }
            Event::NotConnected => line.reason.map(Self::NotConnected),
            Event::Error => line.reason.map(Self::Error),
        }
        .ok_or(MessageError::Incomplete)
    }
}

/// Why a line is not a [`WorkerMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The worker has another version.
    #[error(
        "the message has protocol {found}, this reader supports {WORKER_PROTOCOL}: use one version of meshtax"
    )]
    Protocol {
        /// The version of the message.
        found: u32,
    },
    /// The content of the event is missing.
    #[error("the message lacks its content")]
    Incomplete,
}

/// Why the input of a worker is not a [`WorkerRequest`].
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The input is not JSON.
    #[error("the load request is not JSON: {0}")]
    Json(serde_json::Error),
    /// The caller has another version.
    #[error(
        "the load request has protocol {}, this worker supports {WORKER_PROTOCOL}: use one version of meshtax",
        .found.map_or("none".to_owned(), |found| found.to_string())
    )]
    Protocol {
        /// The version of the request, if it has one.
        found: Option<u64>,
    },
    /// The request has other fields than expected.
    #[error("the load request is invalid: {0}")]
    Invalid(serde_json::Error),
}

/// Why a worker has failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The caller no longer reads.
    #[error("cannot write to the caller of this load worker: {0}")]
    Output(#[from] std::io::Error),
    /// A message could not be encoded.
    #[error("cannot encode a message: {0}")]
    Encode(#[from] serde_json::Error),
    /// The input was not a request. The error was written to the output as well.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The load failed. The error was written to the output as well.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Reads one [`WorkerRequest`], offers its load, writes [`WorkerMessage`]s.
///
/// Reads no further than the request's last byte unless it says `together` or `hold`, so that
/// the input may stay open.
///
/// # Errors
/// When the output is closed, or the load failed (that is written too).
pub fn worker_main(
    mut input: impl Read + Send + 'static,
    mut output: impl Write,
) -> Result<(), WorkerError> {
    let outcome = match read_request(&mut input) {
        Ok(request) if request.together => offer_together(&request, input, &mut output),
        Ok(request) => offer(&request, &mut input, &mut output),
        Err(error) => Err(error.into()),
    };
    if let Err(error @ (WorkerError::Request(_) | WorkerError::Load(_))) = &outcome {
        write_line(&mut output, &WorkerMessage::of(error))?;
    }
    outcome
}

/// Writes messages from several hooks, until one cannot be written.
struct Writer<'a> {
    output: RefCell<&'a mut dyn Write>,
    written: RefCell<Result<(), WorkerError>>,
}

impl<'a> Writer<'a> {
    fn new(output: &'a mut dyn Write) -> Self {
        Self {
            output: RefCell::new(output),
            written: RefCell::new(Ok(())),
        }
    }

    /// `false`: the caller no longer reads.
    fn write(&self, message: &WorkerMessage) -> bool {
        let mut written = self.written.borrow_mut();
        if written.is_ok() {
            *written = write_line(&mut *self.output.borrow_mut(), message);
        }
        written.is_ok()
    }
}

/// Offers the load.
fn offer(
    request: &WorkerRequest,
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<(), WorkerError> {
    let writer = Writer::new(output);
    let mut on_window = |window| {
        writer.write(&WorkerMessage::Window(window));
    };
    let mut on_result = |result: &LoadResult, open| {
        let load = Box::new(result.clone());
        writer.write(&WorkerMessage::Result { load, open });
        if request.hold {
            // However this ends, the caller has finished its inspection.
            let _ = std::io::copy(input, &mut std::io::sink());
        }
    };
    let hooks = Hooks {
        on_result: Some(&mut on_result),
        ..Hooks::new(&mut on_window)
    };
    run_with(&request.spec, hooks)?;
    writer.written.into_inner()
}

/// Offers the load as one of several.
fn offer_together(
    request: &WorkerRequest,
    input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<(), WorkerError> {
    let writer = Writer::new(output);
    let abort = Arc::new(AtomicBool::new(false));
    let mut orders = Some(BufReader::new(input));
    let (ended, end) = channel();
    let mut ended = Some(ended);
    let mut on_window = |window| {
        writer.write(&WorkerMessage::Window(window));
    };
    let mut on_progress = |progress: Progress<'_>| {
        if !writer.write(&WorkerMessage::Progress(progress.into())) {
            abort.store(true, Ordering::Relaxed);
        }
    };
    let mut begin_at = || {
        writer.write(&WorkerMessage::Ready(clock_name()));
        let begin_ns = await_start(orders.take()?, &abort, ended.take()?);
        if begin_ns.is_none() {
            abort.store(true, Ordering::Relaxed);
        }
        begin_ns
    };
    let mut on_result = |result: &LoadResult, open| {
        let load = Box::new(result.clone());
        writer.write(&WorkerMessage::Result { load, open });
        if request.hold {
            // Nothing is ever sent: this waits until the thread that reads the orders has seen their end.
            let _ = end.recv();
        }
    };
    let hooks = Hooks {
        on_progress: match request.hold {
            true => None,
            false => Some(&mut on_progress),
        },
        abort: Some(&abort),
        begin_at: Some(&mut begin_at),
        on_result: Some(&mut on_result),
        ..Hooks::new(&mut on_window)
    };
    run_with(&request.spec, hooks)?;
    writer.written.into_inner()
}

/// Waits for the order to start, then for the one to stop on a separate thread, which ends with the
/// input and drops `ended` then. `None`: there will be no order to start.
fn await_start(
    mut orders: BufReader<impl Read + Send + 'static>,
    abort: &Arc<AtomicBool>,
    ended: Sender<Infallible>,
) -> Option<u64> {
    let begin_ns = match next_order(&mut orders)? {
        WorkerOrder::Stop => return None,
        WorkerOrder::Start {
            in_ns,
            at_monotonic_ns,
        } => at_monotonic_ns.unwrap_or_else(|| now_ns().saturating_add(in_ns)),
    };
    let abort = Arc::clone(abort);
    std::thread::spawn(move || {
        while let Some(WorkerOrder::Start { .. }) = next_order(&mut orders) {}
        abort.store(true, Ordering::Relaxed);
        drop(ended);
    });
    Some(begin_ns)
}

/// `None`: the input has ended, or is not an order.
fn next_order(orders: &mut BufReader<impl Read>) -> Option<WorkerOrder> {
    loop {
        let mut line = String::new();
        if orders.read_line(&mut line).ok()? == 0 {
            return None;
        }
        // The line break behind the request may still be there.
        if !line.trim().is_empty() {
            return serde_json::from_str(&line).ok();
        }
    }
}

fn read_request(input: impl Read) -> Result<WorkerRequest, RequestError> {
    let mut reader = serde_json::Deserializer::from_reader(input);
    // The version first: a request of another one may have any fields.
    let value = serde_json::Value::deserialize(&mut reader).map_err(RequestError::Json)?;
    let found = value.get("protocol").and_then(serde_json::Value::as_u64);
    if found != Some(u64::from(WORKER_PROTOCOL)) {
        return Err(RequestError::Protocol { found });
    }
    serde_json::from_value(value).map_err(RequestError::Invalid)
}

fn write_line(
    output: &mut (impl Write + ?Sized),
    message: &WorkerMessage,
) -> Result<(), WorkerError> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(input: &str) -> String {
        let mut output = Vec::new();
        assert!(worker_main(std::io::Cursor::new(input.to_owned()), &mut output).is_err());
        match serde_json::from_slice(&output).unwrap() {
            WorkerMessage::Error(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_invalid_request_is_reported_with_its_error() {
        assert!(error_of("{").contains("not JSON"));
        assert!(error_of("{}").contains("protocol none"));
        assert!(error_of(r#"{"protocol":1,"spec":7}"#).contains("protocol 1"));
        assert!(error_of(r#"{"protocol":3,"spec":7}"#).contains("is invalid"));
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.connections = 0;
        let text = serde_json::to_string(&WorkerRequest::new(spec)).unwrap();
        assert_eq!(error_of(&text), "connections is 0: use 1 to 1000000");
    }

    #[test]
    fn messages_round_trip_and_a_later_version_is_rejected() {
        let mut result = LoadResult::default();
        result.status.insert(200, 7);
        for message in [
            WorkerMessage::Ready("a clock".into()),
            WorkerMessage::Progress(WorkerProgress::default()),
            WorkerMessage::Window(Window {
                start_monotonic_ns: 1,
                end_monotonic_ns: 2,
            }),
            WorkerMessage::Result {
                load: Box::new(result),
                open: 7,
            },
            WorkerMessage::NotConnected("refused".into()),
            WorkerMessage::Error("why".into()),
        ] {
            let text = serde_json::to_string(&message).unwrap();
            assert!(text.starts_with(r#"{"v":3,"event":""#), "{text}");
            assert_eq!(
                serde_json::from_str::<WorkerMessage>(&text).unwrap(),
                message
            );
            let later = text.replace(r#""v":3"#, r#""v":4"#);
            assert!(serde_json::from_str::<WorkerMessage>(&later).is_err());
        }
        let empty = r#"{"v":3,"event":"result"}"#;
        assert!(serde_json::from_str::<WorkerMessage>(empty).is_err());
    }
}
