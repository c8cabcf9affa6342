//! The engine's end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use meshtax_dataplane::Redirect;
use meshtax_load::LoadSpec;
use meshtax_model::trial::LoadResult;
use meshtax_observe::monotonic_ns;

use super::message::{
    ContainerStart, DeliveredFile, HostFacts, Observation, Opening, REMOTE_PROTOCOL, RemoteReply,
    RemoteRequest,
};
use crate::capture::CaptureTooLarge;
use crate::captured::Captured;
use crate::generator::{StartedWorker, Worker};
use crate::trial::NodeUsage;

/// How long an agent may take for a request that has no duration of its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why an agent did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It cannot be reached, or the connection was lost.
    #[error("the agent cannot be reached: {0}")]
    Unreachable(#[source] io::Error),
    /// It did, and failed.
    #[error("{0}")]
    Failed(io::Error),
    /// It is another program's version.
    #[error(
        "the agent in the image speaks protocol {spoken}, and this meshtax {REMOTE_PROTOCOL}: use an image of the same \
         version"
    )]
    Version {
        /// The agent's.
        spoken: u32,
    },
    /// A capture exceeded its memory.
    #[error(transparent)]
    CaptureTooLarge(CaptureTooLarge),
    /// The kernel dropped packets of a capture: what was not captured may have passed all the same.
    #[error(
        "the kernel dropped {dropped} packets of the capture before they were read: the node is too busy, so that the \
         capture proves nothing"
    )]
    CaptureIncomplete {
        /// How many.
        dropped: u64,
    },
    /// It belongs to another run.
    #[error("the agent belongs to another run")]
    Unauthorized,
    /// It sent a reply to another request.
    #[error("the agent sent a reply to another request")]
    OutOfOrder,
}

/// An agent that is reached at an address of this machine.
#[derive(Clone, Debug)]
pub struct AgentClient {
    at: SocketAddr,
    token: String,
}

/// A connection after its reply.
struct Exchange {
    stream: TcpStream,
    input: BufReader<TcpStream>,
}

/// A reading of an agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What to add to this machine's `CLOCK_MONOTONIC` to get the agent's, in nanoseconds.
    pub offset_ns: i64,
    /// The offset is wrong by at most this much.
    pub error_ns: u64,
}

impl AgentClient {
    /// An agent at the local end of its port-forward, with the run's token.
    #[must_use]
    pub fn new(at: SocketAddr, token: String) -> Self {
        Self { at, token }
    }

    fn open(&self, request: RemoteRequest, patience: Duration) -> Result<Exchange, AgentError> {
        let opening = Opening {
            version: REMOTE_PROTOCOL,
            token: self.token.clone(),
            request,
        };
        let opened = || {
            let mut stream = TcpStream::connect_timeout(&self.at, PATIENCE)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            let mut line = serde_json::to_vec(&opening)?;
            line.push(b'\n');
            stream.write_all(&line)?;
            let input = BufReader::new(stream.try_clone()?);
            Ok(Exchange { stream, input })
        };
        opened().map_err(AgentError::Unreachable)
    }

    fn ask(&self, request: RemoteRequest, patience: Duration) -> Result<RemoteReply, AgentError> {
        self.open(request, patience)?.reply()
    }

    /// A request that may be sent twice, up to its first reply: again where the connection was lost. A port-forward of a busy
    /// cluster breaks now and then.
    fn ask_again(
        &self,
        request: &RemoteRequest,
        patience: Duration,
    ) -> Result<(Exchange, RemoteReply), AgentError> {
        /// Before each further try.
        const PAUSES: [Duration; 3] = [
            Duration::from_millis(100),
            Duration::from_millis(400),
            Duration::from_millis(1600),
        ];
        let ask = || {
            let mut exchange = self.open(request.clone(), patience)?;
            let reply = exchange.reply()?;
            Ok((exchange, reply))
        };
        for pause in PAUSES {
            match ask() {
                Err(AgentError::Unreachable(_)) => thread::sleep(pause),
                replied => return replied,
            }
        }
        ask()
    }

    /// The same for a request whose first reply is that it is done.
    fn do_again(
        &self,
        request: &RemoteRequest,
        patience: Duration,
    ) -> Result<Exchange, AgentError> {
        match self.ask_again(request, patience)? {
            (exchange, RemoteReply::Done) => Ok(exchange),
            _ => Err(AgentError::OutOfOrder),
        }
    }

