//! Drives the load generators, one in each client's pod: starts them together, waits for their window and their results,
//! keeps their connections open.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use meshtax_load::{
    LoadSpec, Window, WorkerMessage, WorkerOrder, WorkerRequest, judge_shared_cores,
};
use meshtax_model::failure::TrialFailure;
use meshtax_model::trial::LoadResult;
use meshtax_observe::monotonic_ns;
use serde::Serialize;

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
    /// The generators of several clients do not share `CLOCK_MONOTONIC`.
    #[error(
        "the clients' pods have different clocks: they must be on one node, and in one time namespace"
    )]
    DifferentClocks,
    /// The generators of several clients did not start at the same instant: the order reached one too late.
    #[error("the load generators started up to {} ms apart: the machine was too busy to start them together", .apart_ns / 1_000_000)]
    NotTogether {
        /// Between the first and the last start, in nanoseconds.
        apart_ns: u64,
    },
}

impl From<GeneratorError> for TrialFailure {
    fn from(error: GeneratorError) -> Self {
        let detail = error.to_string();
        match error {
            GeneratorError::NotTogether { .. } => Self::NotTogether { detail },
            _ => Self::LoadFailed { detail },
        }
    }
}

/// One client's part of a load: where it comes from, and what offers it there.
pub struct ClientWorker {
    /// The name of the client's pod.
    pub client: String,
    /// The worker there.
    pub started: StartedWorker,
}

/// What the generator of one client measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLoad {
    /// The name of the client's pod.
    pub client: String,
    /// Connections that it was to open.
    pub connections: u32,
    /// Its part of the load.
    pub result: LoadResult,
}

/// The whole load that the clients' generators offered together: counts and histograms are added. The verdict on a
/// generator names its client where there are several; generators that are pinned to the same cores are judged together.
#[must_use]
pub fn whole_load(spec: &LoadSpec, parts: &[ClientLoad]) -> LoadResult {
    let named = |part: &ClientLoad| {
        let mut result = part.result.clone();
        if let (true, Some(bound)) = (parts.len() > 1, &mut result.audit.generator_bound) {
            bound.worker = Some(part.client.clone());
        }
        result
    };
    let merged = parts.iter().map(named).reduce(|mut sum, part| {
        sum.merge(&part);
        sum
    });
    let mut whole = merged.unwrap_or_default();
    if parts.len() > 1 && !spec.cores.is_empty() {
        let busy_shares = parts.iter().map(|part| part.result.audit.busy_share);
        judge_shared_cores(&mut whole, busy_shares, spec.model.is_closed());
    }
    whole
}

/// The generators of a load, one in each client's pod: they start at the same instant, and each offers its part.
/// Dropping them ends the workers.
pub struct Generators(Vec<Generator>);

impl Generators {
    /// Sends each worker its part of the load, and waits until all have opened their connections. There is one worker
    /// for each client.
    ///
    /// # Errors
    /// If a worker does not take its part, ends or does not get its connections open, or if the workers have different
    /// clocks.
    pub fn ready(spec: &LoadSpec, workers: Vec<ClientWorker>) -> Result<Self, GeneratorError> {
        let of = workers.len() as u32;
        let started: Result<Vec<Generator>, GeneratorError> = (0..)
            .zip(workers)
            .map(|(index, worker)| Generator::start(worker, spec.part(index, of)))
            .collect();
        let mut all = Self(started?);
        let clocks: Vec<String> = all.each(Generator::clock)?;
        match clocks.windows(2).all(|pair| pair[0] == pair[1]) {
            true => Ok(all),
            false => Err(GeneratorError::DifferentClocks),
        }
    }

    /// How far ahead the start has to be ordered for the order to reach all of them in time, in nanoseconds.
    #[must_use]
    pub fn lead_ns(&self) -> u64 {
        /// A single generator starts whenever it gets the order.
        const SINGLE_NS: u64 = 3_000_000;
        /// Several start at one instant or not at all: the hypervisor may take the machine away for so long before the
        /// last of them has the order.
        const STALL_NS: u64 = 250_000_000;
        /// Each process that is to read the order may have to wait for a core.
        const EACH_NS: u64 = 10_000_000;
        match self.0.len() as u64 {
            0 | 1 => SINGLE_NS,
            several => STALL_NS + EACH_NS * several,
        }
    }

    /// Starts all of them at an instant of their own `CLOCK_MONOTONIC`. Returns the window, which follows the warm-up.
    ///
    /// # Errors
    /// If one of them ended, failed or did not respond in time, or started later than the others.
    pub fn start(&mut self, at_monotonic_ns: u64) -> Result<Window, GeneratorError> {
        for generator in &mut self.0 {
            generator.order_start(Some(at_monotonic_ns))?;
        }
        let windows = self.each(Generator::window)?;
        let starts = windows.iter().map(|window| window.start_monotonic_ns);
        let (first, last) = (starts.clone().min(), starts.max());
        match (windows.first(), first, last) {
            (Some(window), Some(first), Some(last)) if first == last => Ok(*window),
            (_, first, last) => Err(GeneratorError::NotTogether {
                apart_ns: last.unwrap_or(0).saturating_sub(first.unwrap_or(0)),
            }),
        }
    }

