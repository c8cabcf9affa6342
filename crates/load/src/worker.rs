//! The load generator as a process of its own: JSON in, JSON lines out.
//!
//! A worker that stands alone is asked once and answers. One of several (`together`) says when
//! its connections are open, waits for the order to start, and can be told to stop.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meshtax_model::trial::LoadResult;
use serde::{Deserialize, Serialize};

use crate::clock::{clock_name, now_ns};
use crate::error::LoadError;
use crate::run::{Hooks, Progress, Window, run_with};
use crate::spec::LoadSpec;

/// The protocol's version, in both directions.
pub const WORKER_PROTOCOL: u32 = 2;

/// What the worker reads: one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRequest {
    /// [`WORKER_PROTOCOL`].
    pub protocol: u32,
    /// The load.
    pub spec: LoadSpec,
    /// Keep the connections open after the result until the input ends, so that the starter can
    /// look at what stands between the two ends.
    #[serde(default)]
    pub hold: bool,
    /// It is one of several: it waits for [`WorkerOrder::Start`], tells its progress, and stops
    /// when told, or when the input ends.
    #[serde(default)]
    pub together: bool,
}

/// What a worker that is one of several is told after its request: one JSON object per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum WorkerOrder {
    /// Begin.
    Start {
        /// So long after this is read, in nanoseconds.
        in_ns: u64,
        /// Rather at this instant, for a worker that has the same `CLOCK_MONOTONIC`.
        at_monotonic_ns: Option<u64>,
    },
    /// End the window now.
    Stop,
}

/// Counts since the begin of a worker's load, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProgress {
    /// Requests sent.
    pub sent: u64,
    /// Answers of any status.
    pub answered: u64,
    /// Errors of any kind.
    pub failed: u64,
    /// Connections that are open.
    pub connections: u32,
}

impl From<Progress<'_>> for WorkerProgress {
    fn from(progress: Progress<'_>) -> Self {
        Self {
            sent: progress.sent,
            answered: progress.answered,
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

    /// The same, with the connections kept open until the input ends.
    #[must_use]
    pub fn holding(spec: LoadSpec) -> Self {
        Self {
            hold: true,
            ..Self::new(spec)
        }
    }
}

/// What the worker writes: one JSON object per line. The last one is a result or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Line", into = "Line")]
pub enum WorkerMessage {
    /// All connections are open, and the order to start is awaited. Whose clock it goes by:
    /// workers with the same text have the same `CLOCK_MONOTONIC`.
    Ready(String),
    /// All connections are open; the warm-up is about to begin.
    Window(Window),
    /// How far it is.
    Progress(WorkerProgress),
    /// The load has ended: its figures.
    Result(Box<LoadResult>),
    /// There is no result: what failed, and the fix.
    Error(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Ready,
    Window,
    Progress,
    Result,
    Error,
}

/// A message as it is written. Not an enum with a tag in it: serde buffers what stands in
/// such an enum, and the numbers that are a map's keys in JSON do not survive that.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
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
    reason: Option<String>,
}

impl From<WorkerMessage> for Line {
    fn from(message: WorkerMessage) -> Self {
        let mut line = Self {
            v: WORKER_PROTOCOL,
            event: Event::Error,
            clock: None,
            window: None,
            progress: None,
            result: None,
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
            WorkerMessage::Result(result) => {
                line.event = Event::Result;
                line.result = Some(result);
            }
            WorkerMessage::Error(reason) => line.reason = Some(reason),
        }
        line
    }
}

impl TryFrom<Line> for WorkerMessage {
    type Error = String;

    fn try_from(line: Line) -> Result<Self, String> {
        if line.v != WORKER_PROTOCOL {
            return Err(format!(
                "a message of protocol {}, this reader speaks {WORKER_PROTOCOL}: use one version of meshtax",
                line.v
            ));
        }
        match line.event {
            Event::Ready => line.clock.map(Self::Ready),
            Event::Window => line.window.map(Self::Window),
            Event::Progress => line.progress.map(Self::Progress),
            Event::Result => line.result.map(Self::Result),
            Event::Error => line.reason.map(Self::Error),
        }
        .ok_or_else(|| format!("a {:?} message without its content", line.event))
    }
}

/// Why a worker could not even report.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Whoever started the worker does not read any more.
    #[error("cannot write to the starter of this load worker: {0}")]
    Output(#[from] std::io::Error),
    /// A message could not be encoded.
    #[error("cannot encode a message: {0}")]
    Encode(#[from] serde_json::Error),
    /// The load failed; the reason was written to the output as well.
    #[error("{0}")]
    Failed(String),
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
        Err(reason) => Err(reason),
    };
    match outcome {
        Ok(written) => written,
        Err(reason) => {
            write_line(&mut output, &WorkerMessage::Error(reason.clone()))?;
            Err(WorkerError::Failed(reason))
        }
    }
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

    /// `false`: nobody reads any more.
    fn write(&self, message: &WorkerMessage) -> bool {
        let mut written = self.written.borrow_mut();
        if written.is_ok() {
            *written = write_line(&mut *self.output.borrow_mut(), message);
        }
        written.is_ok()
    }
}

/// Offers the load. The inner result says whether the messages could be written.
fn offer(
    request: &WorkerRequest,
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<Result<(), WorkerError>, String> {
    let writer = Writer::new(output);
    let mut on_window = |window| {
        writer.write(&WorkerMessage::Window(window));
    };
    let mut on_result = |result: &LoadResult| {
        writer.write(&WorkerMessage::Result(Box::new(result.clone())));
        if request.hold {
            // However it ends, whoever started this worker looks no longer.
            let _ = std::io::copy(input, &mut std::io::sink());
        }
    };
    let hooks = Hooks {
        on_result: Some(&mut on_result),
        ..Hooks::new(&mut on_window)
    };
    run_with(&request.spec, hooks).map_err(|e: LoadError| e.to_string())?;
    Ok(writer.written.into_inner())
}

/// Offers the load as one of several.
fn offer_together(
    request: &WorkerRequest,
    input: impl Read + Send + 'static,
    output: &mut impl Write,
) -> Result<Result<(), WorkerError>, String> {
    let writer = Writer::new(output);
    let abort = Arc::new(AtomicBool::new(false));
    let mut orders = Some(BufReader::new(input));
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
        let orders = orders.take()?;
        let begin_ns = await_start(orders, &abort);
        if begin_ns.is_none() {
            abort.store(true, Ordering::Relaxed);
        }
        begin_ns
    };
    let hooks = Hooks {
        on_progress: Some(&mut on_progress),
        abort: Some(&abort),
        begin_at: Some(&mut begin_at),
        ..Hooks::new(&mut on_window)
    };
    let result = run_with(&request.spec, hooks).map_err(|e| e.to_string())?;
    writer.write(&WorkerMessage::Result(Box::new(result)));
    Ok(writer.written.into_inner())
}

/// Waits for the order to start, then listens for the one to stop on a thread of its own, which
/// ends with the input. `None`: there is nobody any more who would start it.
fn await_start(
    mut orders: BufReader<impl Read + Send + 'static>,
    abort: &Arc<AtomicBool>,
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
    });
    Some(begin_ns)
}

