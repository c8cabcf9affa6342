//! Sizes: `1 KiB`, `64 kB`, `1024`.

use super::error::{ValueError, quoted};
use super::number;

const EXAMPLE: &str = "1 KiB, 64 kB or 512 B";

/// Units in lower case, in bytes.
const UNITS: [(&str, f64); 7] = [
    ("", 1.0),
    ("b", 1.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("kib", 1024.0),
    ("mib", 1024.0 * 1024.0),
    ("k", 1024.0),
];

/// A size in bytes: `1 KiB`, `64 kB`, `1 MiB`, `1024`.
///
/// # Errors
/// If the number is missing, negative or not whole bytes, or the unit is unknown.
pub fn size_bytes(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = number::with_unit(text, "a size", EXAMPLE)?;
    let lower = unit.to_lowercase();
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == lower) else {
        return Err(ValueError::new(
            format!("`{}` has the unknown unit `{}`", quoted(text), quoted(unit)),
            format!("use B, kB, KiB, MB or MiB, as in {EXAMPLE}"),
        ));
    };
    whole_bytes(text, number * scale)
}

fn whole_bytes(text: &str, bytes: f64) -> Result<u64, ValueError> {
    if bytes < 0.0 || bytes.fract() != 0.0 {
        let fix = format!("write a size of zero or more, as in {EXAMPLE}");
        return Err(ValueError::not(text, "a whole number of bytes", fix));
    }
    Ok(bytes as u64)
}

/// The size of a response's body: up to 64 MiB.
pub(crate) fn response_bytes(text: &str) -> Result<u32, ValueError> {
    response(size_bytes(text)?)
}

fn response(bytes: u64) -> Result<u32, ValueError> {
    const MAX: u32 = 64 * 1024 * 1024;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes <= MAX => Ok(bytes),
        _ => Err(ValueError::new(
            format!("{bytes} bytes are out of range"),
            "allowed: 0 B to 64 MiB, as in 1 KiB",
        )),
    }
}

/// The size of a response's body in isotope's notation, whose units are binary: `16 KB` and `16K` are 16 KiB.
pub(crate) fn isotope_response_bytes(text: &str) -> Result<u32, ValueError> {
    let (number, unit) = number::with_unit(text, "a size", "16 KB or 512")?;
    let scale = match unit
        .to_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024.0 * 1024.0,
        _ => {
            return Err(ValueError::new(
                format!("`{}` has the unknown unit `{}`", quoted(text), quoted(unit)),
                "use B, KB or MB, as in 16 KB",
            ));
        }
    };
    response(whole_bytes(text, number * scale)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        assert_eq!(size_bytes("1 KiB"), Ok(1024));
        assert_eq!(size_bytes("1024"), Ok(1024));
        assert_eq!(size_bytes("1.5 kB"), Ok(1500));
        assert_eq!(size_bytes("2MiB"), Ok(2 * 1024 * 1024));
        for (text, bytes) in [
            ("16 KB", 16384),
            ("16K", 16384),
            ("1 MiB", 1 << 20),
            ("7", 7),
        ] {
            assert_eq!(isotope_response_bytes(text), Ok(bytes), "{text}");
        }
        assert!(isotope_response_bytes("1 GB").is_err());
    }
}
