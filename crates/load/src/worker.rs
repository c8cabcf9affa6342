//! The load generator as a process of its own: one JSON request in, JSON lines out.

use std::cell::RefCell;
use std::io::{Read, Write};

use meshtax_model::trial::LoadResult;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::run::{Hooks, Window, run_with};
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
}

impl WorkerRequest {
    /// A request in the present version.
    #[must_use]
    pub fn new(spec: LoadSpec) -> Self {
        Self {
            protocol: WORKER_PROTOCOL,
            spec,
            hold: false,
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
    /// All connections are open; the warm-up is about to begin.
    Window(Window),
    /// The load has ended: its figures.
    Result(Box<LoadResult>),
    /// There is no result: what failed, and the fix.
    Error(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Window,
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
    window: Option<Window>,
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
            window: None,
            result: None,
            reason: None,
        };
        match message {
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
            Event::Window => line.window.map(Self::Window),
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
/// Reads no further than the request's last byte, so that the input may stay open.
///
/// # Errors
/// When the output is closed, or the load failed (that is written too).
pub fn worker_main(mut input: impl Read, mut output: impl Write) -> Result<(), WorkerError> {
    let outcome = read_request(&mut input)
        .and_then(|request| offer(&request, &mut input, &mut output).map_err(|e| e.to_string()));
    match outcome {
        Ok(written) => written,
        Err(reason) => {
            write_line(&mut output, &WorkerMessage::Error(reason.clone()))?;
            Err(WorkerError::Failed(reason))
        }
    }
}

/// Offers the load. The inner result says whether the messages could be written.
fn offer(
    request: &WorkerRequest,
    input: &mut impl Read,
    output: &mut impl Write,
) -> Result<Result<(), WorkerError>, LoadError> {
    let written = RefCell::new(Ok(()));
    let output = RefCell::new(output);
    let write = |message: &WorkerMessage| {
        let mut written = written.borrow_mut();
        if written.is_ok() {
            *written = write_line(*output.borrow_mut(), message);
        }
    };
    let mut on_window = |window| write(&WorkerMessage::Window(window));
    let mut on_result = |result: &LoadResult| {
        write(&WorkerMessage::Result(Box::new(result.clone())));
        if request.hold {
            // However it ends, whoever started this worker looks no longer.
            let _ = std::io::copy(input, &mut std::io::sink());
        }
    };
    let hooks = Hooks {
        on_result: Some(&mut on_result),
        ..Hooks::new(&mut on_window)
    };
    run_with(&request.spec, hooks)?;
    Ok(written.into_inner())
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

fn write_line(output: &mut impl Write, message: &WorkerMessage) -> Result<(), WorkerError> {
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
        assert!(worker_main(input.as_bytes(), &mut output).is_err());
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
