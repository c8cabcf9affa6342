//! Numbers as people read them: grouped digits, sensible precision, one unit per column.

use meshtax_model::analysis::{Estimate, Interval};
use time::OffsetDateTime;

/// The placeholder for a missing figure.
pub(crate) const MISSING: &str = "-";

/// A unit that figures of one column share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    /// What a value is multiplied with.
    pub(crate) factor: f64,
    /// What is printed.
    pub(crate) name: &'static str,
}

/// Latency in microseconds.
pub(crate) const MICROSECONDS: Unit = Unit {
    factor: 1e-3,
    name: "µs",
};
/// Latency in milliseconds.
pub(crate) const MILLISECONDS: Unit = Unit {
    factor: 1e-6,
    name: "ms",
};
/// Nanoseconds per request, as milliseconds per 1,000 requests.
pub(crate) const CPU_MS_PER_1K: Unit = Unit {
    factor: 1e-3,
    name: "ms/1k",
};
/// A share, in percent.
pub(crate) const PERCENT: Unit = Unit {
    factor: 100.0,
    name: "%",
};
/// Bytes in MiB.
pub(crate) const MIB: Unit = Unit {
    factor: 1.0 / (1024.0 * 1024.0),
    name: "MiB",
};

/// A share of one core, in thousandths.
pub(crate) const MILLICORES: Unit = Unit {
    factor: 1e3,
    name: "mcores",
};

/// Beyond this, digits are not meaningful to a reader.
const LARGEST_PLAIN: f64 = 1e15;

/// `12345.6` with one decimal is `12,345.6`.
pub(crate) fn grouped(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return MISSING.to_owned();
    }
    if value.abs() >= LARGEST_PLAIN {
        return format!("{value:.1e}");
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('-');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// As [`grouped`], with `+` before what is above zero when rounded.
pub(crate) fn signed(value: f64, decimals: usize) -> String {
    let text = grouped(value, decimals);
    let above_zero = value > 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    if above_zero { format!("+{text}") } else { text }
}

/// Three significant digits, at most two decimals.
pub(crate) fn decimals_by_size(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    }
}

/// As many decimals as the interval's half width carries: one significant digit of it, two
/// when the first is a 1.
pub(crate) fn decimals_by_interval(value: f64, interval: Option<Interval>) -> usize {
    let Some(interval) = interval else {
        return decimals_by_size(value);
    };
    let half_width = (interval.high - interval.low) / 2.0;
    if !half_width.is_finite() || half_width <= 0.0 {
        return decimals_by_size(value);
    }
    if value.abs() >= 1000.0 {
        return 0;
    }
    // Clamped to a range in which the cast is exact.
    (-(half_width / 2.0).log10()).ceil().clamp(0.0, 3.0) as usize
}

/// Two digits that count: `1.7`, `0.014`, `117`.
pub(crate) fn two_digits(value: f64) -> String {
    grouped(value, decimals_of_three(value).saturating_sub(1))
}

/// Three digits that count, as many decimals as that takes.
pub(crate) fn three_digits(value: f64) -> String {
    grouped(value, decimals_of_three(value))
}

/// Decimals for three digits that count.
pub(crate) fn decimals_of_three(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        v if v >= 0.001 => 5,
        v if v > 0.0 => 6,
        _ => 0,
    }
}

/// Decimals for a whole column of levels: two significant digits for the smallest.
pub(crate) fn decimals_of_column(values: impl Iterator<Item = f64>) -> usize {
    let smallest = values
        .filter(|v| v.is_finite() && *v > 0.0)
        .fold(f64::INFINITY, f64::min);
    match smallest {
        v if v >= 10.0 => 0,
        v if v >= 1.0 => 1,
        v if v >= 0.1 => 2,
        _ => 3,
    }
}

/// `(+495, [480, 510])`, in the given unit.
pub(crate) fn estimate(estimate: Estimate, unit: Unit) -> (String, Option<String>) {
    let scaled = scale(estimate, unit);
    let decimals = decimals_by_interval(scaled.value, scaled.interval);
    let interval = scaled.interval.map(|i| interval_text(i, decimals));
    (signed(scaled.value, decimals), interval)
}

/// `[480, 510]`.
pub(crate) fn interval_text(interval: Interval, decimals: usize) -> String {
    format!(
        "[{}, {}]",
        grouped(interval.low, decimals),
        grouped(interval.high, decimals)
    )
}

/// The same estimate in another unit.
pub(crate) fn scale(estimate: Estimate, unit: Unit) -> Estimate {
    Estimate {
        value: estimate.value * unit.factor,
        interval: estimate.interval.map(|i| scale_interval(i, unit)),
    }
}

/// The same interval in another unit.
pub(crate) fn scale_interval(interval: Interval, unit: Unit) -> Interval {
    Interval {
        low: interval.low * unit.factor,
        high: interval.high * unit.factor,
    }
}

