//! Files that a load is described with: lists of requests, times to replay, bodies, certificates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use meshtax_load::Request;
use serde::Deserialize;

use super::url::Url;
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
        let problem = format!("{flag}: {} is no text in UTF-8", path.display());
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

/// The form of a list, for messages.
const LIST: &str = "give a YAML or JSON list of {weight, method, path, headers, body or body_hex}, \
                    or a text with a path a line, as in `/a` or `GET /a`";

/// The requests in a file; those of a text have weight 1.
///
/// # Errors
/// With [`USAGE`], the file and, where it can be told, the line.
pub(super) fn requests(path: &Path, url: &Url) -> Result<Vec<Request>, Failure> {
    let text = read_text("--requests", path)?;
    let wrong = |why: String| {
        Failure::with_fix(
            USAGE,
            format!("--requests: {}: {why}", path.display()),
            LIST,
        )
    };
    let requests = if is_list(path, &text) {
        from_list(&text, url)
    } else {
        from_lines(&text, url)
    };
    let requests = requests.map_err(wrong)?;
    if requests.is_empty() {
        return Err(wrong("it names no request".into()));
    }
    Ok(requests)
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

fn from_list(text: &str, url: &Url) -> Result<Vec<Request>, String> {
    let entries: Vec<Entry> = serde_saphyr::from_str(text).map_err(|e| {
        let said = e.to_string();
        said.lines().next().unwrap_or_default().to_owned()
    })?;
    entries
        .into_iter()
        .zip(1..)
        .map(|(entry, number)| {
            request(entry, url).map_err(|why| format!("request {number}: {why}"))
        })
        .collect()
}

fn request(entry: Entry, url: &Url) -> Result<Request, String> {
    let body = match entry.body_hex {
        None => entry.body.into_bytes(),
        Some(_) if !entry.body.is_empty() => return Err("it has body and body_hex".into()),
        Some(digits) => hex_bytes(&digits).ok_or("its body_hex is not hexadecimal")?,
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

fn from_lines(text: &str, url: &Url) -> Result<Vec<Request>, String> {
    let lines = text.lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !is_nothing(line))
        .map(|(line, number)| from_line(line, url).map_err(|why| format!("line {number}: {why}")))
        .collect()
}

/// `/a`, `GET /a`, or the same with the whole URL.
fn from_line(line: &str, url: &Url) -> Result<Request, String> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (method, target) = match words.as_slice() {
        [target] => ("GET", *target),
        [method, target] => (*method, *target),
        _ => return Err(format!("`{}` is no path", line.escape_debug())),
    };
    let path = if target.starts_with('/') {
        target.to_owned()
    } else {
        let whole =
            Url::parse(target).map_err(|why| format!("{}: {why}", target.escape_debug()))?;
        if (whole.scheme, &whole.host, whole.port) != (url.scheme, &url.host, url.port) {
            return Err(format!(
                "{target} is not of {}: a load has one target",
                url.authority
            ));
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

fn times(text: &str) -> Result<Vec<u64>, String> {
    let mut times: Vec<u64> = Vec::new();
    let lines = text.lines().map(str::trim).zip(1..);
    for (line, number) in lines.filter(|(line, _)| !is_nothing(line)) {
        let time = time_ns(line)
            .ok_or_else(|| format!("line {number}: `{}` is no time", line.escape_debug()))?;
        if times.last().is_some_and(|last| time < *last) {
            return Err(format!("line {number}: {line} is before the line above"));
        }
        times.push(time);
    }
    let first = *times.first().ok_or("it has no times in it")?;
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
    fn a_list_in_yaml_or_json() {
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
    fn a_path_a_line() {
        let text = "/a\n\n# comment\nPOST /b?c\nGET http://a:8080/d\n";
        let requests = from_lines(text, &url()).unwrap();
        let of = |r: &Request| format!("{} {}", r.method, r.path);
        let all: Vec<_> = requests.iter().map(of).collect();
        assert_eq!(all, ["GET /a", "POST /b?c", "GET /d"]);
        let other = from_lines("/a\nhttp://b/\n", &url()).unwrap_err();
        assert!(
            other.starts_with("line 2: http://b/ is not of a:8080"),
            "{other}"
        );
        assert!(from_lines("GET /a HTTP/1.1", &url()).is_err());
    }

    #[test]
    fn which_form_a_file_has() {
        assert!(is_list(Path::new("a.yaml"), ""));
        assert!(is_list(Path::new("a"), "# x\n\n[{}]"));
        assert!(is_list(Path::new("a"), "- path: /"));
        assert!(!is_list(Path::new("a.txt"), "/a"));
    }

    #[test]
    fn times_from_the_first_on() {
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
        assert_eq!(
            times("1\n0").unwrap_err(),
            "line 2: 0 is before the line above"
        );
    }
}