/// `None`: the input ended, or is no order.
fn next_order(orders: &mut BufReader<impl Read>) -> Option<WorkerOrder> {
    loop {
        let mut line = String::new();
        if orders.read_line(&mut line).ok()? == 0 {
            return None;
        }
        // What ended the request's own line may still be there.
        if !line.trim().is_empty() {
            return serde_json::from_str(&line).ok();
        }
    }
}

fn read_request(input: impl Read) -> Result<WorkerRequest, String> {
    let mut reader = serde_json::Deserializer::from_reader(input);
    // The version first: a request of another one may have any fields.
    let value = serde_json::Value::deserialize(&mut reader)
        .map_err(|e| format!("the load request is not JSON: {e}"))?;
    let protocol = value.get("protocol").and_then(serde_json::Value::as_u64);
    if protocol != Some(u64::from(WORKER_PROTOCOL)) {
        return Err(format!(
            "the load request has protocol {}, this worker speaks {WORKER_PROTOCOL}: use one version of meshtax",
            protocol.map_or("none".to_owned(), |p| p.to_string())
        ));
    }
    serde_json::from_value(value).map_err(|e| format!("the load request is not understood: {e}"))
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

    fn answer_to(input: &str) -> String {
        let mut output = Vec::new();
        assert!(worker_main(std::io::Cursor::new(input.to_owned()), &mut output).is_err());
        match serde_json::from_slice(&output).unwrap() {
            WorkerMessage::Error(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_bad_request_is_answered_with_its_reason() {
        assert!(answer_to("{").contains("not JSON"));
        assert!(answer_to("{}").contains("protocol none"));
        assert!(answer_to(r#"{"protocol":1,"spec":7}"#).contains("protocol 1"));
        assert!(answer_to(r#"{"protocol":2,"spec":7}"#).contains("not understood"));
        let mut spec = LoadSpec::new("127.0.0.1:80".parse().unwrap());
        spec.connections = 0;
        let text = serde_json::to_string(&WorkerRequest::new(spec)).unwrap();
        assert_eq!(answer_to(&text), "connections is 0: use 1 to 1000000");
    }

    #[test]
    fn messages_survive_json_and_a_later_version_is_refused() {
        let mut result = LoadResult::default();
        result.status.insert(200, 7);
        for message in [
            WorkerMessage::Ready("a clock".into()),
            WorkerMessage::Progress(WorkerProgress::default()),
            WorkerMessage::Window(Window {
                start_monotonic_ns: 1,
                end_monotonic_ns: 2,
            }),
            WorkerMessage::Result(Box::new(result)),
            WorkerMessage::Error("why".into()),
        ] {
            let text = serde_json::to_string(&message).unwrap();
            assert!(text.starts_with(r#"{"v":2,"event":""#), "{text}");
            assert_eq!(
                serde_json::from_str::<WorkerMessage>(&text).unwrap(),
                message
            );
            let later = text.replace(r#""v":2"#, r#""v":3"#);
            assert!(serde_json::from_str::<WorkerMessage>(&later).is_err());
        }
        let empty = r#"{"v":2,"event":"result"}"#;
        assert!(serde_json::from_str::<WorkerMessage>(empty).is_err());
    }
}
