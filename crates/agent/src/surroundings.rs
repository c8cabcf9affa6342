//! The machine around a trial: other programs, limits on CPU, eBPF, the core's frequency.

use meshtax_model::trial::MachineUsage;
use meshtax_observe::{BpfClock, Look, Others, Ours, Throttling, frequency_khz, monotonic_ns};

/// How many other programs are recorded per trial, the busiest first.
const RECORDED: usize = 10;

/// Reads the machine around the measured processes.
#[derive(Debug)]
pub struct Surroundings {
    others: Others,
    /// Kept for the whole run, so that the cost of counting is the same for all variants.
    bpf: Option<BpfClock>,
    core: Option<u32>,
}

/// The readings before a trial.
pub struct Before {
    look: Option<Look>,
    throttling: Option<Throttling>,
    bpf_ns: Option<u64>,
    at_ns: u64,
}

impl Surroundings {
    /// Processes in the PID namespace of `init`, and this one, are not "other programs". `cores`: those that the run
    /// measures on. `core`: that of the system under test, whose frequency is read.
    #[must_use]
    pub fn new(init: u32, cores: &[u32], core: Option<u32>) -> Self {
        let link = std::fs::read_link(format!("/proc/{init}/ns/pid"));
        let ours = Ours {
            pid_namespace: link.ok().map(Into::into),
            pids: [std::process::id()].into(),
        };
        Self {
            others: Others::new("/proc", cores, ours),
            bpf: BpfClock::start(),
            core,
        }
    }

    /// Takes the readings before a trial.
    pub fn before(&mut self) -> Before {
        Before {
            bpf_ns: self.bpf.as_mut().and_then(BpfClock::run_time_ns),
            throttling: Throttling::now(),
            at_ns: monotonic_ns(),
            look: self.others.look(),
        }
    }

    /// Adds what happened since `before` to the machine's usage in a trial.
    pub fn add(&mut self, before: &Before, machine: &mut MachineUsage) {
        if let Some((now, then)) = self.others.look().zip(before.look.as_ref()) {
            let (mut others, kernel_threads_ns) = now.since(then);
            others.truncate(RECORDED);
            machine.others = Some(others);
            machine.looked_ns = monotonic_ns().saturating_sub(before.at_ns);
            machine.kernel_threads_ns = kernel_threads_ns;
        }
        machine.throttled_ns = Throttling::now()
            .zip(before.throttling.as_ref())
            .map(|(now, then)| now.since(then));
        let bpf_ns = self.bpf.as_mut().and_then(BpfClock::run_time_ns);
        machine.bpf_ns = bpf_ns
            .zip(before.bpf_ns)
            .map(|(now, then)| now.saturating_sub(then));
        machine.frequency_khz = self.core.and_then(frequency_khz);
    }
}
