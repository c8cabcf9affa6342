//! The equivalence margins of a spec.

use meshtax_model::margins::Margins;

use crate::grammar::{ValueError, percentage, within};
use crate::yaml::{Fields, Node, Problem};

/// The key for the margins.
pub(crate) const KEY: &str = "margins";

const KEYS: [&str; 8] = [
    "p50",
    "mean",
    "p90",
    "p99",
    "p99.9",
    "throughput",
    "cpu",
    "memory",
];

/// Metrics that are not listed keep their default.
pub(crate) fn read(node: Option<&Node>) -> Result<Margins, Problem> {
    let default = Margins::default();
    let Some(node) = node else {
        return Ok(default);
    };
    let example = "`margins: {p50: 2%, p99: 10%, cpu: 2%}`";
    let fields = Fields::of(node, "`margins`", &KEYS, example)?;
    Ok(Margins {
        p50: fields.or("p50", default.p50, margin)?,
        mean: fields.or("mean", default.mean, margin)?,
        p90: fields.or("p90", default.p90, margin)?,
        p99: fields.or("p99", default.p99, margin)?,
        p999: fields.or("p99.9", default.p999, margin)?,
        throughput: fields.or("throughput", default.throughput, margin)?,
        cpu: fields.or("cpu", default.cpu, margin)?,
        memory: fields.or("memory", default.memory, margin)?,
    })
}

fn margin(text: &str) -> Result<f64, ValueError> {
    const RANGE: &str = "0.1% to 50%, as in 2%";
    within(text, percentage(text)?, (0.001, 0.5), RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_metrics_keep_their_default_margin() {
        let read = |text| crate::parse("spec", text).map(|experiment| experiment.margins);
        assert_eq!(read("name: x\n"), Ok(Margins::default()));
        let own = read("margins: {p99.9: 20%, cpu: 0.5%}\n").unwrap();
        assert_eq!(
            own,
            Margins {
                p999: 0.2,
                cpu: 0.005,
                ..Margins::default()
            }
        );
    }

    #[test]
    fn unknown_metrics_and_margins_out_of_range_are_rejected() {
        for (text, expected) in [
            ("margins: {p95: 2%}\n", "unknown key `p95`"),
            ("margins: {p50: 2}\n", "a percentage"),
            ("margins: {p50: 0%}\n", "out of range"),
            ("margins: {p50: 60%}\n", "out of range"),
            ("margins: 2%\n", "must be a mapping"),
        ] {
            let rejected = crate::parse("spec", text).unwrap_err();
            assert!(rejected.message.contains(expected), "{text}: {rejected}");
        }
    }
}
