//! Drives the load generators, one in each client's pod: starts them together, waits for their window and their results,
//! keeps their connections open.

mod error;
mod one;
#[cfg(test)]
mod tests;
mod worker;

use meshtax_load::{LoadSpec, Window, judge_shared_cores};
use meshtax_model::trial::LoadResult;

pub use self::error::GeneratorError;
use self::one::Generator;
pub use self::worker::{ClientWorker, StartedWorker, Worker, ending};

/// What the generator of one client measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLoad {
    /// The name of the client's pod.
    pub client: String,
    /// Its connections that were still open after the load: those that the other side had ended are not among them.
    pub open: u32,
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
            let (result, open) = generator.result()?;
            Ok(ClientLoad {
                client: generator.client.clone(),
                open,
                result,
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
