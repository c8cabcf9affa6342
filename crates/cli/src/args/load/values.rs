//! Values of `meshtax load`'s flags. Each error says what to write instead.

use std::path::PathBuf;

use clap::ValueEnum;
use meshtax_model::experiment::Arrivals;

/// Bytes of a body. A type of its own: clap would take a list for several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

/// From one rate to another, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ramp {
    pub(crate) from_per_s: f64,
    pub(crate) to_per_s: f64,
}

/// Connect to another host and port than the URL's. `None` fits any, and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectTo {
    pub(crate) from_host: Option<String>,
    pub(crate) from_port: Option<u16>,
    pub(crate) to_host: Option<String>,
    pub(crate) to_port: Option<u16>,
}

/// Forms that figures are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Everything, with a schema
    Json,
    /// HdrHistogram's percentiles of the response latency, in milliseconds
    Hgrm,
    /// Fortio's result file
    Fortio,
    /// Vegeta's text report
    Vegeta,
    /// The intervals, a row each
    Csv,
}

/// A form and where it goes; `None`: standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) format: ExportFormat,
    pub(crate) path: Option<PathBuf>,
}

/// A length of time in nanoseconds; a plain number is seconds, as hey and oha have it.
pub(super) fn seconds_ns(text: &str) -> Result<u64, String> {
    let Ok(seconds) = text.trim().parse::<f64>() else {
        return super::super::value(meshtax_spec::duration_ns(text));
    };
    if seconds < 0.0 || !seconds.is_finite() {
        return Err("a length of time is zero or more, as in 500ms, 1.5s or 2m".into());
    }
    Ok((seconds * 1e9).round() as u64)
}

/// A number with `k` or `M` after it, perhaps.
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim().replace('_', "");
    let (digits, scale) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        _ => (text.as_str(), 1.0),
    };
    // Rust's own parser also takes `inf` and `nan`.
    let number = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value: f64 = digits.parse().ok().filter(|_| number)?;
    Some(value * scale)
}

/// A number of requests.
pub(super) fn requests(text: &str) -> Result<u64, String> {
    match scaled(text) {
        Some(count) if count >= 1.0 && count.fract() == 0.0 && count < 1e15 => Ok(count as u64),
        _ => Err("write a whole number above 0, as in 300000, 10k or 1M".into()),
    }
}

/// A rate in requests per second.
pub(super) fn per_second(text: &str) -> Result<f64, String> {
    match scaled(text.trim().trim_end_matches("/s")) {
        Some(rate) if rate > 0.0 => Ok(rate),
        _ => Err("write requests per second, a number above 0, as in 1000, 2.5 or 10k".into()),
    }
}

pub(super) fn ramp(text: &str) -> Result<Ramp, String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("write two rates, as in 100..5000")?;
    Ok(Ramp {
        from_per_s: per_second(from)?,
        to_per_s: per_second(to)?,
    })
}

pub(super) fn arrivals(text: &str) -> Result<Arrivals, String> {
    match text {
        "constant" => Ok(Arrivals::Constant),
        "poisson" => Ok(Arrivals::Poisson),
        _ => Err("use constant or poisson".into()),
    }
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'Name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn hex(text: &str) -> Result<Bytes, String> {
    hex_bytes(text)
        .map(Bytes)
        .ok_or_else(|| "write an even number of hexadecimal digits, as in 0a05776f726c64".into())
}

/// Bytes from hexadecimal digits.
pub(crate) fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
}

pub(super) fn connect_to(text: &str) -> Result<ConnectTo, String> {
    let parts = outside_brackets(text);
    let [from_host, from_port, to_host, to_port] = parts.as_slice() else {
        return Err(
            "write HOST:PORT:HOST:PORT, as in example.com:443:127.0.0.1:8443; IPv6 in brackets"
                .into(),
        );
    };
    let host = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let port = |text: &str| match text {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(0) | Err(_) => Err(format!("`{digits}` is no port: use 1 to 65535")),
            Ok(port) => Ok(Some(port)),
        },
    };
    Ok(ConnectTo {
        from_host: host(from_host),
        from_port: port(from_port)?,
        to_host: host(to_host),
        to_port: port(to_port)?,
    })
}

