//! Nothing in an analysis makes a report fail, run over its width, or obey what it quotes.

use meshtax_model::analysis::{
    Analysis, Estimate, ExclusionReason, Interval, NotEstimable, Verdict,
};
use meshtax_model::failure::VariantFailureReason;
use meshtax_report::TerminalOptions;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::fixtures;

fn render_all(analysis: &Analysis, width: usize) -> Vec<String> {
    vec![
        meshtax_report::terminal(
            analysis,
            TerminalOptions {
                width,
                color: false,
            },
        ),
        meshtax_report::terminal(analysis, TerminalOptions { width, color: true }),
        meshtax_report::html(analysis),
        meshtax_report::markdown(analysis),
        meshtax_report::json(analysis),
        meshtax_report::csv(analysis),
        illustrated(analysis),
        meshtax_report::publication(analysis, "pictures", "data").0,
        meshtax_report::series_html(std::slice::from_ref(analysis)),
        meshtax_report::so_far(analysis).join("\n") + "\n",
    ]
}

/// All files of a Markdown report and of everything as CSV.
fn illustrated(analysis: &Analysis) -> String {
    let (text, pictures) = meshtax_report::illustrated_markdown(analysis, "pictures");
    let sheets = meshtax_report::sheets(analysis);
    let files = pictures.into_iter().chain(sheets);
    files.fold(text, |all, file| {
        all + "\n" + &file.name + "\n" + &file.text
    })
}

/// Places in a document, as JSON pointers: of long lists the first items, since the others are like them.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    const ITEMS: usize = 2;
    found.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().take(ITEMS).enumerate() {
                places(item, &format!("{at}/{i}"), found);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(item, &format!("{at}/{key}"), found);
            }
        }
        _ => {}
    }
}

/// Takes something away, or makes it extreme; `false` if it is no document of its kind any more.
pub(crate) fn damage<T: DeserializeOwned>(document: &mut Value, pick: usize, how: u8) -> bool {
    let mut found = Vec::new();
    places(document, "", &mut found);
    let Some(target) = found
        .get(pick % found.len())
        .and_then(|at| document.pointer_mut(at))
    else {
        return false;
    };
    let before = target.clone();
    *target = match (&before, how % 5) {
        (Value::Array(_), 1 | 2) => Value::Array(Vec::new()),
        (Value::Number(_), 1) => Value::from(0),
        (Value::Number(_), 2) => Value::from(-1.5),
        (Value::Number(_), 3) => Value::from(1e300),
        (Value::Number(_), 4) => Value::from(u32::MAX),
        (Value::String(_), 1) => Value::from(""),
        (Value::String(_), 2) => Value::from("<b>|`\u{1b}[31m\n`|</b> 漢字 \u{202e}x"),
        (Value::String(_), 3) => Value::from("w".repeat(300)),
        _ => Value::Null,
    };
    if serde_json::from_value::<T>(document.clone()).is_ok() {
        return true;
    }
    if let Some(target) = found
        .get(pick % found.len())
        .and_then(|at| document.pointer_mut(at))
    {
        *target = before;
    }
    false
}

/// A fixture that went through this.
pub(crate) fn damaged(which: &proptest::sample::Index, damages: Vec<(usize, u8)>) -> Analysis {
    let all = fixtures::all();
    let (_, analysis) = which.get(&all);
    let mut document = serde_json::to_value(analysis).unwrap();
    for (pick, how) in damages {
        damage::<Analysis>(&mut document, pick, how);
    }
    serde_json::from_value(document).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_analysis_is_rendered_in_every_format(
        which in any::<proptest::sample::Index>(),
        width in 0_usize..220,
        damages in prop::collection::vec((any::<usize>(), any::<u8>()), 1..40),
    ) {
        let analysis = damaged(&which, damages);
        let texts = render_all(&analysis, width);
        prop_assert!(!texts[0].contains('\u{1b}'), "no escape codes without color");
        prop_assert!(!texts[2].contains("<b>|"), "HTML is escaped");
        for text in &texts[..4] {
            prop_assert!(!text.contains('\u{202e}'), "nothing turns the direction of writing");
        }
    }
}

#[test]
fn each_optional_value_can_be_missing() {
    for (name, analysis) in fixtures::all() {
        let whole = serde_json::to_value(&analysis).unwrap();
        let mut found = Vec::new();
        places(&whole, "", &mut found);
        for (pick, place) in found.iter().enumerate() {
            let mut document = whole.clone();
            if !damage::<Analysis>(&mut document, pick, 0) {
                continue;
            }
            let damaged: Analysis = serde_json::from_value(document).unwrap();
            let texts = render_all(&damaged, 100);
            assert!(
                texts.iter().all(|t| !t.is_empty()),
                "{name} without {place}"
            );
        }
    }
}

#[test]
fn non_finite_figures_are_not_printed() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut analysis = fixtures::quick();
        for effect in &mut analysis.effects {
            let broken = Estimate {
                value: bad,
                interval: Some(Interval {
                    low: f64::NEG_INFINITY,
                    high: bad,
                }),
            };
            effect.difference = Some(broken);
            effect.relative = Some(broken);
            effect.p_value = Some(bad);
        }
        for level in analysis
            .variants
            .iter_mut()
            .flat_map(|v| &mut v.points)
            .flat_map(|p| &mut p.levels)
        {
            level.value = Some(bad);
        }
        for floor in &mut analysis.noise_floor {
            floor.absolute = Some(bad);
            floor.relative = Some(bad);
        }
        for text in render_all(&analysis, 100) {
            assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        }
    }
}

#[test]
fn report_fits_the_terminal_width() {
    for (name, analysis) in fixtures::all() {
        for width in 60..=160 {
            let options = TerminalOptions {
                width,
                color: false,
            };
            for line in meshtax_report::terminal(&analysis, options).lines() {
                assert!(line.width() <= width, "{name} at {width}: {line}");
            }
        }
    }
}

#[test]
fn page_is_self_contained() {
    for (_, analysis) in fixtures::all() {
        let page = meshtax_report::html(&analysis);
        for word in [
            "http:", "https:", "src=", "@import", "url(", "fetch(", "import(",
        ] {
            assert!(!page.contains(word), "{word}");
        }
    }
}

#[test]
fn json_round_trips_the_analysis() {
    for (_, analysis) in fixtures::all() {
        let text = meshtax_report::json(&analysis);
        let back: Analysis = serde_json::from_str(&text).unwrap();
        assert_eq!(back, analysis);
    }
}

#[test]
fn csv_rows_have_all_columns() {
    let mut analysis = fixtures::not_estimable();
    for effect in &mut analysis.effects {
        effect.verdict = Verdict::NotEstimable {
            reason: NotEstimable::Excluded {
                variant: effect.variant.clone(),
                reason: ExclusionReason::Failed {
                    round: 1,
                    failure: VariantFailureReason::StartFailed {
                        detail: "quotes \", commas, and\nlines".to_owned(),
                    },
                },
            },
        };
    }
    let text = meshtax_report::csv(&analysis);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().unwrap().len();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    assert!(!rows.is_empty());
    assert!(rows.iter().all(|r| r.len() == columns));
}
