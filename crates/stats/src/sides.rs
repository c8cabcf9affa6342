//! The two sides of a comparison, and which of their variants belong together.

use meshtax_model::experiment::{Experiment, Role, Variant};

use crate::run_data::RunData;

/// Settings of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The between-run component given by the user, for all metrics; `None`: the default, combined with the runs' own.
    pub between: Option<f64>,
    /// Pairs of variants with different ids: BASE's, NEW's.
    pub pairs: Vec<(String, String)>,
}

/// Two sides of runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// BASE.
    pub base: &'a [RunData<'a>],
    /// NEW.
    pub new: &'a [RunData<'a>],
}

pub(crate) fn candidates(experiment: &Experiment) -> impl Iterator<Item = &Variant> {
    experiment
        .variants
        .iter()
        .filter(|v| v.role == Role::Candidate)
}

/// BASE's variant and NEW's: with the same id, or paired explicitly.
pub(crate) fn pairs<'a>(
    base: &'a Experiment,
    new: &'a Experiment,
    options: &Options,
) -> Vec<(&'a Variant, &'a Variant)> {
    let named = |two: &Variant| {
        let mut pairs = options.pairs.iter();
        pairs
            .find(|(_, new)| *new == two.id.0)
            .map(|(base, _)| base)
    };
    candidates(new)
        .filter_map(|two| {
            let wanted = named(two).unwrap_or(&two.id.0);
            let one = candidates(base).find(|one| one.id.0 == *wanted)?;
            Some((one, two))
        })
        .collect()
}