    /// Starts each of them as soon as it gets the order: for a load that is not measured.
    ///
    /// # Errors
    /// If one of them ended, failed or did not respond in time.
    pub(crate) fn start_at_once(&mut self) -> Result<(), GeneratorError> {
        for generator in &mut self.0 {
            generator.order_start(None)?;
        }
        self.each(Generator::window).map(drop)
    }

    /// Waits until all parts of the load and their drains are over. In the order of the clients.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn results(&mut self) -> Result<Vec<ClientLoad>, GeneratorError> {
        self.each(|generator| {
            Ok(ClientLoad {
                client: generator.client.clone(),
                connections: generator.connections,
                result: generator.result()?,
            })
        })
    }

    /// The processes whose links carry the load, in the order of the clients.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(|one| one.worker.pid()).collect()
    }

    /// Waits until an instant of `CLOCK_MONOTONIC`; returns `true` as soon as all parts of the load are over.
    pub(crate) fn have_ended_before(&mut self, instant_ns: u64) -> bool {
        let mut all = self.0.iter_mut();
        all.all(|generator| generator.has_ended_before(instant_ns))
    }

    fn each<T>(
        &mut self,
        ask: impl FnMut(&mut Generator) -> Result<T, GeneratorError>,
    ) -> Result<Vec<T>, GeneratorError> {
        self.0.iter_mut().map(ask).collect()
    }
}

type Message = Result<WorkerMessage, serde_json::Error>;

/// One client's part of a load.
struct Generator {
    client: String,
    connections: u32,
    worker: Box<dyn Worker>,
    messages: Receiver<Message>,
    /// A message that came before it was awaited.
    early: Option<Message>,
    patience: Duration,
    /// Its orders. While this is open, the worker keeps its connections.
    input: Box<dyn Write>,
}

