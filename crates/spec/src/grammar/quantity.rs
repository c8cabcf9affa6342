//! CPU and memory of containers, as Kubernetes writes them: `2`, `500m`, `256Mi`.

use super::error::{ValueError, quoted};
use super::number;

/// More cores than a node has.
const MAX_CPU_MILLIS: f64 = 1_024_000.0;

/// Units of memory, in bytes.
const UNITS: [(&str, f64); 8] = [
    ("", 1.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
];

/// CPU in thousandths of a core: `2`, `0.5`, `500m`.
pub(crate) fn cpu_millis(text: &str) -> Result<u64, ValueError> {
    const EXAMPLE: &str = "2 or 500m";
    let (value, unit) = number::with_unit(text, "an amount of CPU", EXAMPLE)?;
    // 1.001 × 1000 is not exactly 1001.
    let millis = match unit {
        "" => (value * 1e9).round() / 1e6,
        "m" => value,
        unit => return Err(unknown_unit(text, unit, "cores, or m", EXAMPLE)),
    };
    match millis.fract() == 0.0 && (1.0..=MAX_CPU_MILLIS).contains(&millis) {
        true => Ok(millis as u64),
        false => Err(ValueError::out_of_range(text, "1m to 1024, as in 500m")),
    }
}

/// Memory in bytes: `256Mi`, `1G`.
pub(crate) fn memory_bytes(text: &str) -> Result<u64, ValueError> {
    const EXAMPLE: &str = "256Mi or 1Gi";
    let (value, unit) = number::with_unit(text, "an amount of memory", EXAMPLE)?;
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(
            text,
            unit,
            "k, M, G, Ki, Mi, Gi or Ti",
            EXAMPLE,
        ));
    };
    let bytes = value * scale;
    // Less than a page, or more than a float counts exactly.
    match bytes.fract() == 0.0 && (4096.0..=9e15).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err(ValueError::out_of_range(text, "4Ki to 8192Ti, as in 256Mi")),
    }
}

fn unknown_unit(text: &str, unit: &str, known: &str, example: &str) -> ValueError {
    ValueError::new(
        format!("`{}` has the unknown unit `{}`", quoted(text), quoted(unit)),
        format!("use {known}, as in {example}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for (text, millis) in [
            ("2", 2000),
            ("0.5", 500),
            ("500m", 500),
            ("1.001", 1001),
            ("1", 1000),
        ] {
            assert_eq!(cpu_millis(text), Ok(millis), "{text}");
        }
        for (text, bytes) in [("256Mi", 256 << 20), ("1G", 1_000_000_000), ("8192", 8192)] {
            assert_eq!(memory_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["0", "-1", "0.5m", "2 cores", "", "1e99"] {
            assert!(cpu_millis(text).is_err(), "{text}");
        }
        for text in ["0", "1m", "256 MiB", "0.3", "99999Ti"] {
            assert!(memory_bytes(text).is_err(), "{text}");
        }
    }
}
