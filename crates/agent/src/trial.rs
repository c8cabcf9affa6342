//! One trial's load, and the readings that are taken around it.

use std::collections::BTreeMap;
use std::thread;

use meshtax_load::{LoadSpec, Window};
use meshtax_model::failure::TrialFailure;
use meshtax_model::plan::TrialId;
use meshtax_model::trial::{
    ComponentUsage, IdleProxies, LoadResult, MachineUsage, Memory, ProxyConnections,
    ResourceSample, UsageSeries,
};
use meshtax_observe::{ObserveError, monotonic_ns, sleep_until_ns, speed_probe};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::generator::{ClientLoad, ClientWorker, GeneratorError, Generators, whole_load};
use crate::watched::Watched;
use crate::window::{Readings, full_window, observe};

/// Why a trial was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// There was no load.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// The machine could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

impl From<MeasureError> for TrialFailure {
    fn from(error: MeasureError) -> Self {
        match error {
            MeasureError::Generator(error) => error.into(),
            MeasureError::Observe(error) => Self::LoadFailed {
                detail: error.to_string(),
            },
        }
    }
}

/// A trial's load, and what was read while it ran.
pub struct Measurement {
    /// The result of all clients together.
    pub load: LoadResult,
    /// That of each client.
    pub parts: Vec<ClientLoad>,
    /// `None`: there are no proxies, or their connections cannot be counted.
    pub proxy_connections: Option<ProxyConnections>,
    /// Established connections at the first proxy of each client's part, just after the load; `None`: they cannot be
    /// counted.
    pub entered_connections: Vec<Option<u32>>,
    generators: Vec<u32>,
    /// By the index of the process.
    memories: BTreeMap<usize, Memory>,
    readings: Readings,
}

/// Runs a load of one worker for each client, and reads all watched processes in its window. `on_window` is called when
/// the window is known, before the warm-up: agents on other nodes start to observe it then.
///
/// # Errors
/// If there is no load or no result of it, or `/proc/stat` cannot be read.
pub fn measure(
    spec: &LoadSpec,
    clients: Vec<ClientWorker>,
    watched: &Watched,
    on_window: &mut dyn FnMut(Window),
) -> Result<Measurement, MeasureError> {
    let mut generators = Generators::ready(spec, clients)?;
    let window = generators.start(monotonic_ns() + generators.lead_ns())?;
    on_window(window);
    let before = connections_before(watched, &window);
    let pids = generators.pids();
    let readings = match spec.max_requests {
        None => observe(watched, &window, &pids, &mut full_window),
        Some(_) => observe(watched, &window, &pids, &mut |until_ns| {
            generators.have_ended_before(until_ns)
        }),
    };
    let parts = generators.results();
    // The load is over and its connections are still open.
    let after = watched.connections();
    let entered_connections = watched.entered(&pids);
    let memories = watched.memories();
    drop(generators);
    let parts = parts?;
    Ok(Measurement {
        load: whole_load(spec, &parts),
        parts,
        proxy_connections: after.map(|after| ProxyConnections { before, after }),
        entered_connections,
        generators: pids,
        memories,
        readings: readings?,
    })
}

/// Connections between the proxies at the end of the warm-up, with enough time left for the kernel to walk its table.
fn connections_before(watched: &Watched, window: &Window) -> Option<u32> {
    const AHEAD_NS: u64 = 20_000_000;
    let at_ns = window.start_monotonic_ns.saturating_sub(AHEAD_NS);
    if monotonic_ns() > at_ns {
        return None;
    }
    sleep_until_ns(at_ns);
    watched.connections()
}

/// Runs a load that is not measured, so that what it needs is there when one is: connections between proxies above all.
///
/// # Errors
/// If there is no load, or no result of it.
pub fn warm_up(spec: &LoadSpec, clients: Vec<ClientWorker>) -> Result<LoadResult, GeneratorError> {
    let mut generators = Generators::ready(spec, clients)?;
    // The clocks of generators on other nodes are not ours: each starts as soon as it gets the order.
    generators.start_at_once()?;
    Ok(whole_load(spec, &generators.results()?))
}

impl Measurement {
    /// What the trial cost. `speed_probe_ns`: from just before and just after it.
    #[must_use]
    pub fn sample(&self, trial: &TrialId, speed_probe_ns: [u64; 2]) -> ResourceSample {
        let used = self.parts.iter().map(|part| part.result.audit.cpu_ns);
        let generators: Vec<(u32, u64)> = self.generators.iter().copied().zip(used).collect();
        self.readings
            .sample(trial, &self.memories, &generators, speed_probe_ns)
    }
}

/// What a node used in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeUsage {
    /// Its processes that are in use.
    pub components: Vec<ComponentUsage>,
    /// CPU of those that idle, in nanoseconds.
    pub idle_cpu_ns: u64,
    /// Idle proxies by variant.
    pub idle_proxies: Vec<IdleProxies>,
    /// CPU and memory by role, step by step.
    pub series: UsageSeries,
    /// Its machine.
    pub machine: MachineUsage,
}

/// Reads the watched processes of one node, and its machine, in the window of a load that another node's agent drives.
///
/// # Errors
/// If the machine cannot be read.
pub fn observe_window(watched: &Watched, window: Window) -> Result<NodeUsage, ObserveError> {
    let own = std::process::id();
    let readings = observe(watched, &window, &[own], &mut full_window)?;
    let components = readings.components(&watched.memories());
    let (idle, idle_proxies) = readings.idle();
    Ok(NodeUsage {
        components,
        idle_cpu_ns: idle.cpu_ns,
        idle_proxies,
        series: readings.series(),
        machine: readings.machine(),
    })
}

/// Times a fixed amount of work (about 2 ms) on a core, in nanoseconds: how fast that core is now.
#[must_use]
pub fn speed_probe_on(core: Option<u32>) -> u64 {
    let pinned = || {
        let mut set = CpuSet::new();
        if let Some(core) = core {
            let _ = set.set(core as usize);
            let _ = sched_setaffinity(Pid::from_raw(0), &set);
        }
        speed_probe()
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap_or(0))
}
