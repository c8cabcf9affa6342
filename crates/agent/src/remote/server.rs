//! The agent's end.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use meshtax_observe::{Cgroup, Limited, established_connections_here, monotonic_ns};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, setns};

use super::message::{
    ContainerStart, DeliveredFile, HostFacts, Metered, Observation, Opening, REMOTE_PROTOCOL,
    Reached, RemoteReply, RemoteRequest, START_DIRECTORY,
};
use super::relay;
use crate::capture::{Capture, CaptureTooLarge};
use crate::nft;
use crate::packet_filter::PacketFilter;
use crate::packet_socket::PacketSocket;
use crate::trial::observe_window;
use crate::watched::{Meter, Process, Watched};

/// Where the node's file system of cgroups is mounted in the agent's pod.
const CGROUPS: &str = "/host/sys/fs/cgroup";

/// The environment variable with the run's token.
const TOKEN: &str = "MESHTAX_AGENT_TOKEN";

/// The secret that a run shares with its agents.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The name of the environment variable.
    pub const VARIABLE: &str = TOKEN;

    /// This text.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(secret.to_owned())
    }

    /// From the environment.
    ///
    /// # Errors
    /// If it is not there.
    pub fn of_environment() -> Result<Self, ServeError> {
        std::env::var(TOKEN)
            .map(Self)
            .map_err(|_| ServeError::NoToken)
    }
}

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It has no token.
    #[error("{TOKEN} is not set: an agent is started by meshtax, and serves only its run")]
    NoToken,
    /// Its port is taken.
    #[error("cannot listen on port {port} of the pod's loopback: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// The kernel's error.
        source: io::Error,
    },
    /// What a container is to start cannot be read.
    #[error("cannot start what {path} says: {source}")]
    Start {
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
}

/// An agent that listens, and serves once it is asked to.
#[derive(Debug)]
pub struct Agent(TcpListener);

impl Agent {
    /// Listens at this port of loopback; 0: at a free one.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn listen(port: u16) -> Result<Self, ServeError> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map(Self)
            .map_err(|source| ServeError::Listen { port, source })
    }

    /// Where it is reached.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves requests until the process is ended. `worker` makes the command of a load generator's worker.
    pub fn serve(self, token: &Token, worker: fn() -> Command) {
        let token = Arc::new(token.clone());
        for stream in self.0.incoming().filter_map(Result::ok) {
            let token = Arc::clone(&token);
            thread::spawn(move || {
                // The engine sees a connection that ends; there is nobody else to report to.
                let _ = answer(stream, &token, worker);
            });
        }
    }
}

fn answer(stream: TcpStream, token: &Token, worker: fn() -> Command) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let opening: Opening = serde_json::from_str(&line)?;
    if opening.version != REMOTE_PROTOCOL {
        return reply(&stream, &RemoteReply::Version(REMOTE_PROTOCOL));
    }
    if opening.token != token.0 {
        return reply(&stream, &RemoteReply::Unauthorized);
    }
    match opening.request {
        RemoteRequest::Clock => clock(&stream, input),
        RemoteRequest::Connect { to, timeout_ms } => {
            connect(&stream, to, Duration::from_millis(timeout_ms))
        }
        RemoteRequest::StartWorker => generate(&stream, input, worker()),
        RemoteRequest::Capture { addresses, within } => {
            capture(&stream, input, &addresses, &within)
        }
        RemoteRequest::Cpus { containers } => reply(&stream, &cpus(&containers)),
        RemoteRequest::Host => reply(&stream, &host()),
        RemoteRequest::Configure {
            files,
            redirect,
            containers,
        } => {
            let done = configure(&files, &containers, || nft::redirect(&redirect));
            reply(&stream, &result(done.map(|()| RemoteReply::Done)))
        }
        RemoteRequest::Redirect(redirect) => {
            let done = match &redirect {
                Some(redirect) => nft::redirect(redirect),
                None => nft::lift_redirection(),
            };
            reply(&stream, &result(done.map(|()| RemoteReply::Done)))
        }
        RemoteRequest::CountConnections { local_port } => {
            let count = established_connections_here(local_port).map_err(io::Error::other);
            reply(&stream, &result(count.map(RemoteReply::Connections)))
        }
        RemoteRequest::RunLoad(spec) => {
            let load = meshtax_load::run(&spec, &mut |_| {}).map_err(io::Error::other);
            reply(
                &stream,
                &result(load.map(|load| RemoteReply::Load(Box::new(load)))),
            )
        }
        RemoteRequest::Observe(observation) => {
            let usage = observe(&observation);
            reply(&stream, &result(usage))
        }
    }
}

fn result(outcome: io::Result<RemoteReply>) -> RemoteReply {
    outcome.unwrap_or_else(|e| RemoteReply::Failed(Reached::from(&e)))
}

