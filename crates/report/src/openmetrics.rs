//! A run's results as OpenMetrics text (version 1.0), for a push into a monitoring system or a file that it scrapes.
//!
//! Every sample has the labels `variant`, `load_point` and `metric`; `bound` says whether a value is the estimate or an end of its interval.

use std::fmt::Write as _;

use meshtax_model::analysis::{Analysis, Effect, Estimate, Metric, Point, Verdict};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::sheet::name_and_unit;

/// Families of one kind of figure: one for each unit.
struct Figures {
    /// The name without its unit.
    name: &'static str,
    help: &'static str,
}

const LEVEL: Figures = Figures {
    name: "meshtax_level",
    help: "What was measured of a variant; bound=\"low\": at least that much.",
};

const DIFFERENCE: Figures = Figures {
    name: "meshtax_difference",
    help: "What a variant adds to the baselines, with the ends of its confidence interval.",
};

const RELATIVE: Figures = Figures {
    name: "meshtax_relative_difference",
    help: "What a variant adds to the baselines, as a share of them, with the ends of its confidence interval.",
};

/// The units of OpenMetrics, each with what one of the analysis' own units is in it.
const UNITS: [(&str, &str, f64); 3] = [
    ("ns", "seconds", 1e-9),
    ("1/s", "requests_per_second", 1.0),
    ("bytes", "bytes", 1.0),
];

/// The states of `meshtax_verdict`.
const VERDICTS: [&str; 5] = [
    "different",
    "equivalent",
    "inconclusive",
    "not-estimable",
    "overloaded",
];

/// The whole document, to its `# EOF`.
pub(crate) fn render(analysis: &Analysis) -> String {
    let mut text = String::new();
    run(&mut text, analysis);
    trials(&mut text, analysis);
    for (unit, name, factor) in UNITS {
        levels(&mut text, analysis, (unit, name, factor));
    }
    for (unit, name, factor) in UNITS {
        let of_unit = |effect: &Effect| {
            let difference = effect
                .difference
                .filter(|_| name_and_unit(effect.metric).1 == unit);
            difference.map(|difference| scaled(difference, factor))
        };
        differences(&mut text, analysis, &DIFFERENCE, name, of_unit);
    }
    differences(&mut text, analysis, &RELATIVE, "ratio", |effect| {
        effect.relative
    });
    verdicts(&mut text, analysis);
    text.push_str("# EOF\n");
    text
}

fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    let interval = estimate.interval.map(|mut interval| {
        interval.low *= factor;
        interval.high *= factor;
        interval
    });
    Estimate {
        value: estimate.value * factor,
        interval,
    }
}

/// The lines before the samples of a family.
fn head(text: &mut String, name: &str, kind: &str, unit: &str, help: &str) {
    // Writing into memory cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {}", escaped(help));
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    if !value.is_finite() {
        return;
    }
    let labels: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
        .collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("{{{}}}", labels.join(",")),
    };
    let _ = writeln!(text, "{name}{labels} {value}");
}

