//! Vegeta's text report.
//!
//! Its columns are fixed, so percentiles with too few requests above them are included. Bytes include headers, where
//! Vegeta counts bodies.

use std::fmt::Write as _;

use meshtax_model::LatencyHistogram;
use meshtax_model::load::FinishedLoad;
use meshtax_model::trial::LoadResult;

/// The report.
pub(crate) fn write(load: &FinishedLoad) -> String {
    let result = &load.result;
    let mean = |bytes: u64| {
        format!(
            "{bytes}, {:.2}",
            bytes as f64 / result.offered.max(1) as f64
        )
    };
    let rates = format!(
        "{}, {:.2}, {:.2}",
        result.offered,
        result.offered as f64 / load.seconds(),
        result.goodput_per_s()
    );
    // How long responses were awaited after the window is not recorded.
    let durations = [result.window_ns, result.window_ns, 0].map(go_duration);
    let mut text = String::new();
    for (name, columns, figures) in [
        ("Requests", "[total, rate, throughput]", rates),
        ("Duration", "[total, attack, wait]", durations.join(", ")),
        (
            "Latencies",
            "[min, mean, 50, 90, 95, 99, max]",
            latencies(&result.response),
        ),
        ("Bytes In", "[total, mean]", mean(result.bytes_received)),
        ("Bytes Out", "[total, mean]", mean(result.bytes_sent)),
        (
            "Success",
            "[ratio]",
            format!("{:.2}%", 100.0 * load.success_share()),
        ),
        ("Status Codes", "[code:count]", codes(load)),
    ] {
        let _ = writeln!(text, "{name:<14}{columns:<34}{figures}");
    }
    text.push_str("Error Set:\n");
    text.push_str(&errors(result));
    text
}

fn latencies(response: &LatencyHistogram) -> String {
    let at = |quantile| response.quantile_ns(quantile).unwrap_or(0);
    let least = response.buckets().next().map_or(0, |(value, _)| value);
    let mean = response.mean_ns().unwrap_or(0.0) as u64;
    let most = response.max_ns().unwrap_or(0);
    [least, mean, at(0.5), at(0.9), at(0.95), at(0.99), most]
        .map(go_duration)
        .join(", ")
}

/// A line for each kind of error and each status that is one.
fn errors(result: &LoadResult) -> String {
    let kinds = result.errors.by_kind().into_iter();
    let counted = kinds
        .map(|(kind, count)| (kind.to_string(), count))
        .chain([("no response".to_owned(), result.unanswered)])
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{kind} ({count})\n"));
    let statuses = result.status.keys();
    let bad = statuses.filter(|status| !(200..400).contains(*status));
    counted
        .chain(bad.map(|status| format!("{status}\n")))
        .collect()
}

/// Each followed by two spaces; requests without a response count as status 0.
fn codes(load: &FinishedLoad) -> String {
    let result = &load.result;
    let without = load.without_response();
    let none = (without > 0).then_some((0, without));
    none.into_iter()
        .chain(
            result
                .status
                .iter()
                .map(|(status, count)| (*status, *count)),
        )
        .fold(String::new(), |mut text, (status, count)| {
            let _ = write!(text, "{status}:{count}  ");
            text
        })
}

const SECOND_NS: u64 = 1_000_000_000;

/// As Go formats a duration that Vegeta rounded: to a thousandth of its largest unit below a minute, to a second above.
fn go_duration(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0 => return "0s".into(),
        1..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..SECOND_NS => (1_000_000, "ms"),
        _ if ns < 60 * SECOND_NS => (SECOND_NS, "s"),
        _ => return minutes(ns),
    };
    let thousandths = ns.saturating_add(unit_ns / 2000) / (unit_ns / 1000);
    let (whole, rest) = (thousandths / 1000, thousandths % 1000);
    let fraction = format!("{rest:03}");
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{unit}"),
        digits => format!("{whole}.{digits}{unit}"),
    }
}

fn minutes(ns: u64) -> String {
    let seconds = (ns + SECOND_NS / 2) / SECOND_NS;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}m{seconds}s"),
        hours => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;

    use super::*;

    #[test]
    fn output_matches_the_format_of_vegeta() {
        insta::assert_snapshot!(write(&finished(|_, _| {})));
    }

    #[test]
    fn durations_are_formatted_as_in_go() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (94_390, "94.39µs"),
            (60_269, "60.269µs"),
            (998_444_690, "998.445ms"),
            (2_355_963, "2.356ms"),
            (1_000_000_000, "1s"),
            (9_999_700_000, "10s"),
            (1_500_000_000, "1.5s"),
            (300_000_000_000, "5m0s"),
            (3_725_400_000_000, "1h2m5s"),
        ] {
            assert_eq!(go_duration(ns), text);
        }
    }

    #[test]
    fn load_without_responses_has_a_success_ratio_of_zero() {
        let text = write(&finished(|_, result| *result = Default::default()));
        assert!(
            text.contains("Success       [ratio]                           0.00%"),
            "{text}"
        );
    }
}