fn reply(mut stream: &TcpStream, reply: &RemoteReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn host() -> RemoteReply {
    RemoteReply::Host(Box::new(HostFacts {
        host: meshtax_observe::host(),
        cores: meshtax_observe::allowed_cores(),
    }))
}

fn clock(stream: &TcpStream, input: impl BufRead) -> io::Result<()> {
    reply(stream, &RemoteReply::Clock(monotonic_ns()))?;
    for line in input.lines() {
        line?;
        reply(stream, &RemoteReply::Clock(monotonic_ns()))?;
    }
    Ok(())
}

fn connect(stream: &TcpStream, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    let connected = TcpStream::connect_timeout(&to, timeout);
    match connected {
        Err(e) => reply(stream, &RemoteReply::Failed(Reached::from(&e))),
        Ok(connected) => {
            connected.set_nodelay(true)?;
            reply(stream, &RemoteReply::Done)?;
            relay::sockets(stream, &connected);
            Ok(())
        }
    }
}

/// The worker ends with its input, and its input with the connection.
fn generate(
    stream: &TcpStream,
    input: impl Read + Send + 'static,
    mut command: Command,
) -> io::Result<()> {
    let started = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(e) => return reply(stream, &RemoteReply::Failed(Reached::from(&e))),
    };
    reply(stream, &RemoteReply::Done)?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let feeding = thread::spawn(move || {
        if let Some(stdin) = stdin {
            let _ = relay::copy(input, stdin);
        }
    });
    let copied = stdout.map_or(Ok(()), |stdout| relay::copy(stdout, stream));
    let _ = stream.shutdown(Shutdown::Both);
    let _ = child.kill();
    let _ = child.wait();
    let _ = feeding.join();
    copied
}

fn capture(
    stream: &TcpStream,
    mut input: impl BufRead,
    addresses: &[Ipv4Addr],
    within: &[String],
) -> io::Result<()> {
    let filter = PacketFilter::between(addresses);
    let capture = match sockets(within, &filter) {
        Ok(sockets) => Capture::start(sockets),
        Err(e) => return reply(stream, &RemoteReply::Failed(Reached::from(&e))),
    };
    reply(stream, &RemoteReply::Done)?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    let captured = match capture.finish() {
        Ok(mut captured) => {
            // The filter of very many addresses is coarser.
            let is_asked = |address: &Ipv4Addr| addresses.contains(address);
            captured
                .segments
                .retain(|s| is_asked(&s.from.0) && is_asked(&s.to.0));
            RemoteReply::Captured(Box::new(captured))
        }
        Err(error) => not_captured(&error),
    };
    reply(stream, &captured)
}

fn not_captured(error: &io::Error) -> RemoteReply {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    match cause {
        Some(CaptureTooLarge { most_bytes }) => RemoteReply::CaptureTooLarge {
            most_bytes: *most_bytes,
        },
        None => RemoteReply::Failed(Reached::from(error)),
    }
}

/// On the link of the node's default route: what passes there is on its way to another node. Or on those of the pods of
/// these containers.
///
/// Packets of an overlay are seen as the pods sent them, on the overlay's own link (VXLAN, Geneve, IPIP, WireGuard): the
/// routes to other nodes' pods name it. On the physical link below, where they are wrapped or encrypted, the filter passes
/// none of them.
fn sockets(within: &[String], filter: &PacketFilter) -> io::Result<Vec<PacketSocket>> {
    let on_uplinks = || on_uplinks(filter);
    if within.is_empty() {
        return in_network(Path::new("/proc/1/ns/net"), on_uplinks);
    }
    let mut all = Vec::new();
    for container in within {
        let cgroup = Cgroup::of_container(Path::new(CGROUPS), container);
        let processes = cgroup.map_err(io::Error::other)?.processes();
        let process = processes.first();
        let process = process.ok_or_else(|| io::Error::other("the container has no process"))?;
        let network = PathBuf::from(format!("/proc/{process}/ns/net"));
        all.extend(in_network(&network, on_uplinks)?);
    }
    Ok(all)
}

fn on_uplinks(filter: &PacketFilter) -> io::Result<Vec<PacketSocket>> {
    let links = uplinks()?;
    links
        .iter()
        .map(|link| PacketSocket::filtered(*link, filter))
        .collect()
}

/// The CPUs that containers may use.
fn cpus(containers: &[String]) -> RemoteReply {
    let of = |id: &String| meshtax_observe::container_cpus(Path::new(CGROUPS), id);
    RemoteReply::Cpus(containers.iter().map(of).collect())
}

/// The links of all routes to elsewhere, in the calling thread's namespace: other nodes' pods may have routes of their
/// own, apart from the default one. Links of pods on this node are not among them.
fn uplinks() -> io::Result<Vec<u32>> {
    let text = fs::read_to_string("/proc/thread-self/net/route")?;
    let names = links_to_elsewhere(&text, is_tunnel);
    if names.is_empty() {
        return Err(io::Error::other("the node has no route to another one"));
    }
    names
        .into_iter()
        .map(|name| if_nametoindex(name).map_err(io::Error::from))
        .collect()
}