/// Of a label's value, and of a help text.
fn escaped(text: &str) -> String {
    let clean = text.chars().filter(|c| *c == '\n' || !c.is_control());
    let mut escaped = String::new();
    for c in clean {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The run as a whole.
fn run(text: &mut String, analysis: &Analysis) {
    let run = &analysis.run;
    head(
        text,
        "meshtax_run",
        "info",
        "",
        "The run that these figures are of.",
    );
    let labels = [
        ("run", run.id.as_str()),
        ("experiment", analysis.experiment.name.as_str()),
        ("engine", analysis.environment.engine.as_str()),
        ("version", run.meshtax_version.as_str()),
    ];
    sample(text, "meshtax_run_info", &labels, 1.0);
    let gauges: [(&str, &str, &str, f64); 5] = [
        (
            "meshtax_run_start_time_seconds",
            "seconds",
            "When the run began, in seconds since 1970.",
            run.started_unix_ms as f64 / 1e3,
        ),
        (
            "meshtax_run_duration_seconds",
            "seconds",
            "How long it measured.",
            run.took_ns as f64 / 1e9,
        ),
        (
            "meshtax_run_rounds",
            "",
            "Rounds with at least one valid trial.",
            f64::from(analysis.rounds),
        ),
        (
            "meshtax_run_blocks",
            "",
            "Blocks with at least one valid trial.",
            f64::from(analysis.blocks),
        ),
        (
            "meshtax_interval_confidence_ratio",
            "ratio",
            "The confidence of all intervals.",
            analysis.confidence,
        ),
    ];
    for (name, unit, help, value) in gauges {
        head(text, name, "gauge", unit, help);
        sample(text, name, &[], value);
    }
}

/// Every variant that was measured at a load point.
fn measured(analysis: &Analysis) -> impl Iterator<Item = (&Variant, &LoadPoint, &Point)> {
    let experiment = &analysis.experiment;
    analysis.variants.iter().flat_map(move |found| {
        let variant = experiment.variant(&found.variant);
        let points = found.points.iter();
        points.filter_map(move |point| {
            Some((variant?, experiment.load_point(&point.load_point)?, point))
        })
    })
}

fn trials(text: &mut String, analysis: &Analysis) {
    const NAME: &str = "meshtax_trials";
    head(text, NAME, "gauge", "", "Trials, by whether they count.");
    for (variant, asked, point) in measured(analysis) {
        let invalid: u64 = point.invalid.values().map(|count| u64::from(*count)).sum();
        for (state, count) in [("valid", u64::from(point.valid)), ("invalid", invalid)] {
            let labels = [
                ("variant", variant.id.0.as_str()),
                ("load_point", asked.id.0.as_str()),
                ("state", state),
            ];
            sample(text, NAME, &labels, count as f64);
        }
    }
}

fn labels<'a>(
    variant: &'a str,
    load_point: &'a str,
    metric: Metric,
    bound: &'a str,
) -> [(&'static str, &'a str); 4] {
    [
        ("variant", variant),
        ("load_point", load_point),
        ("metric", name_and_unit(metric).0),
        ("bound", bound),
    ]
}

fn levels(text: &mut String, analysis: &Analysis, (unit, name, factor): (&str, &str, f64)) {
    let family = format!("{}_{name}", LEVEL.name);
    head(text, &family, "gauge", name, LEVEL.help);
    for (variant, asked, point) in measured(analysis) {
        for level in &point.levels {
            let Some(value) = level
                .value
                .filter(|_| name_and_unit(level.metric).1 == unit)
            else {
                continue;
            };
            let bound = match level.lower_bound {
                true => "low",
                false => "estimate",
            };
            let labels = labels(&variant.id.0, &asked.id.0, level.metric, bound);
            sample(text, &family, &labels, value * factor);
        }
    }
}

fn differences(
    text: &mut String,
    analysis: &Analysis,
    figures: &Figures,
    unit: &str,
    of: impl Fn(&Effect) -> Option<Estimate>,
) {
    let family = format!("{}_{unit}", figures.name);
    head(text, &family, "gauge", unit, figures.help);
    // What an overloaded variant would have cost under the load is not known.
    let carried = analysis.effects.iter();
    let carried = carried.filter(|effect| !matches!(effect.verdict, Verdict::Overloaded(_)));
    for effect in carried {
        let Some(estimate) = of(effect) else { continue };
        let interval = estimate.interval;
        let low = ("low", interval.map(|interval| interval.low));
        let values = match effect.lower_bound {
            // Requests are missing from it: at least its lower end.
            true => vec![low],
            false => vec![
                ("estimate", Some(estimate.value)),
                low,
                ("high", interval.map(|interval| interval.high)),
            ],
        };
        for (bound, value) in values {
            let labels = labels(
                &effect.variant.0,
                &effect.load_point.0,
                effect.metric,
                bound,
            );
            sample(text, &family, &labels, value.unwrap_or(f64::NAN));
        }
    }
}

fn verdicts(text: &mut String, analysis: &Analysis) {
    const NAME: &str = "meshtax_verdict";
    let help = "What the run shows of an effect: one of the states is 1.";
    head(text, NAME, "stateset", "", help);
    for effect in &analysis.effects {
        let verdict = match effect.verdict {
            Verdict::Different => "different",
            Verdict::Equivalent => "equivalent",
            Verdict::Inconclusive => "inconclusive",
            Verdict::NotEstimable { .. } => "not-estimable",
            Verdict::Overloaded(_) => "overloaded",
        };
        for state in VERDICTS {
            let labels = [
                ("variant", effect.variant.0.as_str()),
                ("load_point", effect.load_point.0.as_str()),
                ("metric", name_and_unit(effect.metric).0),
                // A state is the value of the label with the family's own name.
                (NAME, state),
            ];
            let is_it = f64::from(u8::from(state == verdict));
            sample(text, NAME, &labels, is_it);
        }
    }
}
