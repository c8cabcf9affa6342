//! Result files of other load tools: what `meshtax load` exports, a module per format.
//!
//! Pure: a load goes in, the file's text comes out. A reader of a format belongs beside its writer, and shares the
//! types of its document.

#![forbid(unsafe_code)]

mod fortio;
mod hgrm;
mod intervals;
mod moments;
mod vegeta;

use meshtax_model::load::FinishedLoad;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Fortio's JSON, for `fortio report` and its plots.
    Fortio,
    /// HdrHistogram's percentile distribution, for its plotters and readers of wrk2.
    Hgrm,
    /// The intervals of the load as CSV.
    Intervals,
    /// Vegeta's text report.
    Vegeta,
}

impl Format {
    /// The file's content.
    #[must_use]
    pub fn write(self, load: &FinishedLoad) -> String {
        match self {
            Self::Fortio => fortio::write(load),
            Self::Hgrm => hgrm::write(load),
            Self::Intervals => intervals::write(load),
            Self::Vegeta => vegeta::write(load),
        }
    }
}