/// The unit in which a time of this size reads well in a sentence.
pub(crate) fn time_unit(value_ns: f64) -> Unit {
    if value_ns.abs() >= 100_000.0 {
        MILLISECONDS
    } else {
        MICROSECONDS
    }
}

/// A time in a sentence, without its sign: `0.49 ms`, and the interval in the same unit.
///
/// The interval keeps the estimate's sign convention: both are turned when `flip`.
pub(crate) fn time_in_words(value: Estimate, flip: bool) -> (String, Option<String>) {
    let unit = time_unit(value.value);
    let mut scaled = scale(value, unit);
    if flip {
        scaled = Estimate {
            value: -scaled.value,
            interval: scaled.interval.map(|i| Interval {
                low: -i.high,
                high: -i.low,
            }),
        };
    }
    let by_size = match scaled.value.abs() {
        v if unit == MICROSECONDS && v >= 10.0 => 0,
        v if unit == MICROSECONDS && v >= 1.0 => 1,
        v if unit == MICROSECONDS => decimals_by_size(v),
        v => decimals_by_size(v),
    };
    // Never so few decimals that the interval's ends read the same.
    let decimals = match scaled.interval {
        Some(i) if interval_collapses(i, by_size) => {
            decimals_by_interval(scaled.value, scaled.interval)
        }
        _ => by_size,
    };
    let text = format!("{} {}", grouped(scaled.value, decimals), unit.name);
    (text, scaled.interval.map(|i| interval_text(i, decimals)))
}

fn interval_collapses(interval: Interval, decimals: usize) -> bool {
    grouped(interval.low, decimals) == grouped(interval.high, decimals)
}

/// `1 h 05 min`, `4 min 02 s`, `12 s`, `0.5 s`.
pub(crate) fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..=9 => format!("{} s", trimmed(ns as f64 / 1e9)),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// At most two decimals, without zeros at the end.
pub(crate) fn trimmed(value: f64) -> String {
    let text = grouped(value, 2);
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

/// `1 KiB`, `300 bytes`.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        n if n >= 1 << 30 => format!("{} GiB", trimmed(n as f64 / f64::from(1 << 30))),
        n if n >= 1 << 20 => format!("{} MiB", trimmed(n as f64 / f64::from(1 << 20))),
        n if n >= 1 << 10 => format!("{} KiB", trimmed(n as f64 / f64::from(1 << 10))),
        n => format!("{n} bytes"),
    }
}

/// `2026-11-21 11:30 UTC`.
pub(crate) fn date_utc(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(0);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute())
}

/// `1`, `1-3`, `0, 2`.
pub(crate) fn cores(cores: &[u32]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for core in sorted {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(core) => *last = core,
            _ => runs.push((core, core)),
        }
    }
    let texts: Vec<String> = runs
        .iter()
        .map(|(first, last)| {
            if first == last {
                format!("{first}")
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    texts.join(", ")
}

/// `core` or `cores`.
pub(crate) fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            value,
            interval: Some(Interval { low, high }),
        }
    }

    #[test]
    fn digits_are_grouped_and_zero_has_no_sign() {
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(-999.96, 1), "-1,000.0");
        assert_eq!(grouped(-0.04, 1), "0.0");
        assert_eq!(signed(0.04, 1), "0.0");
        assert_eq!(signed(12.0, 0), "+12");
        assert_eq!(grouped(f64::NAN, 1), "-");
        assert_eq!(grouped(1e300, 0), "1.0e300");
    }

    #[test]
    fn interval_width_determines_the_decimals() {
        let wide = estimate(with(495_123.0, 480_400.0, 509_900.0), MICROSECONDS);
        assert_eq!(wide, ("+495".into(), Some("[480, 510]".into())));
        let narrow = estimate(with(62_440.0, 61_840.0, 63_040.0), MICROSECONDS);
        assert_eq!(narrow, ("+62.4".into(), Some("[61.8, 63.0]".into())));
    }

    #[test]
    fn sentence_figures_have_a_suitable_unit() {
        let (text, interval) = time_in_words(with(494_000.0, 471_000.0, 512_000.0), false);
        assert_eq!(
            (text.as_str(), interval.as_deref()),
            ("0.49 ms", Some("[0.47, 0.51]"))
        );
        let (text, interval) = time_in_words(with(-62_400.0, -63_000.0, -61_000.0), true);
        assert_eq!(
            (text.as_str(), interval.as_deref()),
            ("62 µs", Some("[61, 63]"))
        );
    }

    #[test]
    fn dates_durations_and_cores() {
        assert_eq!(date_utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_utc(1_709_210_096_000), "2024-02-29 12:34 UTC");
        assert_eq!(duration(242_000_000_000), "4 min 02 s");
        assert_eq!(duration(500_000_000), "0.5 s");
        assert_eq!(cores(&[3, 1, 2, 7]), "1-3, 7");
        assert_eq!(bytes(1024), "1 KiB");
    }
}
