//! Values of `meshtax load`'s options.

use std::path::PathBuf;

use clap::ValueEnum;
use meshtax_spec::ValueError;

/// Bytes of a body. Its own type: clap would treat a list as several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

/// From one rate to another, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ramp {
    pub(crate) from_per_s: f64,
    pub(crate) to_per_s: f64,
}

/// A host and port to connect to instead of the URL's. `None` matches any, or changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectTo {
    pub(crate) from_host: Option<String>,
    pub(crate) from_port: Option<u16>,
    pub(crate) to_host: Option<String>,
    pub(crate) to_port: Option<u16>,
}

/// Formats of exported results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// All results, with a schema
    Json,
    /// HdrHistogram percentiles of response latency, in milliseconds
    Hgrm,
    /// Fortio's result file
    Fortio,
    /// Vegeta's text report
    Vegeta,
    /// One row for each interval
    Csv,
}

/// A format and its destination; `None`: standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) format: ExportFormat,
    pub(crate) path: Option<PathBuf>,
}

pub(super) fn ramp(text: &str) -> Result<Ramp, ValueError> {
    let per_second = meshtax_spec::unbounded_rate_per_s;
    let (from, to) = text.split_once("..").ok_or_else(|| {
        let problem = format!("`{text}` is not a ramp");
        ValueError::new(problem, "write two rates, as in 100..5000")
    })?;
    Ok(Ramp {
        from_per_s: per_second(from)?,
        to_per_s: per_second(to)?,
    })
}

pub(super) fn header(text: &str) -> Result<(String, String), ValueError> {
    let (name, value) = text.split_once(':').ok_or_else(|| {
        let problem = format!("`{text}` is not a header");
        ValueError::new(problem, "write it as 'Name: value'")
    })?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn hex(text: &str) -> Result<Bytes, ValueError> {
    hex_bytes(text).map(Bytes).ok_or_else(|| {
        let fix = "write an even number of hexadecimal digits, as in 0a05776f726c64";
        ValueError::new("this is not hexadecimal", fix)
    })
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

pub(super) fn connect_to(text: &str) -> Result<ConnectTo, ValueError> {
    let parts = outside_brackets(text);
    let [from_host, from_port, to_host, to_port] = parts.as_slice() else {
        let fix =
            "write HOST:PORT:HOST:PORT, as in example.com:443:127.0.0.1:8443; IPv6 in brackets";
        let problem = format!("`{text}` does not have four parts");
        return Err(ValueError::new(problem, fix));
    };
    let host = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let port = |text: &str| match text {
        "" => Ok(None),
        digits => match digits.parse() {
            Ok(0) | Err(_) => {
                let problem = format!("`{digits}` is not a port");
                Err(ValueError::new(problem, "allowed: 1 to 65535"))
            }
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

/// The parts between colons; colons in brackets do not separate, and the brackets are removed.
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

pub(super) fn export(text: &str) -> Result<Export, ValueError> {
    if let Some((format, path)) = text.split_once(':')
        && let Ok(format) = ExportFormat::from_str(format, true)
    {
        return match path {
            "" => Err(ValueError::new(
                "there is no file",
                "name a file after the colon, or - for standard output",
            )),
            "-" => Ok(Export { format, path: None }),
            path => Ok(Export {
                format,
                path: Some(path.into()),
            }),
        };
    }
    // The extension of a file can be the format.
    let ending = text.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ExportFormat::from_str(ending, true) {
        Ok(format) => Ok(Export {
            format,
            path: Some(text.into()),
        }),
        Err(_) => Err(ValueError::new(
            format!("`{text}` has no known format"),
            "write FORMAT:FILE with json, hgrm, fortio, vegeta or csv, as in fortio:result.json",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_has_two_rates() {
        let ramp = ramp("100..5k").unwrap();
        assert_eq!((ramp.from_per_s, ramp.to_per_s), (100.0, 5000.0));
        for invalid in ["100", "100..", "..5", "a..b"] {
            assert!(super::ramp(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn hexadecimal_digits_become_bytes() {
        assert_eq!(hex("0aFF"), Ok(Bytes(vec![10, 255])));
        assert_eq!(hex(""), Ok(Bytes(Vec::new())));
        for invalid in ["0", "0x10", "zz", "ää"] {
            assert!(hex(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn connect_to_replaces_host_and_port() {
        let to = connect_to("example.com:443:[::1]:8443").unwrap();
        assert_eq!(to.from_host.as_deref(), Some("example.com"));
        assert_eq!(to.to_host.as_deref(), Some("::1"));
        assert_eq!((to.from_port, to.to_port), (Some(443), Some(8443)));
        let any = connect_to("::127.0.0.1:80").unwrap();
        assert_eq!((any.from_host, any.from_port), (None, None));
        for invalid in ["", "a:1", "a:1:b:0", "a:1:b:99999", "a:1:b:c:d"] {
            assert!(connect_to(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn an_export_has_a_format_and_a_file() {
        let of = |text| export(text).unwrap();
        assert_eq!(of("fortio:a.json").format, ExportFormat::Fortio);
        assert_eq!(of("fortio:a.json").path, Some("a.json".into()));
        assert_eq!(of("hgrm:-").path, None);
        assert_eq!(of("out/a.hgrm").format, ExportFormat::Hgrm);
        for invalid in ["a.txt", "xml:a", "json:", "", "-"] {
            assert!(export(invalid).is_err(), "{invalid}");
        }
    }
}
