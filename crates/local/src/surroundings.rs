//! What is seen of a trial from outside of the lab: other programs, limits on CPU, eBPF.

use meshtax_model::environment::CpuLayout;
use meshtax_model::trial::ResourceSample;
use meshtax_observe::{BpfClock, Look, Others, Ours, Throttling, frequency_khz, monotonic_ns};

/// Other programs in a trial that are written down, the busiest first.
const NAMED: usize = 10;

/// Looks at the machine around the lab.
#[derive(Debug)]
pub(crate) struct Surroundings {
    others: Others,
    /// Held for the whole run, so that what counting costs is the same for all variants.
    bpf: Option<BpfClock>,
    core: Option<u32>,
}

/// What was seen before a trial.
pub(crate) struct Before {
    look: Option<Look>,
    throttling: Option<Throttling>,
    bpf_ns: Option<u64>,
    at_ns: u64,
}

impl Surroundings {
    /// Around the lab whose init has this process id.
    pub(crate) fn of(lab: u32, layout: &CpuLayout) -> Self {
        let mut cores: Vec<u32> = [&layout.generator, &layout.client_node, &layout.server_node]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        cores.sort_unstable();
        cores.dedup();
        let link = std::fs::read_link(format!("/proc/{lab}/ns/pid"));
        let ours = Ours {
            pid_namespace: link.ok().map(Into::into),
            pids: [std::process::id()].into(),
        };
        Self {
            others: Others::new("/proc", &cores, ours),
            bpf: BpfClock::start(),
            core: layout.server_node.first().copied(),
        }
    }

    pub(crate) fn before(&mut self) -> Before {
        Before {
            bpf_ns: self.bpf.as_mut().and_then(BpfClock::run_time_ns),
            throttling: Throttling::now(),
            at_ns: monotonic_ns(),
            look: self.others.look(),
        }
    }

    /// Adds what happened since to what the lab has seen.
    pub(crate) fn add(&mut self, before: &Before, sample: &mut ResourceSample) {
        let machine = &mut sample.machine;
        if let Some((now, then)) = self.others.look().zip(before.look.as_ref()) {
            let (mut others, kernel_threads_ns) = now.since(then);
            others.truncate(NAMED);
            sample.others = Some(others);
            sample.looked_ns = monotonic_ns().saturating_sub(before.at_ns);
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