impl Generator {
    fn start(client: ClientWorker, spec: LoadSpec) -> Result<Self, GeneratorError> {
        let StartedWorker {
            worker,
            input,
            output,
        } = client.started;
        let load = Duration::from_nanos(spec.warmup_ns + spec.window_ns + spec.drain_ns);
        let mut generator = Self {
            client: client.client,
            connections: spec.connections,
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
    fn order_start(&mut self, at_monotonic_ns: Option<u64>) -> Result<(), GeneratorError> {
        self.send(&WorkerOrder::Start {
            in_ns: 0,
            at_monotonic_ns,
        })
    }

    /// Waits until all connections are open; returns the name of its clock.
    fn clock(&mut self) -> Result<String, GeneratorError> {
        match self.next()? {
            WorkerMessage::Ready(clock) => Ok(clock),
            other => Err(out_of_order("that it is ready", other)),
        }
    }

    fn window(&mut self) -> Result<Window, GeneratorError> {
        match self.next()? {
            WorkerMessage::Window(window) => Ok(window),
            other => Err(out_of_order("its window", other)),
        }
    }

    fn result(&mut self) -> Result<LoadResult, GeneratorError> {
        match self.next()? {
            WorkerMessage::Result(result) => Ok(*result),
            other => Err(out_of_order("its result", other)),
        }
    }

    fn has_ended_before(&mut self, instant_ns: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt as _;
    use std::sync::{Arc, Mutex};

    use meshtax_load::{LoadModel, Schedule, worker_main};
    use meshtax_model::experiment::Arrivals;

    use super::*;

    /// A worker on a thread of this process.
    struct Thread;

    impl Worker for Thread {
        fn pid(&self) -> u32 {
            std::process::id()
        }

        fn ended(&mut self) -> io::Result<ExitStatus> {
            Ok(ExitStatus::from_raw(0))
        }

        fn end(&mut self) {}
    }

    fn worker(client: &str) -> ClientWorker {
        let (ours, theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            let output = theirs.try_clone().unwrap();
            let _ = worker_main(theirs, output);
        });
        ClientWorker {
            client: client.to_owned(),
            started: StartedWorker {
                worker: Box::new(Thread),
                output: Box::new(ours.try_clone().unwrap()),
                input: Box::new(ours),
            },
        }
    }

    /// A server that notes when each request came, on `CLOCK_MONOTONIC`.
    fn noting() -> (SocketAddr, Arc<Mutex<Vec<u64>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let notes: Arc<Mutex<Vec<u64>>> = Arc::default();
        let shared = Arc::clone(&notes);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let notes = Arc::clone(&shared);
                thread::spawn(move || {
                    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    for line in lines.map_while(Result::ok) {
                        if line.is_empty() {
                            notes.lock().unwrap().push(monotonic_ns());
                            let _ =
                                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
                        }
                    }
                });
            }
        });
        (address, notes)
    }

    fn spec(target: SocketAddr, connections: u32) -> LoadSpec {
        LoadSpec {
            model: LoadModel::open(500.0, Arrivals::Constant),
            connections,
            seed: 7,
            window_ns: 500_000_000,
            ..LoadSpec::new(target)
        }
    }

    const FOUR: [&str; 4] = ["client", "client-2", "client-3", "client-4"];

    /// A load that four clients' generators have started together.
    struct Started {
        spec: LoadSpec,
        notes: Arc<Mutex<Vec<u64>>>,
        generators: Generators,
        window: Window,
    }

    /// A stall of the machine may be longer than their lead. Each attempt has a server of its own, so that nothing of an
    /// earlier one is noted.
    fn started_together() -> Started {
        for _ in 0..5 {
            let (target, notes) = noting();
            let spec = spec(target, 7);
            let mut generators = Generators::ready(&spec, FOUR.map(worker).into()).unwrap();
            match generators.start(monotonic_ns() + generators.lead_ns()) {
                Ok(window) => {
                    return Started {
                        spec,
                        notes,
                        generators,
                        window,
                    };
                }
                Err(GeneratorError::NotTogether { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        panic!("five times not together");
    }

    #[test]
    fn server_sees_the_schedule_of_one_generator_from_four() {
        let Started {
            spec,
            notes,
            mut generators,
            window,
        } = started_together();
        let parts = generators.results().unwrap();
        let connections: Vec<u32> = parts.iter().map(|part| part.connections).collect();
        assert_eq!(connections, [2, 2, 2, 1]);
        let whole = whole_load(&spec, &parts);
        let own: u64 = parts.iter().map(|part| part.result.offered).sum();
        assert_eq!((whole.offered, whole.connections_opened), (own, 7));
        assert_eq!(whole.response.count(), whole.offered);
        // The intended times of a single generator with this seed.
        let mut one = Schedule::new(500.0, Arrivals::Constant, spec.seed);
        let intended: Vec<u64> = std::iter::from_fn(|| one.take_ns())
            .take_while(|at| *at < spec.window_ns)
            .map(|at| window.start_monotonic_ns + at)
            .collect();
        let mut seen = notes.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(
            (seen.len(), whole.offered),
            (intended.len(), seen.len() as u64)
        );
        assert!(seen.iter().zip(&intended).all(|(seen, due)| seen >= due));
        // The clients take turns, with a request in each gap of 2 ms. A stall of the machine delays many of a client's, but
        // not all; a client that started late, or has the wrong turn, delays all of its turn.
        let late = |(seen, due): (&u64, &u64)| seen - due;
        let late: Vec<u64> = seen.iter().zip(&intended).map(late).collect();
        for (client, name) in FOUR.iter().enumerate() {
            let best = late.iter().skip(client).step_by(FOUR.len()).min();
            assert!(best < Some(&2_000_000), "{name}: {late:?}");
        }
    }

    #[test]
    fn generators_that_get_their_order_too_late_are_not_together() {
        let (target, _) = noting();
        let mut generators = Generators::ready(&spec(target, 7), FOUR.map(worker).into()).unwrap();
        let error = generators.start(monotonic_ns()).unwrap_err();
        let apart = error.to_string();
        assert!(
            matches!(TrialFailure::from(error), TrialFailure::NotTogether { detail } if detail == apart)
        );
    }

    #[test]
    fn generator_that_gets_no_connection_fails_all_with_its_reason() {
        let mut spec = spec("127.0.0.1:1".parse().unwrap(), 2);
        spec.connect_timeout_ns = 100_000_000;
        let failed = Generators::ready(&spec, ["client", "client-2"].map(worker).into());
        let failed = failed.err().map(|error| error.to_string());
        assert!(failed.is_some_and(|text| text.contains("refused")));
    }

    #[test]
    fn verdict_on_a_generator_names_its_client_among_several() {
        use meshtax_model::trial::{GeneratorBound, GeneratorLimit};
        let part = |client: &str, is_bound: bool| {
            let mut result = LoadResult::default();
            result.audit.generator_bound = is_bound.then_some(GeneratorBound {
                worker: None,
                limit: GeneratorLimit::Busy {
                    busy_share: 0.99,
                    max_share: 0.9,
                    closed_loop: false,
                },
            });
            ClientLoad {
                client: client.to_owned(),
                connections: 1,
                result,
            }
        };
        let spec = spec("127.0.0.1:1".parse().unwrap(), 2);
        let named = |parts: &[ClientLoad]| {
            let bound = whole_load(&spec, parts).audit.generator_bound;
            bound.map(|bound| bound.worker)
        };
        assert_eq!(named(&[part("client", true)]), Some(None));
        let two = [part("client", false), part("client-2", true)];
        assert_eq!(named(&two), Some(Some("client-2".into())));
    }
}
