//! Files that describe a load: lists of requests, send times to replay, bodies, certificates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use meshtax_load::Request;
use serde::Deserialize;
use thiserror::Error;

use super::url::{Url, UrlError};
use crate::args::load::hex_bytes;
use crate::exit::{Failure, USAGE};

/// A file's bytes.
///
/// # Errors
/// With [`USAGE`], the flag and the file named.
pub(super) fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|e| {
        let problem = format!("{flag}: cannot read {}: {e}", path.display());
        Failure::with_fix(USAGE, problem, "name a file that can be read")
    })
}

/// The same as text.
///
/// # Errors
/// As [`read`], and for what is not UTF-8.
pub(super) fn read_text(flag: &str, path: &Path) -> Result<String, Failure> {
    String::from_utf8(read(flag, path)?).map_err(|_| {
        let problem = format!("{flag}: {} is not UTF-8 text", path.display());
        Failure::with_fix(USAGE, problem, "name a text file")
    })
}

/// One entry of a list of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default = "one")]
    weight: u32,
    #[serde(default = "get")]
    method: String,
    #[serde(default = "root")]
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    /// For what is no text.
    #[serde(default)]
    body_hex: Option<String>,
}

fn one() -> u32 {
    1
}

fn get() -> String {
    "GET".into()
}

fn root() -> String {
    "/".into()
}

/// What is wrong with a list of requests.
#[derive(Debug, Error)]
enum ListError {
    #[error("{0}")]
    Yaml(String),
    #[error("it has no requests")]
    Empty,
    #[error("request {number}: {problem}")]
    Request { number: usize, problem: BodyError },
    #[error("line {number}: {problem}")]
    Line { number: usize, problem: LineError },
}

/// What is wrong with a request's body.
#[derive(Debug, Error)]
enum BodyError {
    #[error("both body and body_hex are set")]
    Both,
    #[error("body_hex is not hexadecimal")]
    NotHexadecimal,
}

/// What is wrong with a line of a text of paths.
#[derive(Debug, Error)]
enum LineError {
    #[error("`{0}` is not a path")]
    NotAPath(String),
    #[error("{url}: {problem}")]
    Url { url: String, problem: UrlError },
    #[error("{url} is not at {target}: a load has one target")]
    OtherTarget { url: String, target: String },
}

/// What is wrong with a list of send times.
#[derive(Debug, Error, PartialEq)]
enum ReplayError {
    #[error("it has no times")]
    Empty,
    #[error("line {line}: `{text}` is not a time")]
    NotATime { line: usize, text: String },
    #[error("line {line}: {text} is before the line above")]
    OutOfOrder { line: usize, text: String },
}

/// The form of a list, for messages.
const LIST: &str = "give a YAML or JSON list of {weight, method, path, headers, body or body_hex}, \
                    or a text with a path a line, as in `/a` or `GET /a`";

/// The requests in a file; those of a text have weight 1.
///
/// # Errors
/// With [`USAGE`], the file and, if available, the line.
pub(super) fn requests(path: &Path, url: &Url) -> Result<Vec<Request>, Failure> {
    let text = read_text("--requests", path)?;
    let requests = if is_list(path, &text) {
        from_list(&text, url)
    } else {
        from_lines(&text, url)
    };
    let requests = match requests {
        Ok(requests) if requests.is_empty() => Err(ListError::Empty),
        other => other,
    };
    requests.map_err(|problem| {
        let message = format!("--requests: {}: {problem}", path.display());
        Failure::with_fix(USAGE, message, LIST)
    })
}

/// Whether it is YAML or JSON: its name says so, or it begins as a list does.
fn is_list(path: &Path, text: &str) -> bool {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    let first = text.lines().map(str::trim).find(|l| !is_nothing(l));
    ["yaml", "yml", "json"].contains(&ending)
        || first.is_some_and(|line| line.starts_with('[') || line.starts_with('-'))
}

fn is_nothing(line: &str) -> bool {
    line.is_empty() || line.starts_with('#')
}

fn from_list(text: &str, url: &Url) -> Result<Vec<Request>, ListError> {
    let entries: Vec<Entry> = serde_saphyr::from_str(text).map_err(|e| {
        let message = e.to_string();
        ListError::Yaml(message.lines().next().unwrap_or_default().to_owned())
    })?;
    entries
        .into_iter()
        .zip(1..)
        .map(|(entry, number)| {
            request(entry, url).map_err(|problem| ListError::Request { number, problem })
        })
        .collect()
}

fn request(entry: Entry, url: &Url) -> Result<Request, BodyError> {
    let body = match entry.body_hex {
        None => entry.body.into_bytes(),
        Some(_) if !entry.body.is_empty() => return Err(BodyError::Both),
        Some(digits) => hex_bytes(&digits).ok_or(BodyError::NotHexadecimal)?,
    };
    Ok(Request {
        weight: entry.weight,
        method: entry.method,
        path: entry.path,
        headers: entry.headers.into_iter().collect(),
        body,
        ..Request::get(url.authority.clone())
    })
}

fn from_lines(text: &str, url: &Url) -> Result<Vec<Request>, ListError> {
    let lines = text.lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !is_nothing(line))
        .map(|(line, number)| {
            from_line(line, url).map_err(|problem| ListError::Line { number, problem })
        })
        .collect()
}