/// Those whose routes have a gateway, and tunnels, which need none.
fn links_to_elsewhere(routes: &str, is_tunnel: impl Fn(&str) -> bool) -> Vec<&str> {
    /// Flag `RTF_GATEWAY` of `/proc/net/route`.
    const GATEWAY: u32 = 2;
    let mut names: Vec<&str> = Vec::new();
    for line in routes.lines().skip(1) {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [name, _destination, _gateway, flags, ..] = fields.as_slice() else {
            continue;
        };
        let flags = u32::from_str_radix(flags, 16).unwrap_or(0);
        if !names.contains(name) && (flags & GATEWAY != 0 || is_tunnel(name)) {
            names.push(name);
        }
    }
    names
}

/// Whether a link of the node carries IP without a header of its own: IPIP, WireGuard.
fn is_tunnel(name: &str) -> bool {
    /// `ARPHRD_NONE` and `ARPHRD_TUNNEL` of `linux/if_arp.h`.
    const TYPES: [&str; 2] = ["65534", "768"];
    // The agent's own `/sys` shows the links of its pod.
    let found = fs::read_to_string(format!("/proc/1/root/sys/class/net/{name}/type"));
    found.is_ok_and(|text| TYPES.contains(&text.trim()))
}

/// Runs on a thread in a network namespace.
fn in_network<T: Send>(
    namespace: &Path,
    run: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let namespace = fs::File::open(namespace)?;
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            run()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

fn observe(observation: &Observation) -> io::Result<RemoteReply> {
    let process = |container: &Metered| {
        let cgroup = Cgroup::of_container(Path::new(CGROUPS), &container.id);
        Ok(Process {
            meter: Meter::Container(Arc::new(cgroup.map_err(io::Error::other)?)),
            name: container.name.clone(),
            role: container.role,
            node: container.node,
            idles_for: container.idles_for.clone(),
            limited: Limited::default(),
        })
    };
    let watched = Watched {
        cores: observation.cores.clone(),
        processes: observation
            .containers
            .iter()
            .map(process)
            .collect::<io::Result<_>>()?,
        servers: Vec::new(),
        proxy_port: None,
        entrance: None,
    };
    let usage = observe_window(&watched, observation.window).map_err(io::Error::other)?;
    Ok(RemoteReply::Used(Box::new(usage)))
}

fn configure(
    files: &[DeliveredFile],
    containers: &[ContainerStart],
    redirect: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let directory = Path::new(START_DIRECTORY);
    for file in files {
        write(&directory.join(&file.name), &file.content)?;
    }
    redirect()?;
    for container in containers {
        // Whole or not at all: its container waits for the name.
        let path = start_file(&container.container);
        let beside = path.with_extension("new");
        write(&beside, &serde_json::to_vec(container)?)?;
        fs::rename(beside, path)?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)
}

fn start_file(container: &str) -> PathBuf {
    Path::new(START_DIRECTORY).join(format!("{container}.start"))
}

/// Waits until the pod's agent says what this container is to start, and becomes that. Returns only on failure.
///
/// # Errors
/// If that cannot be read or executed.
pub fn await_start(container: &str) -> Result<(), ServeError> {
    /// A container waits for the pod's address and for its configuration, once.
    const PAUSE: Duration = Duration::from_millis(5);
    let path = start_file(container);
    while !path.exists() {
        thread::sleep(PAUSE);
    }
    let failed = |source| ServeError::Start {
        path: path.display().to_string(),
        source,
    };
    let text = fs::read(&path).map_err(failed)?;
    let start: ContainerStart = serde_json::from_slice(&text).map_err(|e| failed(e.into()))?;
    let error = Command::new("/proc/self/exe")
        .arg0("meshtax")
        .args(&start.arguments)
        .envs(&start.environment)
        .exec();
    Err(failed(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_that_was_too_large_keeps_its_type_in_the_reply() {
        let most_bytes = 77;
        let too_large = io::Error::other(CaptureTooLarge { most_bytes });
        assert_eq!(
            not_captured(&too_large),
            RemoteReply::CaptureTooLarge { most_bytes }
        );
        let other = not_captured(&io::ErrorKind::PermissionDenied.into());
        assert!(matches!(other, RemoteReply::Failed(_)), "{other:?}");
    }

    #[test]
    fn links_to_other_nodes_have_a_gateway_or_are_tunnels() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n\
            eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
            cni0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n\
            flannel.1\t0001F40A\t0001F40A\t0003\t0\t0\t0\t00FFFFFF\n\
            flannel-wg\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\n";
        let links = links_to_elsewhere(routes, |name| name == "flannel-wg");
        assert_eq!(links, ["eth0", "flannel.1", "flannel-wg"]);
    }
}