/// The parts between colons; what stands in brackets stays together, without them.
fn outside_brackets(text: &str) -> Vec<String> {
    let (mut parts, mut inside) = (vec![String::new()], false);
    for c in text.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ':' if !inside => parts.push(String::new()),
            c => {
                if let Some(part) = parts.last_mut() {
                    part.push(c);
                }
            }
        }
    }
    parts
}

pub(super) fn export(text: &str) -> Result<Export, String> {
    let formats = "json, hgrm, fortio, vegeta or csv";
    if let Some((format, path)) = text.split_once(':')
        && let Ok(format) = ExportFormat::from_str(format, true)
    {
        return match path {
            "" => Err("name a file after the colon, or - for standard output".into()),
            "-" => Ok(Export { format, path: None }),
            path => Ok(Export {
                format,
                path: Some(path.into()),
            }),
        };
    }
    // A file whose ending is a format's name says enough.
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ExportFormat::from_str(ending, true) {
        Ok(format) => Ok(Export {
            format,
            path: Some(text.into()),
        }),
        Err(_) => Err(format!(
            "write FORMAT:FILE with one of {formats}, as in fortio:result.json"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_have_a_unit() {
        assert_eq!(seconds_ns("30"), Ok(30_000_000_000));
        assert_eq!(seconds_ns("0.5"), Ok(500_000_000));
        assert_eq!(seconds_ns("400ms"), Ok(400_000_000));
        assert_eq!(seconds_ns("0"), Ok(0));
        for wrong in ["-1", "inf", "nan", "", "s", "5 parsecs", "-1s"] {
            assert!(seconds_ns(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_of_requests_and_rates() {
        assert_eq!(requests("300000"), Ok(300_000));
        assert_eq!(requests("10k"), Ok(10_000));
        assert_eq!(requests("1.5M"), Ok(1_500_000));
        for wrong in ["0", "-1", "1.5", "k", "", "inf", "1e30", "ten", "µ"] {
            assert!(requests(wrong).is_err(), "{wrong}");
        }
        assert_eq!(per_second("0.2"), Ok(0.2));
        assert_eq!(per_second("16k/s"), Ok(16_000.0));
        for wrong in ["0", "-5", "NaN", "fast", ""] {
            assert!(per_second(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ramps_have_two_ends() {
        let ramp = ramp("100..5k").unwrap();
        assert_eq!((ramp.from_per_s, ramp.to_per_s), (100.0, 5000.0));
        for wrong in ["100", "100..", "..5", "a..b"] {
            assert!(super::ramp(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_from_hex() {
        assert_eq!(hex("0aFF"), Ok(Bytes(vec![10, 255])));
        assert_eq!(hex(""), Ok(Bytes(Vec::new())));
        for wrong in ["0", "0x10", "zz", "ää"] {
            assert!(hex(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn connecting_elsewhere() {
        let to = connect_to("example.com:443:[::1]:8443").unwrap();
        assert_eq!(to.from_host.as_deref(), Some("example.com"));
        assert_eq!(to.to_host.as_deref(), Some("::1"));
        assert_eq!((to.from_port, to.to_port), (Some(443), Some(8443)));
        let any = connect_to("::127.0.0.1:80").unwrap();
        assert_eq!((any.from_host, any.from_port), (None, None));
        for wrong in ["", "a:1", "a:1:b:0", "a:1:b:99999", "a:1:b:c:d"] {
            assert!(connect_to(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn exports_name_a_format_and_a_file() {
        let of = |text| export(text).unwrap();
        assert_eq!(of("fortio:a.json").format, ExportFormat::Fortio);
        assert_eq!(of("fortio:a.json").path, Some("a.json".into()));
        assert_eq!(of("hgrm:-").path, None);
        assert_eq!(of("out/a.hgrm").format, ExportFormat::Hgrm);
        for wrong in ["a.txt", "xml:a", "json:", "", "-"] {
            assert!(export(wrong).is_err(), "{wrong}");
        }
    }
}
