//! Memory growth within a measured window.

use meshtax_model::trial::{ComponentSeries, Series};

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
    pub(crate) fn of(series: &Series, component: &ComponentSeries) -> Option<Self> {
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
