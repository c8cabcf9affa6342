//! How evenly requests arrived.

use crate::args::Args;
use crate::clock::SECOND_NS;

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let args = Args::parse(words, &["--poisson"])?;
    let rate: f64 = args.get("--rate")?.ok_or("give the rate with --rate")?;
    let trim: f64 = args.or("--trim", 0.0)?;
    let mut arrivals = Vec::new();
    for path in &args.plain {
        let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
        let (instants, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(format!("{path}: not a recorder's file"));
        }
        arrivals.extend(instants.iter().map(|instant| u64::from_le_bytes(*instant)));
    }
    arrivals.sort_unstable();
    trim_ends(&mut arrivals, (trim * SECOND_NS as f64) as u64);
    if arrivals.len() < 10 {
        return Err(format!("only {} arrivals", arrivals.len()));
    }
    let gaps: Vec<f64> = arrivals.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let span_ns = (arrivals[arrivals.len() - 1] - arrivals[0]) as f64;
    let mut fields = vec![
        ("arrivals", arrivals.len() as f64),
        ("achieved_per_s", gaps.len() as f64 / span_ns * 1e9),
    ];
    let mut sorted_gaps = gaps.clone();
    sorted_gaps.sort_unstable_by(f64::total_cmp);
    let micros = |sorted: &[f64], share| quantile(sorted, share) / 1e3;
    fields.extend([
        ("gap_p1_us", micros(&sorted_gaps, 0.01)),
        ("gap_p50_us", micros(&sorted_gaps, 0.5)),
        ("gap_p99_us", micros(&sorted_gaps, 0.99)),
        ("gap_max_us", micros(&sorted_gaps, 1.0)),
    ]);
    if args.has("--poisson") {
        let d = distance_from_exponential(&sorted_gaps, 1e9 / rate);
        fields.extend([
            ("ks_d", d),
            ("ks_p", kolmogorov_p(d, sorted_gaps.len())),
            ("gap_cv", variation(&gaps)),
            ("gap_lag1_correlation", lag1_correlation(&gaps)),
        ]);
    } else {
        let errors = schedule_errors(&arrivals, 1e9 / rate);
        fields.extend([
            ("burst_share", burst_share(&gaps, 1e9 / rate)),
            ("error_p50_us", micros(&errors, 0.5)),
            ("error_p99_us", micros(&errors, 0.99)),
            ("error_max_us", micros(&errors, 1.0)),
        ]);
    }
    let text: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    println!("{{{}}}", text.join(","));
    Ok(())
}

/// Leaves out what came in the first and the last moments.
fn trim_ends(sorted: &mut Vec<u64>, trim_ns: u64) {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        return;
    };
    let keep = first + trim_ns..=last.saturating_sub(trim_ns);
    sorted.retain(|at| keep.contains(at));
}

/// The value below or at which this share of the values lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The share of arrivals less than a fifth of the ideal gap after the one before.
fn burst_share(gaps: &[f64], ideal_ns: f64) -> f64 {
    let close = gaps.iter().filter(|gap| **gap < 0.2 * ideal_ns).count();
    close as f64 / gaps.len() as f64
}

/// How far each arrival is from its place on the ideal grid, sorted. The grid's phase is the
/// one that fits best: the median of the differences.
fn schedule_errors(sorted: &[u64], ideal_ns: f64) -> Vec<f64> {
    let differences: Vec<f64> = sorted
        .iter()
        .enumerate()
        .map(|(i, at)| (at - sorted[0]) as f64 - i as f64 * ideal_ns)
        .collect();
    let mut ordered = differences.clone();
    ordered.sort_unstable_by(f64::total_cmp);
    let phase = quantile(&ordered, 0.5);
    let mut errors: Vec<f64> = differences.iter().map(|d| (d - phase).abs()).collect();
    errors.sort_unstable_by(f64::total_cmp);
    errors
}

