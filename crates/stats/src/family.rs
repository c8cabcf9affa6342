//! Several comparisons: Holm's step-down adjustment (Holm 1979).
//!
//! It is valid for any dependence between the tests, which is strong here: all candidates
//! are compared with the same two baselines.

/// A test is rejected below this, after adjustment where there is one.
pub const ALPHA: f64 = 0.05;

/// The adjusted p-values, in the order given. A test is rejected at level α exactly if its
/// adjusted value is at most α.
#[must_use]
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut so_far = 0.0_f64;
    for (step, &index) in order.iter().enumerate() {
        let left = (p_values.len() - step) as f64;
        // A test cannot be rejected before one with a smaller p-value.
        so_far = so_far.max((left * p_values[index]).min(1.0));
        adjusted[index] = so_far;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjustment_matches_a_reference_computation() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }

    #[test]
    fn single_test_is_not_adjusted_and_empty_family_is_accepted() {
        assert_eq!(holm(&[0.04]), [0.04]);
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }
}