    /// The agent's machine.
    ///
    /// # Errors
    /// If there is no reply to that.
    pub fn host(&self) -> Result<HostFacts, AgentError> {
        match self.ask_again(&RemoteRequest::Host, PATIENCE)?.1 {
            RemoteReply::Host(host) => Ok(*host),
            _ => Err(AgentError::OutOfOrder),
        }
    }

    /// Compares clocks: of several exchanges the fastest counts (Cristian 1989).
    ///
    /// # Errors
    /// If there is no reply.
    pub fn clock(&self) -> Result<Clock, AgentError> {
        const READINGS: usize = 12;
        let mut exchange = self.open(RemoteRequest::Clock, PATIENCE)?;
        let mut best: Option<Clock> = None;
        exchange.reply()?;
        for _ in 0..READINGS {
            let sent_ns = monotonic_ns();
            (&exchange.stream)
                .write_all(b"\n")
                .map_err(AgentError::Unreachable)?;
            let RemoteReply::Clock(theirs_ns) = exchange.reply()? else {
                return Err(AgentError::OutOfOrder);
            };
            let reading = Clock::of(sent_ns, theirs_ns, monotonic_ns());
            if best.is_none_or(|best| reading.error_ns < best.error_ns) {
                best = Some(reading);
            }
        }
        best.ok_or(AgentError::OutOfOrder)
    }

    /// Writes files, redirects the pod's traffic and starts its containers.
    ///
    /// # Errors
    /// If a step failed.
    pub fn configure(
        &self,
        files: Vec<DeliveredFile>,
        redirect: Redirect,
        containers: Vec<ContainerStart>,
    ) -> Result<(), AgentError> {
        let request = RemoteRequest::Configure {
            files,
            redirect,
            containers,
        };
        self.do_again(&request, PATIENCE).map(drop)
    }

    /// Changes the pod's redirection; `None`: there is none from now on.
    ///
    /// # Errors
    /// If the agent may not, or cannot be reached.
    pub fn redirect(&self, redirect: Option<Redirect>) -> Result<(), AgentError> {
        self.do_again(&RemoteRequest::Redirect(redirect), PATIENCE)
            .map(drop)
    }

    /// A TCP connection from the agent's pod.
    ///
    /// # Errors
    /// As `connect(2)` there; or the agent cannot be reached.
    pub fn connect(&self, to: SocketAddr, timeout: Duration) -> Result<RemoteSocket, AgentError> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = RemoteRequest::Connect { to, timeout_ms };
        let exchange = self.do_again(&request, timeout + PATIENCE)?;
        let times = exchange
            .stream
            .set_read_timeout(Some(timeout))
            .and_then(|()| exchange.stream.set_write_timeout(Some(timeout)));
        times.map_err(AgentError::Unreachable)?;
        Ok(RemoteSocket(exchange))
    }

    /// Established connections in the agent's pod whose local end has this port.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn connections(&self, local_port: u16) -> Result<u32, AgentError> {
        let request = RemoteRequest::CountConnections { local_port };
        match self.ask_again(&request, PATIENCE)?.1 {
            RemoteReply::Connections(count) => Ok(count),
            _ => Err(AgentError::OutOfOrder),
        }
    }

    /// Offers a load from the agent's pod, to its end.
    ///
    /// # Errors
    /// If the load cannot be offered.
    pub fn run_load(&self, spec: &LoadSpec) -> Result<LoadResult, AgentError> {
        let lasts = Duration::from_nanos(spec.warmup_ns + spec.window_ns + spec.drain_ns);
        let request = RemoteRequest::RunLoad(Box::new(spec.clone()));
        match self.ask(request, lasts + PATIENCE)? {
            RemoteReply::Load(load) => Ok(*load),
            _ => Err(AgentError::OutOfOrder),
        }
    }

    /// Starts a worker of the load generator in the agent's pod.
    ///
    /// # Errors
    /// If it was not started.
    pub fn start_worker(&self) -> Result<StartedWorker, AgentError> {
        let exchange = self.do_again(&RemoteRequest::StartWorker, PATIENCE)?;
        let Exchange { stream, input } = exchange;
        let clone = || stream.try_clone().map_err(AgentError::Unreachable);
        // Its messages come when they come.
        stream
            .set_read_timeout(None)
            .map_err(AgentError::Unreachable)?;
        Ok(StartedWorker {
            worker: Box::new(RemoteWorker(clone()?)),
            input: Box::new(clone()?),
            output: Box::new(input),
        })
    }

    /// Starts a capture on the uplink of the agent's node, or on the links of the pods of these containers.
    ///
    /// # Errors
    /// If the agent may not capture.
    pub fn capture(
        &self,
        addresses: Vec<Ipv4Addr>,
        within: Vec<String>,
    ) -> Result<RemoteCapture, AgentError> {
        let request = RemoteRequest::Capture { addresses, within };
        Ok(RemoteCapture(self.do_again(&request, PATIENCE)?))
    }

    /// The CPUs that containers on the agent's node may use, in the same order; `None`: they cannot be read.
    ///
    /// # Errors
    /// If the agent cannot be reached.
    pub fn cpus(&self, containers: Vec<String>) -> Result<Vec<Option<Vec<u32>>>, AgentError> {
        let request = RemoteRequest::Cpus { containers };
        match self.ask_again(&request, PATIENCE)?.1 {
            RemoteReply::Cpus(cpus) => Ok(cpus),
            _ => Err(AgentError::OutOfOrder),
        }
    }

    /// Reads containers and the machine in a window. Returns after its end.
    ///
    /// # Errors
    /// If a container is not there, or the machine cannot be read.
    pub fn observe(&self, observation: Observation) -> Result<NodeUsage, AgentError> {
        let window = observation.window;
        let lasts_ns = window
            .end_monotonic_ns
            .saturating_sub(window.start_monotonic_ns);
        // The warm-up comes before the window.
        let patience = Duration::from_nanos(lasts_ns * 2) + PATIENCE;
        match self.ask(RemoteRequest::Observe(Box::new(observation)), patience)? {
            RemoteReply::Used(usage) => Ok(*usage),
            _ => Err(AgentError::OutOfOrder),
        }
    }
}

