//! The page in a real browser, at the widths and in the colors that people have.
//!
//! Chromium and axe-core (by npm) are no part of meshtax: where they are missing these tests say so, but
//! in CI, which brings them, they must run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::stores::{STORED, copied};
use crate::support::{Finished, Scratch, alone, finish, manifest, meshtax, skipped};

/// By which these tests are given the file `axe.min.js`; else npm brings it.
const AXE: &str = "MESHTAX_AXE";
const AXE_PACKAGE: &str = "axe-core@4";

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version");
    command.output().is_ok_and(|output| output.status.success())
}

/// Chromium's name here, and the file of axe-core; `None` says why not.
fn browser_and_axe(scratch: &Scratch) -> Option<(&'static str, PathBuf)> {
    let missing = |what: &str| {
        assert!(std::env::var_os("CI").is_none(), "CI has no {what}");
        skipped("the page in a browser", &format!("there is no {what} here"));
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

/// A page with axe in it, within a frame of a width: a browser's window has a least width, a frame has not.
fn framed(scratch: &Scratch, page: &str, axe: &str, width: u32) -> PathBuf {
    const JUDGE: &str = r#"
        axe.run({ resultTypes: ["violations"] }).then((found) => parent.postMessage(JSON.stringify({
            dark: matchMedia("(prefers-color-scheme: dark)").matches,
            width: document.documentElement.clientWidth,
            needed: document.documentElement.scrollWidth,
            violations: found.violations.map((v) => [v.impact, v.id, v.nodes[0].html.slice(0, 300)]),
        }), "*"));"#;
    const HEAR: &str = r#"
        addEventListener("message", (event) => {
            const told = document.createElement("pre");
            told.id = "told";
            told.textContent = event.data;
            document.body.append(told);
        });"#;
    let judged = page.replace(
        "</body>",
        &format!("<script>{axe}</script><script>{JUDGE}</script></body>"),
    );
    scratch.write("judged.html", &judged);
    scratch.write(
        "frame.html",
        &format!(
            "<!DOCTYPE html><title>frame</title><meta name=color-scheme content='light dark'>\
             <body><script>{HEAR}</script><iframe src=judged.html width={width} height=2000></iframe></body>"
        ),
    )
}

/// What axe and the page told, and what the browser's console said.
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
    let told = stdout
        .split_once("<pre id=\"told\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .unwrap_or_else(|| panic!("the page told nothing: {stderr}"));
    let text = told
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

/// The stored run as one at a load that was published, and what others published beside it.
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
fn what_was_published_is_put_beside_a_run_when_asked_for() {
    let _alone = alone();
    let scratch = Scratch::new();
    let page = beside_published(&scratch, &["--format", "html"]);
    assert_eq!(page.code, 0, "{page:?}");
    for said in [
        "<section id=\"beside-published\">",
        "160 requests/s",
        "published: baseline: 0.455 ms",
        "because it was asked for",
        "Of its 3 loads 2 were not measured here.",
        "Nothing here stands for: mTLS, mTLS + L4",
    ] {
        assert!(page.stdout.contains(said), "{said}");
    }
    let table = beside_published(&scratch, &[]);
    assert!(table.stdout.contains("The study's own table"), "{table:?}");
    // Without being asked for it is nowhere.
    let plain = finish(meshtax(&scratch, &["report", STORED, "--format", "html"]));
    assert!(!plain.stdout.contains("beside-published"));
    for form in ["json", "csv"] {
        let told = beside_published(&scratch, &["--format", form]);
        assert_eq!(told.code, 2, "{told:?}");
        assert!(told.stderr.contains("--published"), "{told:?}");
    }
    let told = finish(meshtax(
        &scratch,
        &["report", STORED, "--published", "ambient-rate"],
    ));
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.stderr.contains("ambient-rates"), "{told:?}");
}

#[test]
fn the_page_is_readable_by_everyone() {
    let _alone = alone();
    let scratch = Scratch::new();
    let Some((browser, axe)) = browser_and_axe(&scratch) else {
        return;
    };
    let axe = fs::read_to_string(axe).expect("axe-core's file");
    let told = beside_published(&scratch, &["--format", "html"]);
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("beside-published"), "it has them all");
    for width in [1440, 390] {
        for dark in [false, true] {
            let page = framed(&scratch, &told.stdout, &axe, width);
            let (found, console) = browse(browser, &scratch, &page, dark);
            assert_eq!(found["dark"], dark, "the browser has the wrong colors");
            assert!(console.is_empty(), "{console}");
            let (has, needs) = (found["width"].as_u64(), found["needed"].as_u64());
            assert!(
                needs <= has,
                "at {width}: {needs:?} pixels are needed, {has:?} are there"
            );
            let violations = found["violations"].as_array().expect("a list");
            let grave: Vec<&Value> = violations
                .iter()
                .filter(|v| v[0] == "serious" || v[0] == "critical")
                .collect();
            assert!(grave.is_empty(), "at {width}, dark {dark}: {grave:#?}");
        }
    }
}

#[test]
fn axe_would_have_found_something() {
    let _alone = alone();
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
fn the_page_of_a_run_is_small() {
    let _alone = alone();
    let scratch = Scratch::new();
    let told = finish(meshtax(&scratch, &["report", STORED, "--format", "html"]));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.len() < 1_500_000, "{} bytes", told.stdout.len());
}

#[test]
fn a_report_is_written_as_files() {
    let _alone = alone();
    let scratch = Scratch::new();
    let document = scratch.path("out.md");
    let text = document.display().to_string();
    let told = finish(meshtax(
        &scratch,
        &["report", STORED, "--format", "markdown", "--out", &text],
    ));
    assert_eq!(told.code, 0, "{told:?}");
    let written = fs::read_to_string(&document).expect("the document");
    let pictures = scratch.path("out-pictures");
    for name in ["added-latency.svg", "percentiles.svg", "memory.svg"] {
        assert!(
            written.contains(&format!("(<out-pictures/{name}>)")),
            "{name} is not shown"
        );
        assert!(pictures.join(name).is_file(), "{name} is not there");
    }
    let sheets = scratch.path("sheets");
    let told = finish(meshtax(
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
    assert_eq!(told.code, 0, "{told:?}");
    for name in ["overheads.csv", "percentiles.csv", "cpu-over-time.csv"] {
        let text = fs::read_to_string(sheets.join(name)).expect(name);
        assert!(text.lines().count() > 1, "{name} is empty");
    }
    let told = finish(meshtax(
        &scratch,
        &["report", STORED, "--out", "/proc/nowhere/x"],
    ));
    assert_eq!(told.code, 11, "{told:?}");
}

#[test]
fn a_run_that_ended_is_watched_once() {
    let _alone = alone();
    let scratch = Scratch::new();
    let run = copied(&scratch);
    let told = finish(meshtax(
        &scratch,
        &["report", &run.display().to_string(), "--watch"],
    ));
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("Steady"), "{told:?}");
    assert!(run.join("report.html").is_file());
}
