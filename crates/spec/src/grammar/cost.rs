//! Known costs: `delay=15%`, `memory=64MiB`.

use meshtax_model::experiment::Inject;

use super::duration::{SECOND, duration_ns};
use super::error::{ValueError, quoted};
use super::number::{self, within};
use super::rate::rate_per_s;
use super::share::percentage;
use super::size::size_bytes;
use super::suggestion::{one_of, with_suggestion};

/// The kinds of known costs, with examples of each.
pub(crate) const COSTS: [(&str, &str); 5] = [
    ("delay", "15%, 12us or 1ms@1%"),
    ("burn", "100k"),
    ("memory", "64MiB"),
    ("cap", "5000/s"),
    ("leak", "4KiB"),
];

/// A known cost of this kind and size: `delay` of `12us` (a duration), `15%` (of the baseline's median
/// latency) or `1ms@1%` (for one request in a hundred), `burn` of `100k` (steps per request),
/// `memory` of `64MiB`, `cap` of `5000/s`, `leak` of `4KiB` (per request).
///
/// # Errors
/// If the kind is unknown, or the size is invalid or out of range.
pub(crate) fn known_cost(kind: &str, size: &str) -> Result<Inject, ValueError> {
    match kind.trim() {
        "delay" => delay(size),
        "burn" => burn_steps(size).map(Inject::BurnSteps),
        "memory" => {
            const RANGE: &str = "1MiB to 8GiB";
            let bytes = within(size, size_bytes(size)?, (1 << 20, 8 << 30), RANGE)?;
            Ok(Inject::HoldBytes(bytes))
        }
        "cap" => Ok(Inject::CapPerS(rate_per_s(size)?)),
        "leak" => {
            let bytes = within(size, size_bytes(size)?, (1, 1 << 20), "1B to 1MiB")?;
            Ok(Inject::LeakBytes(bytes))
        }
        other => {
            let kinds = COSTS.map(|(kind, _)| kind);
            let fix = with_suggestion(other, kinds, format!("allowed: {}", one_of(kinds)));
            Err(ValueError::not(other, "a cost that can be injected", fix))
        }
    }
}

fn delay(text: &str) -> Result<Inject, ValueError> {
    const RANGE: &str = "1us to 1s, or 0.1% to 1000% of the baseline's median latency";
    let time = |text: &str| {
        let ns = duration_ns(text)
            .map_err(|e| ValueError::new(e.problem, format!("allowed: {RANGE}")))?;
        within(text, ns, (1_000, SECOND), RANGE)
    };
    if let Some((time_text, share)) = text.split_once('@') {
        let share = within(
            text,
            percentage(share)?,
            (0.000_1, 1.0),
            "0.01% to 100% of the requests, as in 1ms@1%",
        )?;
        let delay_ns = time(time_text)?;
        return Ok(Inject::DelaySome { delay_ns, share });
    }
    if text.trim_end().ends_with('%') {
        let share = within(text, percentage(text)?, (0.001, 10.0), RANGE)?;
        return Ok(Inject::DelayShareOfP50(share));
    }
    Ok(Inject::DelayNs(time(text)?))
}

/// Steps of work: `100000`, `100k`, `2M`.
pub(crate) fn burn_steps(text: &str) -> Result<u64, ValueError> {
    const RANGE: &str = "100 to 100M steps per request, about a nanosecond each, as in 100k";
    let steps = number::scaled_whole(text)
        .ok_or_else(|| ValueError::not(text, "a number of steps", format!("allowed: {RANGE}")))?;
    within(text, steps, (100, 100_000_000), RANGE)
}

/// A known cost in the command line's form: `delay=15%`, `memory=64MiB`.
///
/// # Errors
/// If the kind of cost is unknown, or its size is invalid.
pub fn inject(text: &str) -> Result<Inject, ValueError> {
    let Some((kind, size)) = text.split_once('=') else {
        return Err(ValueError::new(
            format!("`{}` has no size", quoted(text)),
            "write the cost and its size, as in delay=15% or memory=64MiB",
        ));
    };
    known_cost(kind, size)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{count, precision, time_limit_ns};
    use super::*;

    #[test]
    fn costs_have_a_kind_and_a_size() {
        assert_eq!(inject("delay=15%"), Ok(Inject::DelayShareOfP50(0.15)));
        assert_eq!(inject("delay=12us"), Ok(Inject::DelayNs(12_000)));
        let some = Inject::DelaySome {
            delay_ns: 1_000_000,
            share: 0.01,
        };
        assert_eq!(inject("delay=1ms@1%"), Ok(some));
        assert_eq!(inject("burn=100k"), Ok(Inject::BurnSteps(100_000)));
        assert_eq!(inject("memory=64MiB"), Ok(Inject::HoldBytes(64 << 20)));
        assert_eq!(inject("cap=5000/s"), Ok(Inject::CapPerS(5000.0)));
        assert_eq!(inject("leak=4KiB"), Ok(Inject::LeakBytes(4096)));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_allowed_range() {
        let errors: Vec<String> = [
            duration_ns("2").map(drop),
            duration_ns("-1s").map(drop),
            duration_ns("2 parsecs").map(drop),
            duration_ns("soon").map(drop),
            time_limit_ns("48h").map(drop),
            time_limit_ns("0s").map(drop),
            percentage("2").map(drop),
            precision("NaN%").map(drop),
            precision("99%").map(drop),
            size_bytes("1.5 B").map(drop),
            size_bytes("3 bananas").map(drop),
            rate_per_s("0").map(drop),
            rate_per_s("NaN").map(drop),
            rate_per_s("inf").map(drop),
            rate_per_s("1e99").map(drop),
            count("0", "a number of connections", 1, 10_000).map(drop),
            count("1.5", "a number of connections", 1, 10_000).map(drop),
            inject("delay").map(drop),
            inject("dealy=3us").map(drop),
            inject("memory=3").map(drop),
            inject("memory=64").map(drop),
            inject("burn=12us").map(drop),
            inject("burn=1").map(drop),
            inject("cap=0").map(drop),
            inject("leak=2MiB").map(drop),
            inject("delay=1ms@").map(drop),
            inject("delay=1ms@200%").map(drop),
            inject("delay=@1%").map(drop),
            delay("3").map(drop),
            delay("0%").map(drop),
            delay("1h").map(drop),
        ]
        .into_iter()
        .map(|r| r.unwrap_err().to_string())
        .collect();
        insta::assert_snapshot!(errors.join("\n"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = duration_ns(&text);
            let _ = percentage(&text);
            let _ = size_bytes(&text);
            let _ = rate_per_s(&text);
            let _ = count(&text, "a count", 1, 9);
            let _ = inject(&text);
        }
    }
}
