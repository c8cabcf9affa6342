//! Several workers that offer one load together.
//!
//! Each gets its share of the connections, and every n-th arrival of the common schedule. They open
//! their connections, are started together, and their results are merged.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use meshtax_model::trial::LoadResult;

use crate::clock::{clock_name, now_ns};
use crate::error::LoadError;
use crate::run::{Hooks, Progress, Window};
use crate::spec::LoadSpec;
use crate::worker::{WorkerMessage, WorkerOrder, WorkerProgress, WorkerRequest};

/// From the order to start until the load begins: an order takes up to this long to arrive.
const LEAD_NS: u64 = 50_000_000;

/// How soon an abort is seen, and how often progress is shown.
const TICK: Duration = Duration::from_millis(250);

/// How long a worker may be silent, in addition to window and drain.
const GRACE_NS: u64 = 15_000_000_000;

/// The connection to a worker.
pub struct Member {
    /// Its name in errors and verdicts.
    pub name: String,
    /// Its [`WorkerMessage`]s.
    pub output: Box<dyn Read + Send>,
    /// Its request and orders. Dropped, it stops.
    pub input: Box<dyn Write + Send>,
}

/// Why several workers have no result.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The load is invalid.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// There are more workers than connections or requests to share.
    #[error("{workers} workers cannot share {what} {count}: use fewer workers, or more {what}")]
    TooMany {
        /// Workers.
        workers: usize,
        /// What they share.
        what: &'static str,
        /// How many of them there are.
        count: u64,
    },
    /// One of them failed.
    #[error("worker {name}: {failure}")]
    Worker {
        /// Its name.
        name: String,
        /// What went wrong.
        failure: WorkerFailure,
    },
}

/// What went wrong with a worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerFailure {
    /// It reported this error.
    #[error("{0}")]
    Reported(String),
    /// Its output cannot be read.
    #[error("cannot read its output: {0}")]
    Read(std::io::Error),
    /// Its input cannot be written.
    #[error("cannot write to it: {0}")]
    Write(std::io::Error),
    /// Its output is not a message.
    #[error("its output is not a message: {0}")]
    Message(serde_json::Error),
    /// It has ended.
    #[error("it ended without a result")]
    Ended,
    /// Its connections were not opened in time.
    #[error("it does not get its connections open")]
    NotReady,
    /// It no longer reports its progress.
    #[error("it no longer reports anything")]
    Silent,
}

/// A worker's index and message; `Err`: it was the last one.
type MemberEvent = (usize, Result<WorkerMessage, WorkerFailure>);

/// Offers the load with all members together and merges what they measured.
///
/// # Errors
/// When the load is invalid or one of the members fails: a part of a load is not that load.
pub fn run_fleet(
    spec: &LoadSpec,
    members: Vec<Member>,
    hooks: Hooks<'_>,
) -> Result<LoadResult, FleetError> {
    spec.validate()?;
    let workers = members.len();
    let most = u64::from(spec.connections).min(spec.max_requests.unwrap_or(u64::MAX));
    if workers as u64 > most {
        let connections = u64::from(spec.connections) == most;
        return Err(FleetError::TooMany {
            workers,
            what: if connections {
                "connections"
            } else {
                "requests"
            },
            count: most,
        });
    }
    let (sender, events) = channel();
    let mut fleet = Fleet {
        spec,
        names: Vec::new(),
        inputs: Vec::new(),
        events,
        progress: vec![WorkerProgress::default(); workers],
        hooks,
        begin_ns: 0,
    };
    for (number, member) in members.into_iter().enumerate() {
        fleet.names.push(member.name);
        fleet.inputs.push(member.input);
        let sender = sender.clone();
        // Ends with what it reads.
        std::thread::spawn(move || pass_on(number, member.output, &sender));
    }
    drop(sender);
    fleet.conduct()
}

fn pass_on(number: usize, output: Box<dyn Read + Send>, events: &Sender<MemberEvent>) {
    for line in BufReader::new(output).lines() {
        let message = line
            .map_err(WorkerFailure::Read)
            .and_then(|line| serde_json::from_str(&line).map_err(WorkerFailure::Message));
        let goes_on = message.is_ok();
        if events.send((number, message)).is_err() || !goes_on {
            return;
        }
    }
    let _ = events.send((number, Err(WorkerFailure::Ended)));
}

struct Fleet<'a, 'h> {
    spec: &'a LoadSpec,
    names: Vec<String>,
    inputs: Vec<Box<dyn Write + Send>>,
    events: Receiver<MemberEvent>,
    progress: Vec<WorkerProgress>,
    hooks: Hooks<'h>,
    begin_ns: u64,
}

impl Fleet<'_, '_> {
    fn conduct(mut self) -> Result<LoadResult, FleetError> {
        let count = self.names.len() as u32;
        for number in 0..count {
            let request = WorkerRequest {
                together: true,
                ..WorkerRequest::new(self.spec.part(number, count))
            };
            self.send(number as usize, &request)?;
        }
        let clocks = self.all_ready()?;
        self.start(&clocks)?;
        let start_ns = self.begin_ns + self.spec.warmup_ns;
        (self.hooks.on_window)(Window {
            start_monotonic_ns: start_ns,
            end_monotonic_ns: start_ns + self.spec.window_ns,
        });
        let (result, open) = self.all_results()?;
        if let Some(on_result) = &mut self.hooks.on_result {
            on_result(&result, open);
        }
        Ok(result)
    }

