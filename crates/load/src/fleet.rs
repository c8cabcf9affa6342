//! Several generators that offer one load together.
//!
//! Each gets its share of connections, and every n-th arrival of the one schedule. They open
//! their connections, are started together, and their histograms are merged.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use meshtax_model::trial::LoadResult;

use crate::clock::{clock_name, now_ns};
use crate::error::LoadError;
use crate::run::{Hooks, Progress, Window};
use crate::spec::LoadSpec;
use crate::worker::{WorkerMessage, WorkerOrder, WorkerProgress, WorkerRequest};

/// Between the order to start and the begin: an order takes so long to reach everyone.
const LEAD_NS: u64 = 50_000_000;

/// How soon an abort is seen, and how often progress is shown.
const TICK: Duration = Duration::from_millis(250);

/// Beyond window and drain, for which a worker may be silent.
const GRACE_NS: u64 = 15_000_000_000;

/// A worker: what it says, and where it is told.
pub struct Member {
    /// How errors and verdicts call it.
    pub name: String,
    /// Its [`WorkerMessage`]s.
    pub says: Box<dyn Read + Send>,
    /// Its request and orders. Dropped, it stops.
    pub hears: Box<dyn Write + Send>,
}

/// Why several generators came to no result.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The load itself cannot be.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// There are more workers than something can be shared out to.
    #[error("{workers} workers cannot share {what} {count}: use fewer workers, or more {what}")]
    TooMany {
        /// Workers.
        workers: usize,
        /// What is to be shared.
        what: &'static str,
        /// How many of that there are.
        count: u64,
    },
    /// One of them failed.
    #[error("worker {name}: {reason}")]
    Worker {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
}

/// What a worker's reader passes on; `Err`: it says nothing any more.
type News = (usize, Result<WorkerMessage, String>);

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
    let (sender, news) = channel();
    let mut fleet = Fleet {
        spec,
        names: Vec::new(),
        hears: Vec::new(),
        news,
        progress: vec![WorkerProgress::default(); workers],
        hooks,
        begin_ns: 0,
    };
    for (number, member) in members.into_iter().enumerate() {
        fleet.names.push(member.name);
        fleet.hears.push(member.hears);
        let sender = sender.clone();
        // Ends with what it reads.
        std::thread::spawn(move || pass_on(number, member.says, &sender));
    }
    drop(sender);
    fleet.conduct()
}

fn pass_on(number: usize, says: Box<dyn Read + Send>, news: &Sender<News>) {
    for line in BufReader::new(says).lines() {
        let message = line.map_err(|e| e.to_string()).and_then(|line| {
            serde_json::from_str(&line).map_err(|e| format!("said what is no message: {e}"))
        });
        let goes_on = message.is_ok();
        if news.send((number, message)).is_err() || !goes_on {
            return;
        }
    }
    let _ = news.send((number, Err("ended without a result".into())));
}