impl Clock {
    /// The agent read its clock somewhere between the two readings of this machine's.
    fn of(sent_ns: u64, theirs_ns: u64, received_ns: u64) -> Self {
        let took_ns = received_ns.saturating_sub(sent_ns);
        let middle_ns = sent_ns + took_ns / 2;
        Self {
            offset_ns: theirs_ns.wrapping_sub(middle_ns).cast_signed(),
            error_ns: took_ns.div_ceil(2),
        }
    }

    /// What to add to an instant of this agent's clock to get that of another agent's, and by how much that may be
    /// wrong.
    #[must_use]
    pub fn to(&self, other: &Self) -> (i64, u64) {
        (
            other.offset_ns.saturating_sub(self.offset_ns),
            self.error_ns + other.error_ns,
        )
    }
}

impl Exchange {
    fn reply(&mut self) -> Result<RemoteReply, AgentError> {
        let mut line = String::new();
        let length = self
            .input
            .read_line(&mut line)
            .map_err(AgentError::Unreachable)?;
        if length == 0 {
            let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection");
            return Err(AgentError::Unreachable(closed));
        }
        match serde_json::from_str(&line).map_err(|e| AgentError::Unreachable(e.into()))? {
            RemoteReply::Failed(how) => Err(AgentError::Failed(how.into())),
            RemoteReply::Version(spoken) => Err(AgentError::Version { spoken }),
            RemoteReply::Unauthorized => Err(AgentError::Unauthorized),
            reply => Ok(reply),
        }
    }
}

/// A TCP connection in another pod.
pub struct RemoteSocket(Exchange);

impl Read for RemoteSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.input.read(buffer)
    }
}

impl Write for RemoteSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.0.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.0.stream).flush()
    }
}

impl Drop for RemoteSocket {
    fn drop(&mut self) {
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }
}

/// A worker of the load generator in another pod. It ends with its connection.
pub struct RemoteWorker(TcpStream);

impl Worker for RemoteWorker {
    fn pid(&self) -> u32 {
        0
    }

    fn ended(&mut self) -> io::Result<ExitStatus> {
        // Its status stays in its pod: the connection shows only that it has ended.
        Ok(ExitStatus::from_raw(0))
    }

