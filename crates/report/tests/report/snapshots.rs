//! Reports as people see them. A change here is a change of the product.

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
fn the_answer_fits_on_one_screen() {
    let text = meshtax_report::terminal(&fixtures::quick(), TerminalOptions::default());
    assert!(text.lines().count() <= 46, "{} lines", text.lines().count());
}
