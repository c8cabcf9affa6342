//! Memory growth within a measured window, and whose memory grew throughout it.

use meshtax_model::trial::{ComponentRole, ComponentSeries, ResourceSample, UsageSeries};

use crate::account::IN_PATH;

/// Growth of a component's anonymous memory within the window, as a share of its initial value...
const GROWTH_SHARE_MAX: f64 = 0.01;

/// ... and at least this many bytes, to exclude buffers...
const GROWTH_BYTES_MIN: f64 = 1_048_576.0;

/// ... in at least this share of the window's steps: a single allocation is not a leak.
const GROWING_STEPS_MIN: f64 = 0.6;

/// The growth of a role's memory over one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// From the first reading to the last.
    pub(crate) bytes_per_s: f64,
    pub(crate) bytes: f64,
    /// At the first reading.
    pub(crate) from_bytes: f64,
    /// The share of the steps in which it grew.
    pub(crate) growing_share: f64,
}

impl Growth {
    /// `None` with fewer than four readings: growth is more than one step.
    pub(crate) fn of(series: &UsageSeries, component: &ComponentSeries) -> Option<Self> {
        let read = &component.anonymous_bytes;
        let (first, last) = (*read.first()?, *read.last()?);
        if read.len() < 4 || read.len() != series.ends_ns.len() {
            return None;
        }
        let took_ns = series
            .ends_ns
            .last()?
            .checked_sub(*series.ends_ns.first()?)?;
        let growing = read.windows(2).filter(|pair| pair[1] > pair[0]).count();
        let bytes = last as f64 - first as f64;
        (took_ns > 0).then(|| Self {
            bytes_per_s: bytes * 1e9 / took_ns as f64,
            bytes,
            from_bytes: first as f64,
            growing_share: growing as f64 / (read.len() - 1) as f64,
        })
    }
}

/// A proxy's memory is a result, but an application that leaks is not what the variants are measured with.
pub(crate) fn application_grows(sample: &ResourceSample) -> bool {
    grows(sample, |role| IN_PATH.contains(&role) && !role.is_proxy())
}

/// Whether the memory of a variant's proxies grew throughout a trial.
pub(crate) fn proxies_grow(sample: &ResourceSample) -> bool {
    grows(sample, ComponentRole::is_proxy)
}

fn grows(sample: &ResourceSample, is_judged: impl Fn(ComponentRole) -> bool) -> bool {
    let series = &sample.series;
    let judged = series.components.iter();
    let judged = judged.filter(|component| is_judged(component.role));
    judged
        .filter_map(|component| Growth::of(series, component))
        .any(|growth| {
            growth.bytes >= GROWTH_BYTES_MIN
                && growth.bytes > growth.from_bytes * GROWTH_SHARE_MAX
                && growth.growing_share >= GROWING_STEPS_MIN
        })
}

#[cfg(test)]
mod tests {
    use meshtax_model::plan::TrialId;

    use super::*;

    /// What a component held at the steps of the window, in MiB.
    fn held(role: ComponentRole, mib: &[u64]) -> ResourceSample {
        const MIB: u64 = 1 << 20;
        let mut sample = ResourceSample::new(TrialId::new(1, 1, 1));
        let ends = 1..=mib.len() as u64;
        sample.series.ends_ns = ends.map(|step| step * 60_000_000).collect();
        sample.series.components.push(ComponentSeries {
            role,
            cpu_ns: Vec::new(),
            anonymous_bytes: mib.iter().map(|n| n * MIB).collect(),
        });
        sample
    }

    #[test]
    fn steady_memory_growth_is_a_leak_and_a_buffer_is_not() {
        use ComponentRole::{App, Generator, ServerProxy};
        let grown = &[10, 11, 12, 13, 14];
        assert!(application_grows(&held(App, grown)));
        let buffer = held(App, &[10, 14, 14, 14, 14]);
        assert!(!application_grows(&buffer));
        let below = held(App, &[1000, 1001, 1002, 1003, 1004]);
        assert!(!application_grows(&below), "below 1 %");
        assert!(!application_grows(&held(Generator, grown)));
        let proxy = held(ServerProxy, grown);
        assert!(!application_grows(&proxy) && proxies_grow(&proxy));
    }
}
