//! The HTML report in a browser, at common widths and in both color schemes.
//!
//! These tests need Chromium and axe-core (from npm): they are skipped where these are missing, except in CI, which
//! installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::stores::{STORED, copied};
use crate::support::{Finished, Scratch, beside_others, finish, manifest, meshtax, skipped};

/// The environment variable with the path of `axe.min.js`; without it, npm downloads axe-core.
const AXE: &str = "MESHTAX_AXE";
const AXE_PACKAGE: &str = "axe-core@4";

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version");
    command.output().is_ok_and(|output| output.status.success())
}

/// Chromium's name, and the path of axe-core; `None`: reported as skipped.
fn browser_and_axe(scratch: &Scratch) -> Option<(&'static str, PathBuf)> {
    let missing = |what: &str| {
        assert!(std::env::var_os("CI").is_none(), "CI has no {what}");
        skipped("the page in a browser", &format!("{what} is not available"));
    };
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| is_there(name))
    else {
        missing("Chromium");
        return None;
    };
    if let Some(path) = std::env::var_os(AXE) {
        return Some((browser, path.into()));
    }
    if !is_there("npm") {
        missing("npm");
        return None;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-save", "--prefix"])
        .arg(scratch.path("axe"))
        .arg(AXE_PACKAGE);
    let installed = finish(npm);
    if installed.code != 0 {
        missing(&format!("axe-core (npm: {})", installed.stderr.trim()));
        return None;
    }
    let path = scratch.path("axe").join("node_modules/axe-core/axe.min.js");
    Some((browser, path))
}

/// The page with axe in an iframe of this width: browser windows have a minimum width, iframes do not.
fn framed(scratch: &Scratch, page: &str, axe: &str, width: u32) -> PathBuf {
    const AUDIT: &str = r#"
        axe.run({ resultTypes: ["violations"] }).then((found) => parent.postMessage(JSON.stringify({
            dark: matchMedia("(prefers-color-scheme: dark)").matches,
            width: document.documentElement.clientWidth,
            needed: document.documentElement.scrollWidth,
            violations: found.violations.map((v) => [v.impact, v.id, v.nodes[0].html.slice(0, 300)]),
        }), "*"));"#;
    const RECEIVE: &str = r#"
        addEventListener("message", (event) => {
            const result = document.createElement("pre");
            result.id = "result";
            result.textContent = event.data;
            document.body.append(result);
        });"#;
    let audited = page.replace(
        "</body>",
        &format!("<script>{axe}</script><script>{AUDIT}</script></body>"),
    );
    scratch.write("audited.html", &audited);
    scratch.write(
        "frame.html",
        &format!(
            "<!DOCTYPE html><title>frame</title><meta name=color-scheme content='light dark'>\
             <body><script>{RECEIVE}</script><iframe src=audited.html width={width} height=2000></iframe></body>"
        ),
    )
}

/// The result of axe, and the browser's console messages.
fn browse(browser: &str, scratch: &Scratch, page: &Path, dark: bool) -> (Value, String) {
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--enable-logging=stderr",
            "--virtual-time-budget=60000",
            "--window-size=1500,2100",
        ])
        .arg(format!(
            "--blink-settings=preferredColorScheme={}",
            u8::from(!dark)
        ))
        .arg(format!(
            "--user-data-dir={}",
            scratch.path("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()));
    let Finished {
        code,
        stdout,
        stderr,
    } = finish(command);
    assert_eq!(code, 0, "{stderr}");
    let result = stdout
        .split_once("<pre id=\"result\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .unwrap_or_else(|| panic!("no result: {stderr}"));
    let text = result
        .0
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    let console: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    (
        serde_json::from_str(&text).expect("JSON"),
        console.join("\n"),
    )
}

/// Reports the stored run, at a load that a study published, with the study's figures.
fn beside_published(scratch: &Scratch, more: &[&str]) -> Finished {
    let run = scratch.path("run");
    if !run.is_dir() {
        let path = copied(scratch).join("manifest.json");
        let mut manifest = manifest(&run);
        let load = &mut manifest["experiment"]["load_points"][0]["load"];
        let rate = load.pointer_mut("/rate_per_s").expect("a steady rate");
        *rate = Value::from(160.0);
        fs::write(path, manifest.to_string()).expect("a manifest");
    }
    let mut arguments = vec!["report", run.to_str().expect("UTF-8")];
    arguments.extend(["--published", "ambient-rates"]);
    arguments.extend(more);
    finish(meshtax(scratch, &arguments))
}

#[test]
fn published_figures_appear_only_on_request() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let page = beside_published(&scratch, &["--format", "html"]);
    assert_eq!(page.code, 0, "{page:?}");
    for expected in [
        "<section id=\"beside-published\">",
        "160 requests/s",
        "0.455 ms",
        "mTLS + L4",
    ] {
        assert!(page.stdout.contains(expected), "{expected}");
    }
    let table = beside_published(&scratch, &[]);
    assert!(table.stdout.contains("mTLS + L4"), "{table:?}");
    // Without the option they are absent.
    let plain = finish(meshtax(&scratch, &["report", STORED, "--format", "html"]));
    assert!(!plain.stdout.contains("beside-published"));
    for form in ["json", "csv"] {
        let finished = beside_published(&scratch, &["--format", form]);
        assert_eq!(finished.code, 2, "{finished:?}");
        assert!(finished.stderr.contains("--published"), "{finished:?}");
    }
    let finished = finish(meshtax(
        &scratch,
        &["report", STORED, "--published", "ambient-rate"],
    ));
    assert_eq!(finished.code, 2, "{finished:?}");
    assert!(finished.stderr.contains("ambient-rates"), "{finished:?}");
}

#[test]
fn page_is_accessible() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let Some((browser, axe)) = browser_and_axe(&scratch) else {
        return;
    };
    let axe = fs::read_to_string(axe).expect("axe-core's file");
    let finished = beside_published(&scratch, &["--format", "html"]);
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(
        finished.stdout.contains("beside-published"),
        "with all charts"
    );
    for width in [1440, 390] {
        for dark in [false, true] {
            let page = framed(&scratch, &finished.stdout, &axe, width);
            let (found, console) = browse(browser, &scratch, &page, dark);
            assert_eq!(found["dark"], dark, "the browser has the wrong colors");
            assert!(console.is_empty(), "{console}");
            let (has, needs) = (found["width"].as_u64(), found["needed"].as_u64());
            assert!(
                needs <= has,
                "at {width}: {needs:?} pixels needed, {has:?} available"
            );
            let violations = found["violations"].as_array().expect("a list");
            let serious: Vec<&Value> = violations
                .iter()
                .filter(|v| v[0] == "serious" || v[0] == "critical")
                .collect();
            assert!(serious.is_empty(), "at {width}, dark {dark}: {serious:#?}");
        }
    }
}

#[test]
fn axe_detects_known_violations() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let Some((browser, axe)) = browser_and_axe(&scratch) else {
        return;
    };
    let axe = fs::read_to_string(axe).expect("axe-core's file");
    let bad = "<!DOCTYPE html><html><body><img src='data:,'><p style='color:#eee;background:#fff'>pale</p></body></html>";
    let page = framed(&scratch, bad, &axe, 390);
    let (found, _) = browse(browser, &scratch, &page, false);
    let text = found["violations"].to_string();
    assert!(
        text.contains("color-contrast") && text.contains("image-alt"),
        "{text}"
    );
}

