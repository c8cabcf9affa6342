//! A load distributed over several workers: other machines, or processes on this one.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use meshtax_load::{FleetError, Hooks, LoadError, LoadSpec, Member, run_fleet};
use meshtax_model::trial::LoadResult;
use meshtax_tls::{SECRET_NAME, client_config, secret_tls, split};
use rustls::{ClientConfig, ClientConnection};

use crate::args::{FleetArgs, Workers};
use crate::exit::{Failure, MISSING, NOTHING_MEASURED, UNEXPECTED, USAGE};

/// Timeout for connecting to a worker, including the TLS handshake with the shared secret.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Offers the load with the given workers, of which there must be at least one.
pub(crate) fn offer(
    spec: &LoadSpec,
    workers: &Workers,
    args: &FleetArgs,
    hooks: Hooks<'_>,
) -> Result<LoadResult, Failure> {
    // Dropped, and thereby terminated, when this function returns.
    let mut children = Children(Vec::new());
    let members = match workers {
        Workers::Processes(count) => (1..=*count)
            .map(|number| children.start(number))
            .collect::<Result<_, _>>()?,
        Workers::At(addresses) => reach(addresses, args)?,
    };
    run_fleet(spec, members, hooks).map_err(failure)
}

fn failure(error: FleetError) -> Failure {
    match &error {
        FleetError::Load(LoadError::Invalid { .. }) | FleetError::TooMany { .. } => {
            Failure::new(USAGE, error)
        }
        FleetError::Load(_) => Failure::new(MISSING, error),
        FleetError::Worker { .. } => Failure::new(NOTHING_MEASURED, error),
    }
}

struct Children(Vec<Child>);

impl Children {
    fn start(&mut self, number: u32) -> Result<Member, Failure> {
        let failed = |e: std::io::Error| {
            Failure::new(UNEXPECTED, format!("cannot start worker {number}: {e}"))
        };
        let mut child = Command::new("/proc/self/exe")
            .args(["internal", "load"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is handled by this process, which stops the workers and collects their results. If
            // this process dies, their input ends, and they stop by themselves.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        self.0.push(child);
        Ok(Member {
            name: format!("process {number}"),
            output: Box::new(output),
            input: Box::new(input),
        })
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Workers that have finished have already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn reach(addresses: &[String], args: &FleetArgs) -> Result<Vec<Member>, Failure> {
    let secret = args.secret.read()?.ok_or_else(|| {
        Failure::with_fix(
            USAGE,
            "the workers require a shared secret",
            "set MESHTAX_WORKER_SECRET to what `meshtax worker` printed, or write it to a file for \
             --worker-secret-file",
        )
    })?;
    let (tls, _) = secret_tls(&secret).map_err(|e| Failure::new(UNEXPECTED, e))?;
    let config = Arc::new(client_config(&tls).map_err(|e| Failure::new(UNEXPECTED, e))?);
    addresses
        .iter()
        .map(|address| reach_one(address, &config))
        .collect()
}

fn reach_one(address: &str, config: &Arc<ClientConfig>) -> Result<Member, Failure> {
    let unreachable = |e: &dyn std::fmt::Display| {
        Failure::with_fix(
            NOTHING_MEASURED,
            format!("cannot connect to worker {address}: {e}"),
            "start `meshtax worker --listen ADDRESS` there, and allow connections from this machine",
        )
    };
    let found = address.to_socket_addrs().map_err(|e| unreachable(&e))?;
    let mut socket = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for target in found {
        socket = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT);
        if socket.is_ok() {
            break;
        }
    }
    let socket = socket.map_err(|e| unreachable(&e))?;
    let stranger = |e: std::io::Error| {
        Failure::with_fix(
            NOTHING_MEASURED,
            format!("worker {address} has a different secret, or is not a meshtax worker: {e}"),
            "use the same secret on both machines",
        )
    };
    let handshake = || -> std::io::Result<_> {
        let name = SECRET_NAME.try_into().map_err(std::io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
        split(tls, socket, CONNECT_TIMEOUT)
    };
    let (output, input) = handshake().map_err(stranger)?;
    Ok(Member {
        name: address.to_owned(),
        output: Box::new(output),
        input: Box::new(input),
    })
}