struct Fleet<'a, 'h> {
    spec: &'a LoadSpec,
    names: Vec<String>,
    hears: Vec<Box<dyn Write + Send>>,
    news: Receiver<News>,
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
            self.tell(number as usize, &request)?;
        }
        let clocks = self.all_ready()?;
        self.start(&clocks)?;
        let start_ns = self.begin_ns + self.spec.warmup_ns;
        (self.hooks.on_window)(Window {
            start_monotonic_ns: start_ns,
            end_monotonic_ns: start_ns + self.spec.window_ns,
        });
        let result = self.all_results()?;
        if let Some(on_result) = &mut self.hooks.on_result {
            on_result(&result);
        }
        Ok(result)
    }

    fn failed(&self, number: usize, reason: impl ToString) -> FleetError {
        FleetError::Worker {
            name: self.names[number].clone(),
            reason: reason.to_string(),
        }
    }

    fn tell(&mut self, number: usize, what: &impl serde::Serialize) -> Result<(), FleetError> {
        let written = serde_json::to_vec(what)
            .map_err(std::io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.hears[number].write_all(&line)?;
                self.hears[number].flush()
            });
        match written {
            Ok(()) => Ok(()),
            // What it said last tells more than that it does not listen.
            Err(error) => Err(self
                .last_words(number)
                .unwrap_or(self.failed(number, error))),
        }
    }

    fn last_words(&self, number: usize) -> Option<FleetError> {
        while let Ok((from, message)) = self.news.recv_timeout(TICK) {
            if let (true, Ok(WorkerMessage::Error(reason))) = (from == number, message) {
                return Some(self.failed(number, reason));
            }
        }
        None
    }

    fn all_ready(&mut self) -> Result<Vec<String>, FleetError> {
        let mut clocks = vec![None; self.names.len()];
        while clocks.iter().any(Option::is_none) {
            match self.news.recv_timeout(Duration::from_nanos(
                self.spec.connect_timeout_ns.saturating_add(GRACE_NS),
            )) {
                Ok((number, Ok(WorkerMessage::Ready(clock)))) => clocks[number] = Some(clock),
                Ok((number, Ok(WorkerMessage::Error(reason)) | Err(reason))) => {
                    return Err(self.failed(number, reason));
                }
                Ok(_) => {}
                Err(_) => {
                    let silent = clocks.iter().position(Option::is_none).unwrap_or(0);
                    return Err(self.failed(silent, "does not get its connections open"));
                }
            }
        }
        Ok(clocks.into_iter().flatten().collect())
    }

    /// Those who share our clock start at one instant, the others as soon after it as the order
    /// takes to reach them.
    fn start(&mut self, clocks: &[String]) -> Result<(), FleetError> {
        let ours = clock_name();
        self.begin_ns = now_ns() + LEAD_NS;
        for (number, clock) in clocks.iter().enumerate() {
            let order = WorkerOrder::Start {
                in_ns: self.begin_ns.saturating_sub(now_ns()),
                at_monotonic_ns: (*clock == ours).then_some(self.begin_ns),
            };
            self.tell(number, &order)?;
        }
        Ok(())
    }

    fn all_results(&mut self) -> Result<LoadResult, FleetError> {
        let mut sum = LoadResult::default();
        let mut has_result = vec![false; self.names.len()];
        let mut told_to_stop = false;
        let mut silent_since_ns = now_ns();
        let silence_ns = GRACE_NS.saturating_add(self.spec.drain_ns);
        while has_result.contains(&false) {
            match self.news.recv_timeout(TICK) {
                Ok((number, Ok(WorkerMessage::Result(result)))) => {
                    sum.merge(&self.named(number, *result));
                    has_result[number] = true;
                }
                // After its result it may end as it likes.
                Ok((number, Ok(WorkerMessage::Error(reason)) | Err(reason)))
                    if !has_result[number] =>
                {
                    return Err(self.failed(number, reason));
                }
                Ok((number, Ok(WorkerMessage::Progress(progress)))) => {
                    self.progress[number] = progress;
                    self.show();
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if now_ns() - silent_since_ns < silence_ns => {
                    self.stop_if_asked(&mut told_to_stop);
                    continue;
                }
                Err(_) => {
                    let silent = has_result.iter().position(|has| !has).unwrap_or(0);
                    return Err(self.failed(silent, "says nothing any more"));
                }
            }
            silent_since_ns = now_ns();
            self.stop_if_asked(&mut told_to_stop);
        }
        Ok(sum)
    }

    /// A verdict says whose it is.
    fn named(&self, number: usize, mut result: LoadResult) -> LoadResult {
        if let Some(reason) = &mut result.audit.generator_bound {
            *reason = format!("worker {}: {reason}", self.names[number]);
        }
        result
    }

    fn stop_if_asked(&mut self, told: &mut bool) {
        let asked = self
            .hooks
            .abort
            .is_some_and(|flag| flag.load(std::sync::atomic::Ordering::Relaxed));
        if asked && !*told {
            *told = true;
            for number in 0..self.hears.len() {
                // One that does not hear has ended, or its reader says why.
                let _ = self.tell(number, &WorkerOrder::Stop);
            }
        }
    }

    fn show(&mut self) {
        let sum = |of: fn(&WorkerProgress) -> u64| self.progress.iter().map(of).sum();
        let progress = Progress {
            elapsed_ns: now_ns().saturating_sub(self.begin_ns),
            sent: sum(|p| p.sent),
            answered: sum(|p| p.answered),
            failed: sum(|p| p.failed),
            connections: sum(|p| u64::from(p.connections)) as u32,
            last: None,
        };
        if let Some(on_progress) = &mut self.hooks.on_progress {
            on_progress(progress);
        }
    }
}