/// `/a`, `GET /a`, or the same with the whole URL.
fn from_line(line: &str, url: &Url) -> Result<Request, LineError> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (method, target) = match words.as_slice() {
        [target] => ("GET", *target),
        [method, target] => (*method, *target),
        _ => return Err(LineError::NotAPath(line.escape_debug().to_string())),
    };
    let path = if target.starts_with('/') {
        target.to_owned()
    } else {
        let whole = Url::parse(target).map_err(|problem| LineError::Url {
            url: target.escape_debug().to_string(),
            problem,
        })?;
        if (whole.scheme, &whole.host, whole.port) != (url.scheme, &url.host, url.port) {
            return Err(LineError::OtherTarget {
                url: target.to_owned(),
                target: url.authority.clone(),
            });
        }
        whole.path
    };
    Ok(Request {
        method: method.to_owned(),
        path,
        ..Request::get(url.authority.clone())
    })
}

/// Times to replay, in nanoseconds from the first.
///
/// # Errors
/// With [`USAGE`], the file and the line.
pub(super) fn replay(path: &Path) -> Result<Vec<u64>, Failure> {
    let text = read_text("--replay", path)?;
    times(&text).map_err(|why| {
        let fix = "give one time a line, in order, in seconds or with a unit, as in 0.25 or 250ms";
        Failure::with_fix(USAGE, format!("--replay: {}: {why}", path.display()), fix)
    })
}

fn times(text: &str) -> Result<Vec<u64>, ReplayError> {
    let mut times: Vec<u64> = Vec::new();
    let lines = text.lines().map(str::trim).zip(1..);
    for (text, line) in lines.filter(|(text, _)| !is_nothing(text)) {
        let time = time_ns(text).ok_or_else(|| ReplayError::NotATime {
            line,
            text: text.escape_debug().to_string(),
        })?;
        if times.last().is_some_and(|last| time < *last) {
            let text = text.to_owned();
            return Err(ReplayError::OutOfOrder { line, text });
        }
        times.push(time);
    }
    let first = *times.first().ok_or(ReplayError::Empty)?;
    times.iter_mut().for_each(|time| *time -= first);
    Ok(times)
}

fn time_ns(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return seconds_ns(text);
    }
    meshtax_spec::duration_ns(text).ok()
}

/// Digit by digit: seconds since 1970 with nanoseconds do not fit in a float.
fn seconds_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut ns: u64 = match whole {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    for place in 0..9 {
        let digit = match fraction.as_bytes().get(place) {
            None => 0,
            Some(byte) => char::from(*byte).to_digit(10)?,
        };
        ns = ns.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::read("http://a:8080/").unwrap_or_else(|e| panic!("{e:?}"))
    }

    #[test]
    fn list_is_parsed_from_yaml_or_json() {
        let yaml = "# mixed\n- {path: /a, weight: 3}\n- path: /b\n  method: POST\n  headers: {x-y: z}\n  body: hi\n";
        let requests = from_list(yaml, &url()).unwrap();
        assert_eq!((requests[0].weight, requests[0].path.as_str()), (3, "/a"));
        assert_eq!(requests[1].headers, [("x-y".to_owned(), "z".to_owned())]);
        assert_eq!(
            (requests[1].method.as_str(), requests[1].body.as_slice()),
            ("POST", &b"hi"[..])
        );
        assert_eq!(requests[1].host, "a:8080");
        let json = r#"[{"path": "/a", "weight": 3}, {"path": "/m", "body_hex": "00ff"}]"#;
        let requests = from_list(json, &url()).unwrap();
        assert_eq!(requests[1].body, [0, 255]);
        for wrong in [
            "[{\"pth\": \"/\"}]",
            "- 3",
            "{}",
            "- {body: a, body_hex: '00'}",
            "- {body_hex: z}",
        ] {
            assert!(from_list(wrong, &url()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_with_a_path_per_line_is_parsed() {
        let text = "/a\n\n# comment\nPOST /b?c\nGET http://a:8080/d\n";
        let requests = from_lines(text, &url()).unwrap();
        let of = |r: &Request| format!("{} {}", r.method, r.path);
        let all: Vec<_> = requests.iter().map(of).collect();
        assert_eq!(all, ["GET /a", "POST /b?c", "GET /d"]);
        let other = from_lines("/a\nhttp://b/\n", &url()).unwrap_err();
        let problem = |error: &ListError| {
            matches!(
                error,
                ListError::Line { number: 2, problem: LineError::OtherTarget { url, .. } } if url == "http://b/"
            )
        };
        assert!(problem(&other), "{other}");
        assert!(from_lines("GET /a HTTP/1.1", &url()).is_err());
    }

    #[test]
    fn form_is_recognized_by_name_or_first_line() {
        assert!(is_list(Path::new("a.yaml"), ""));
        assert!(is_list(Path::new("a"), "# x\n\n[{}]"));
        assert!(is_list(Path::new("a"), "- path: /"));
        assert!(!is_list(Path::new("a.txt"), "/a"));
    }

    #[test]
    fn send_times_count_from_the_first() {
        let text = "1732179938.086500507\n1732179938.086500508\n\n# x\n1732179939\n";
        assert_eq!(times(text), Ok(vec![0, 1, 913_499_493]));
        assert_eq!(times("1ms\n2500us\n"), Ok(vec![0, 1_500_000]));
        assert_eq!(times(".5\n1."), Ok(vec![0, 500_000_000]));
        for wrong in [
            "",
            "1\n0.5",
            "x",
            "-1",
            ".",
            "1.2.3",
            "99999999999999999999",
        ] {
            assert!(times(wrong).is_err(), "{wrong}");
        }
        let text = "0".to_owned();
        assert_eq!(
            times("1\n0"),
            Err(ReplayError::OutOfOrder { line: 2, text })
        );
    }
}