#[test]
fn page_is_smaller_than_1500_kb() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let finished = finish(meshtax(&scratch, &["report", STORED, "--format", "html"]));
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(
        finished.stdout.len() < 1_500_000,
        "{} bytes",
        finished.stdout.len()
    );
}

#[test]
fn report_writes_charts_and_csv_files() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let document = scratch.path("out.md");
    let text = document.display().to_string();
    let finished = finish(meshtax(
        &scratch,
        &["report", STORED, "--format", "markdown", "--out", &text],
    ));
    assert_eq!(finished.code, 0, "{finished:?}");
    let written = fs::read_to_string(&document).expect("the document");
    let pictures = scratch.path("out-pictures");
    for name in ["added-latency.svg", "percentiles.svg", "memory.svg"] {
        assert!(
            written.contains(&format!("(<out-pictures/{name}>)")),
            "{name} is not included"
        );
        assert!(pictures.join(name).is_file(), "{name} is missing");
    }
    let sheets = scratch.path("sheets");
    let finished = finish(meshtax(
        &scratch,
        &[
            "report",
            STORED,
            "--format",
            "csv",
            "--out",
            &sheets.display().to_string(),
        ],
    ));
    assert_eq!(finished.code, 0, "{finished:?}");
    for name in ["overheads.csv", "percentiles.csv", "cpu-over-time.csv"] {
        let text = fs::read_to_string(sheets.join(name)).expect(name);
        assert!(text.lines().count() > 1, "{name} is empty");
    }
    let finished = finish(meshtax(
        &scratch,
        &["report", STORED, "--out", "/proc/nowhere/x"],
    ));
    assert_eq!(finished.code, 11, "{finished:?}");
}

#[test]
fn report_publishes_a_page_with_its_pictures_and_data() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let directory = scratch.path("published");
    let text = directory.display().to_string();
    let finished = finish(meshtax(&scratch, &["report", STORED, "--publish", &text]));
    assert_eq!(finished.code, 0, "{finished:?}");
    let page = fs::read_to_string(directory.join("report.md")).expect("the page");
    for heading in [
        "## Environment",
        "## Steps and their durations",
        "## Iterations",
    ] {
        assert!(page.contains(heading), "{heading}: {page}");
    }
    let pictures = fs::read_dir(directory.join("pictures")).expect("pictures");
    for picture in pictures {
        let name = picture.expect("a file").file_name();
        let link = format!("(<pictures/{}>)", name.display());
        assert!(page.contains(&link), "{link}");
    }
    assert!(directory.join("data/cpu-over-time.csv").is_file());
    let both = ["report", STORED, "--publish", &text, "--format", "json"];
    assert_eq!(finish(meshtax(&scratch, &both)).code, 2);
    let nowhere = ["report", STORED, "--publish", "/proc/nowhere/x"];
    let finished = finish(meshtax(&scratch, &nowhere));
    assert_eq!(finished.code, 11, "{finished:?}");
    assert!(finished.stderr.contains("--publish"), "{finished:?}");
}

#[test]
fn watch_of_a_completed_run_ends() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let finished = finish(meshtax(
        &scratch,
        &["report", &run.display().to_string(), "--watch"],
    ));
    assert_eq!(finished.code, 0, "{finished:?}");
    assert!(finished.stdout.contains("Steady"), "{finished:?}");
    assert!(run.join("report.html").is_file());
}
