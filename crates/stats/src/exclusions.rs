//! Whether trials of a variant were excluded more or less often than those of the baselines.
//!
//! A rule that excludes by what a variant does, and not by what the machine did, would leave its better trials only. The
//! rules are meant to be equally likely to exclude any trial; this is the check on it. Fisher's exact test per variant
//! and load point, adjusted over all of them (Holm): trials of one block share the machine's state, which makes shares
//! more alike than independent ones, and the test conservative.

use meshtax_model::analysis::Caveat;
use meshtax_model::experiment::{LoadPoint, Role, Variant};
use statrs::distribution::{Discrete as _, Hypergeometric};

use crate::family::{ALPHA, holm};
use crate::trials::{Cell, Trials};

/// Invalid trials, and all.
type Counts = [u32; 2];

/// A caveat for each variant and load point with an imbalance beyond chance.
pub(crate) fn imbalances(trials: &Trials<'_>) -> Vec<Caveat> {
    let mut found = Vec::new();
    for variant in trials.by_role(Role::Candidate) {
        for point in trials.points() {
            let [own, base] = arms(trials, variant, point);
            if let Some(p_value) = fisher(own, base) {
                let caveat = Caveat::UnequalExclusion {
                    variant: variant.id.clone(),
                    load_point: point.id.clone(),
                    invalid: own[0],
                    of: own[1],
                    baselines_invalid: base[0],
                    baselines_of: base[1],
                };
                found.push((p_value, caveat));
            }
        }
    }
    let p_values: Vec<f64> = found.iter().map(|(p, _)| *p).collect();
    found
        .into_iter()
        .zip(holm(&p_values))
        .filter(|(_, adjusted)| *adjusted < ALPHA)
        .map(|((_, caveat), _)| caveat)
        .collect()
}

/// The variant's, and those of the baselines together.
fn arms(trials: &Trials<'_>, variant: &Variant, point: &LoadPoint) -> [Counts; 2] {
    let count = |cell: &Cell<'_>| -> Counts {
        let invalid: u32 = cell.invalid.values().sum();
        [invalid, invalid + cell.valid_count()]
    };
    let baselines = [Role::Baseline, Role::Control].into_iter();
    let baselines = baselines.flat_map(|role| trials.by_role(role));
    let sum = baselines
        .map(|baseline| count(trials.cell(&baseline.id, &point.id)))
        .fold([0, 0], |sum, counts| {
            [sum[0] + counts[0], sum[1] + counts[1]]
        });
    [count(trials.cell(&variant.id, &point.id)), sum]
}

/// The two-sided p-value of "trials of both arms are equally likely to be excluded"; `None` without trials of both, or
/// without an excluded one.
fn fisher(own: Counts, base: Counts) -> Option<f64> {
    let [all, invalid] = [own[1] + base[1], own[0] + base[0]].map(u64::from);
    if own[1] == 0 || base[1] == 0 || invalid == 0 {
        return None;
    }
    let chance = Hypergeometric::new(all, invalid, u64::from(own[1])).ok()?;
    let seen = chance.pmf(u64::from(own[0]));
    // Probabilities that differ by rounding only are equal.
    let as_unlikely = (0..=invalid.min(u64::from(own[1])))
        .map(|count| chance.pmf(count))
        .filter(|probability| *probability <= seen * (1.0 + 1e-9));
    Some(as_unlikely.sum::<f64>().min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_value_matches_a_reference_computation() {
        // R: fisher.test(matrix(c(8, 12, 5, 35), 2))
        let p = fisher([8, 20], [5, 40]).unwrap();
        assert!((p - 0.021_7).abs() < 1e-4, "{p}");
        assert_eq!(fisher([0, 20], [0, 40]), None);
        assert_eq!(fisher([0, 0], [4, 40]), None);
        assert!(fisher([10, 20], [20, 40]).unwrap() > 0.99);
    }
}
