//! Reports as people see them. A change here is a change of the product.

use meshtax_model::analysis::Analysis;
use meshtax_report::TerminalOptions;

use crate::fixtures;

fn at(width: usize, color: bool) -> TerminalOptions {
    TerminalOptions { width, color }
}

#[test]
fn terminal_at_100_columns() {
    for (name, analysis) in fixtures::all() {
        let text = meshtax_report::terminal(&analysis, at(100, false));
        insta::assert_snapshot!(format!("terminal_100_{name}"), text);
    }
}

#[test]
fn terminal_narrow_and_wide() {
    for (name, analysis) in [
        ("quick", fixtures::quick()),
        ("not_estimable", fixtures::not_estimable()),
    ] {
        for width in [40, 80, 140] {
            let text = meshtax_report::terminal(&analysis, at(width, false));
            insta::assert_snapshot!(format!("terminal_{width}_{name}"), text);
        }
    }
}

#[test]
fn terminal_in_color() {
    let text = meshtax_report::terminal(&fixtures::sabotaged(), at(100, true));
    insta::assert_snapshot!(
        "terminal_color_sabotaged",
        text.escape_debug().to_string().replace("\\n", "\n")
    );
}

#[test]
fn markdown() {
    for (name, analysis) in fixtures::all() {
        insta::assert_snapshot!(
            format!("markdown_{name}"),
            meshtax_report::markdown(&analysis)
        );
    }
}

#[test]
fn html() {
    for (name, analysis) in [
        ("quick", fixtures::quick()),
        ("sabotaged", fixtures::sabotaged()),
        ("empty", fixtures::empty()),
    ] {
        insta::assert_snapshot!(format!("html_{name}"), meshtax_report::html(&analysis));
    }
}

#[test]
fn pictures() {
    let (text, pictures) = meshtax_report::illustrated_markdown(&fixtures::rates(), "pictures");
    insta::assert_snapshot!("illustrated_rates", text);
    for wanted in [
        "added-latency.svg",
        "percentiles.svg",
        "latency-over-rate.svg",
        "cpu-by-component.svg",
        "latency-by-step.svg",
    ] {
        let picture = pictures.iter().find(|file| file.name == wanted);
        let picture = picture.unwrap_or_else(|| panic!("{wanted} is not drawn"));
        insta::assert_snapshot!(format!("picture_{wanted}"), picture.text);
    }
}

#[test]
fn overloaded_rate_does_not_suppress_charts() {
    let mut analysis = fixtures::rates();
    for found in &mut analysis.variants {
        for point in &mut found.points {
            if point.load_point.0 == "steady-16000" {
                point.curve.clear();
            }
        }
    }
    let (_, pictures) = meshtax_report::illustrated_markdown(&analysis, "pictures");
    let drawn = |name: &str| pictures.iter().any(|file| file.name == name);
    assert!(drawn("percentiles.svg") && drawn("percentiles-2.svg"));
    assert!(!drawn("percentiles-3.svg"));
}

#[test]
fn all_csv_files_match_snapshots() {
    let sheets = meshtax_report::sheets(&fixtures::quick());
    let heads: Vec<String> = sheets
        .iter()
        .map(|file| {
            format!(
                "{}: {}",
                file.name,
                file.text.lines().next().unwrap_or_default()
            )
        })
        .collect();
    insta::assert_snapshot!("sheets_quick", heads.join("\n"));
}

#[test]
fn csv() {
    for (name, analysis) in [
        ("quick", fixtures::quick()),
        ("not_estimable", fixtures::not_estimable()),
        ("empty", fixtures::empty()),
    ] {
        insta::assert_snapshot!(format!("csv_{name}"), meshtax_report::csv(&analysis));
    }
}

#[test]
fn summary_fits_one_screen() {
    let text = meshtax_report::terminal(&fixtures::quick(), TerminalOptions::default());
    assert!(text.lines().count() <= 46, "{} lines", text.lines().count());
}

/// The summary names each load that was not carried, and marks what lacks requests.
#[test]
fn headlines_have_every_overload_and_mark_lower_bounds() {
    let headline = |analysis: &Analysis, variant: &str| {
        let text = meshtax_report::markdown(analysis);
        let mut lines = text.lines();
        let found = lines.find(|line| line.contains(variant) && line.contains("p50"));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let rates = headline(&fixtures::rates(), "envoy-sidecar-l7");
    assert!(rates.contains("overloaded at 16,000 requests/s"), "{rates}");
    let lossy = headline(&fixtures::overloaded(), "envoy-sidecar-mtls");
    assert!(lossy.contains("p50 ≥ +"), "{lossy}");
}