/// Kolmogorov and Smirnov's distance of gaps from the exponential distribution of this mean.
fn distance_from_exponential(sorted_gaps: &[f64], mean_ns: f64) -> f64 {
    let count = sorted_gaps.len() as f64;
    let mut distance: f64 = 0.0;
    for (i, gap) in sorted_gaps.iter().enumerate() {
        let expected = 1.0 - (-gap / mean_ns).exp();
        let below = expected - i as f64 / count;
        let above = (i + 1) as f64 / count - expected;
        distance = distance.max(below).max(above);
    }
    distance
}

/// How often chance alone gives such a distance or a larger one: Kolmogorov's limit with
/// Stephens' correction for the number of values.
fn kolmogorov_p(distance: f64, count: usize) -> f64 {
    let root = (count as f64).sqrt();
    let x = (root + 0.12 + 0.11 / root) * distance;
    if x < 0.2 {
        return 1.0;
    }
    let mut sum = 0.0;
    for k in 1..=100 {
        let k = f64::from(k);
        let sign = if k % 2.0 == 1.0 { 1.0 } else { -1.0 };
        sum += sign * (-2.0 * k * k * x * x).exp();
    }
    (2.0 * sum).clamp(0.0, 1.0)
}

/// Standard deviation over mean: 1 for an exponential distribution.
fn variation(gaps: &[f64]) -> f64 {
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}

/// How far a gap depends on the one before: 0 for a Poisson process.
fn lag1_correlation(gaps: &[f64]) -> f64 {
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
    let shared: f64 = gaps.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    shared / variance
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, in (0, 1].
    fn uniform(count: usize) -> impl Iterator<Item = f64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..count).map(move |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 11) + 1) as f64 / (1_u64 << 53) as f64
        })
    }

    #[test]
    fn an_even_grid_has_no_error_and_a_late_tenth_shows() {
        let even: Vec<u64> = (0..1000).map(|i| 5_000 + i * 100_000).collect();
        assert_eq!(*schedule_errors(&even, 100_000.0).last().unwrap(), 0.0);
        let mut late = even.clone();
        for at in late.iter_mut().step_by(10) {
            *at += 30_000;
        }
        let errors = schedule_errors(&late, 100_000.0);
        assert_eq!(quantile(&errors, 0.5), 0.0);
        assert_eq!(quantile(&errors, 0.99), 30_000.0);
    }

    #[test]
    fn bursts_are_counted() {
        let gaps = [10.0, 19.0, 20.0, 100.0];
        assert_eq!(burst_share(&gaps, 100.0), 0.5);
    }

    #[test]
    fn exponential_gaps_pass_and_others_do_not() {
        let p = |mut gaps: Vec<f64>, mean| {
            gaps.sort_unstable_by(f64::total_cmp);
            kolmogorov_p(distance_from_exponential(&gaps, mean), gaps.len())
        };
        let exponential: Vec<f64> = uniform(30_000).map(|u| -u.ln() * 1e6).collect();
        assert!((variation(&exponential) - 1.0).abs() < 0.02);
        assert!(lag1_correlation(&exponential).abs() < 0.02);
        assert!(p(exponential.clone(), 1e6) > 0.05);
        assert!(p(exponential.clone(), 1.05e6) < 0.001);
        assert!(p(exponential.iter().map(|gap| gap.max(3e4)).collect(), 1e6) < 0.001);
        assert!(p(vec![1e6; 1000], 1e6) < 0.001);
    }

    #[test]
    fn the_known_points_of_kolmogorovs_distribution() {
        // 1.358 is the 5 % point, 1.628 the 1 % point, of many values.
        for (x, p) in [(1.358, 0.05), (1.628, 0.01)] {
            let count = 1_000_000;
            assert!((kolmogorov_p(x / 1000.0, count) - p).abs() < 0.001);
        }
    }

    #[test]
    fn the_ends_are_trimmed() {
        let mut arrivals: Vec<u64> = (0..=10).collect();
        trim_ends(&mut arrivals, 3);
        assert_eq!(arrivals, [3, 4, 5, 6, 7]);
    }
}