    fn failed(&self, number: usize, failure: WorkerFailure) -> FleetError {
        FleetError::Worker {
            name: self.names[number].clone(),
            failure,
        }
    }

    fn send(&mut self, number: usize, what: &impl serde::Serialize) -> Result<(), FleetError> {
        let written = serde_json::to_vec(what)
            .map_err(std::io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.inputs[number].write_all(&line)?;
                self.inputs[number].flush()
            });
        match written {
            Ok(()) => Ok(()),
            // Its last error is more informative than the failed write.
            Err(error) => Err(self
                .last_error(number)
                .unwrap_or(self.failed(number, WorkerFailure::Write(error)))),
        }
    }

    fn last_error(&self, number: usize) -> Option<FleetError> {
        while let Ok((from, message)) = self.events.recv_timeout(TICK) {
            if let (true, Ok(WorkerMessage::NotConnected(reason) | WorkerMessage::Error(reason))) =
                (from == number, message)
            {
                return Some(self.failed(number, WorkerFailure::Reported(reason)));
            }
        }
        None
    }

    fn all_ready(&mut self) -> Result<Vec<String>, FleetError> {
        let mut clocks = vec![None; self.names.len()];
        while clocks.iter().any(Option::is_none) {
            match self.events.recv_timeout(Duration::from_nanos(
                self.spec.connect_timeout_ns.saturating_add(GRACE_NS),
            )) {
                Ok((number, Ok(WorkerMessage::Ready(clock)))) => clocks[number] = Some(clock),
                Ok((
                    number,
                    Ok(WorkerMessage::NotConnected(reason) | WorkerMessage::Error(reason)),
                )) => {
                    return Err(self.failed(number, WorkerFailure::Reported(reason)));
                }
                Ok((number, Err(failure))) => return Err(self.failed(number, failure)),
                Ok(_) => {}
                Err(_) => {
                    let silent = clocks.iter().position(Option::is_none).unwrap_or(0);
                    return Err(self.failed(silent, WorkerFailure::NotReady));
                }
            }
        }
        Ok(clocks.into_iter().flatten().collect())
    }

    /// Workers that share our clock start at the same instant, the others later by the time that the
    /// order takes to arrive.
    fn start(&mut self, clocks: &[String]) -> Result<(), FleetError> {
        let ours = clock_name();
        self.begin_ns = now_ns() + LEAD_NS;
        for (number, clock) in clocks.iter().enumerate() {
            let order = WorkerOrder::Start {
                in_ns: self.begin_ns.saturating_sub(now_ns()),
                at_monotonic_ns: (*clock == ours).then_some(self.begin_ns),
            };
            self.send(number, &order)?;
        }
        Ok(())
    }

    /// The sum of their results, and of the connections that are still open.
    fn all_results(&mut self) -> Result<(LoadResult, u32), FleetError> {
        let (mut sum, mut all_open) = (LoadResult::default(), 0);
        let mut has_result = vec![false; self.names.len()];
        let mut stopped = false;
        let mut silent_since_ns = now_ns();
        let silence_ns = GRACE_NS.saturating_add(self.spec.drain_ns);
        while has_result.contains(&false) {
            match self.events.recv_timeout(TICK) {
                Ok((number, Ok(WorkerMessage::Result { load, open }))) => {
                    sum.merge(&self.named(number, *load));
                    all_open += open;
                    has_result[number] = true;
                }
                Ok((number, Ok(WorkerMessage::Error(reason)))) if !has_result[number] => {
                    return Err(self.failed(number, WorkerFailure::Reported(reason)));
                }
                // After its result it may end in any way.
                Ok((number, Err(failure))) if !has_result[number] => {
                    return Err(self.failed(number, failure));
                }
                Ok((number, Ok(WorkerMessage::Progress(progress)))) => {
                    self.progress[number] = progress;
                    self.show();
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if now_ns() - silent_since_ns < silence_ns => {
                    self.stop_on_abort(&mut stopped);
                    continue;
                }
                Err(_) => {
                    let silent = has_result.iter().position(|has| !has).unwrap_or(0);
                    return Err(self.failed(silent, WorkerFailure::Silent));
                }
            }
            silent_since_ns = now_ns();
            self.stop_on_abort(&mut stopped);
        }
        Ok((sum, all_open))
    }

    /// Adds the name of the worker to its verdict.
    fn named(&self, number: usize, mut result: LoadResult) -> LoadResult {
        if let Some(bound) = &mut result.audit.generator_bound {
            bound.worker = Some(self.names[number].clone());
        }
        result
    }

    fn stop_on_abort(&mut self, stopped: &mut bool) {
        let aborted = self
            .hooks
            .abort
            .is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed));
        if aborted && !*stopped {
            *stopped = true;
            for number in 0..self.inputs.len() {
                // One that cannot be written to has ended, or its reader reports why.
                let _ = self.send(number, &WorkerOrder::Stop);
            }
        }
    }

    fn show(&mut self) {
        let sum = |of: fn(&WorkerProgress) -> u64| self.progress.iter().map(of).sum();
        let progress = Progress {
            elapsed_ns: now_ns().saturating_sub(self.begin_ns),
            sent: sum(|p| p.sent),
            responses: sum(|p| p.responses),
            failed: sum(|p| p.failed),
            connections: sum(|p| u64::from(p.connections)) as u32,
            last: None,
        };
        if let Some(on_progress) = &mut self.hooks.on_progress {
            on_progress(progress);
        }
    }
}
