//! Analyses that were never measured: figures of a plausible size, to look at reports with.

mod effects;
mod environment;
mod evidence;
mod figures;
mod quick;
mod trials;
mod variations;

use meshtax_model::analysis::Analysis;

pub(crate) use quick::quick;
pub(crate) use variations::{
    calibrate, empty, interrupted, noisy, not_estimable, overload, overloaded, rates, sabotaged,
    steady_only,
};

/// All of them, by name.
pub(crate) fn all() -> Vec<(&'static str, Analysis)> {
    vec![
        ("quick", quick()),
        ("interrupted", interrupted()),
        ("empty", empty()),
        ("sabotaged", sabotaged()),
        ("not_estimable", not_estimable()),
        ("overloaded", overloaded()),
        ("noisy", noisy()),
        ("calibrate", calibrate()),
        ("steady_only", steady_only()),
        ("rates", rates()),
        ("cluster", crate::clusters::cluster()),
        ("studied", crate::studies::livewyer()),
    ]
}