    fn end(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A capture on another node.
pub struct RemoteCapture(Exchange);

impl RemoteCapture {
    /// Ends it, and fetches what was captured: all of it.
    ///
    /// # Errors
    /// If the agent could not read its sockets, or cannot be reached, or if packets were lost.
    pub fn finish(mut self) -> Result<Captured, AgentError> {
        (&self.0.stream)
            .write_all(b"\n")
            .map_err(AgentError::Unreachable)?;
        match self.0.reply()? {
            RemoteReply::Captured(captured) if captured.dropped > 0 => {
                let dropped = captured.dropped;
                Err(AgentError::CaptureIncomplete { dropped })
            }
            RemoteReply::Captured(captured) => Ok(*captured),
            RemoteReply::CaptureTooLarge { most_bytes } => {
                Err(AgentError::CaptureTooLarge(CaptureTooLarge { most_bytes }))
            }
            _ => Err(AgentError::OutOfOrder),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn true_offset_is_within_the_error() {
        // Sent at 100, read at 1,000,130 there (30 after it was sent), received at 200.
        let clock = Clock::of(100, 1_000_130, 200);
        let truth = 1_000_000;
        assert!((clock.offset_ns - truth).unsigned_abs() <= clock.error_ns);
        assert_eq!(clock.error_ns, 50);
        let earlier = Clock::of(1_000_000, 40, 1_000_020);
        assert!(earlier.offset_ns < 0, "its machine was booted later");
        let (offset_ns, error_ns) = earlier.to(&clock);
        assert_eq!(offset_ns, clock.offset_ns - earlier.offset_ns);
        assert_eq!(error_ns, 60);
    }

    /// An agent that closes its first connections without a reply, then confirms each request. Returns how many connections
    /// it gets from `ask`, and what `ask` returns.
    fn asked<T>(broken: usize, ask: impl FnOnce(&AgentClient) -> T) -> (usize, T) {
        asked_with(broken, &[RemoteReply::Done], ask)
    }

    /// The same with these replies to each request.
    fn asked_with<T>(
        broken: usize,
        replies: &[RemoteReply],
        ask: impl FnOnce(&AgentClient) -> T,
    ) -> (usize, T) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = AgentClient::new(listener.local_addr().unwrap(), "token".into());
        let serve = move || {
            let mut accepted = 0;
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                if line.is_empty() {
                    break;
                }
                accepted += 1;
                for reply in replies.iter().filter(|_| accepted > broken) {
                    let reply = serde_json::to_string(reply).unwrap();
                    stream.write_all(format!("{reply}\n").as_bytes()).unwrap();
                }
            }
            accepted
        };
        let at = client.at;
        thread::scope(|scope| {
            let server = scope.spawn(serve);
            let returned = ask(&client);
            // An empty connection ends it.
            drop(TcpStream::connect(at).unwrap());
            (server.join().unwrap(), returned)
        })
    }

    #[test]
    fn request_is_sent_again_over_a_new_connection_if_the_first_is_lost() {
        let (connections, redirected) = asked(2, |agent| agent.redirect(None));
        assert!(redirected.is_ok(), "{redirected:?}");
        assert_eq!(connections, 3);
    }

    #[test]
    fn load_is_offered_once_even_if_the_connection_is_lost() {
        let (connections, load) = asked(1, |agent| agent.run_load(&LoadSpec::new(agent.at)));
        assert!(matches!(load, Err(AgentError::Unreachable(_))), "{load:?}");
        assert_eq!(connections, 1);
    }

    /// What a capture with this reply at its end is.
    fn finished(reply: RemoteReply) -> Result<Captured, AgentError> {
        let replies = [RemoteReply::Done, reply];
        let capture = |agent: &AgentClient| agent.capture(Vec::new(), Vec::new())?.finish();
        asked_with(0, &replies, capture).1
    }

    #[test]
    fn capture_that_lost_packets_is_an_error_and_not_an_empty_capture() {
        let captured = |dropped| {
            RemoteReply::Captured(Box::new(Captured {
                segments: Vec::new(),
                dropped,
            }))
        };
        assert_eq!(finished(captured(0)).unwrap(), Captured::default());
        let lost = finished(captured(3)).unwrap_err();
        assert!(matches!(lost, AgentError::CaptureIncomplete { dropped: 3 }));
        let most_bytes = 77;
        let too_large = finished(RemoteReply::CaptureTooLarge { most_bytes }).unwrap_err();
        assert!(
            matches!(too_large, AgentError::CaptureTooLarge(of) if of.most_bytes == most_bytes)
        );
    }
}
