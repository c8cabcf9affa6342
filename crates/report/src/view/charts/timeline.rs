//! The timeline of the run: each trial's CPU, memory and median, and the course of a trial.

use meshtax_model::analysis::{Moment, Point, RoleMoment, VariantAnalysis};
use meshtax_model::cluster::{ClusterEvent, Severity};
use meshtax_model::event::active_ns;
use meshtax_model::experiment::{LoadPoint, Variant};
use meshtax_model::trial::ComponentRole;

use crate::format::{MIB, MICROSECONDS, Unit};
use crate::view::chart::{
    Axis, Chapter, Chart, Choice, Dot, Figure, Line, LineChart, Rule, Scale, Sheet, Stroke,
};
use crate::view::charts::words::{figure_text, in_words, name, raw};
use crate::view::labels::role_name;
use crate::view::source::{Source, load_in_words, point_of};

const ROLES: [ComponentRole; 5] = [
    ComponentRole::ClientProxy,
    ComponentRole::ServerProxy,
    ComponentRole::Waypoint,
    ComponentRole::Gateway,
    ComponentRole::App,
];

/// Those of a run; the course of a trial is about the path of requests.
const ROLES_OVER_RUN: [ComponentRole; 6] = [
    ComponentRole::ClientProxy,
    ComponentRole::ServerProxy,
    ComponentRole::Waypoint,
    ComponentRole::Gateway,
    ComponentRole::App,
    ComponentRole::ControlPlane,
];

/// The most marks of a variant in one drawing of each load point, all together: more are illegible. The data has all
/// moments.
const MARKS_MAX: usize = 600;

/// The figure of the course of a trial.
pub(crate) const WITHIN_A_TRIAL: &str = "within-a-trial";

const CORES: Unit = Unit {
    factor: 1.0,
    name: "cores",
};

pub(super) fn figures(source: Source<'_>) -> Vec<Figure> {
    let over_run = over_run_caption(source);
    let figures = [
        by_role(
            source,
            "cpu-over-time",
            "CPU over the run",
            &over_run,
            CORES,
            |role| Some(role.cores),
        ),
        by_role(
            source,
            "memory-over-time",
            "Memory over the run",
            &over_run,
            MIB,
            |role| role.anonymous_bytes.map(|bytes| bytes as f64),
        ),
        median(source, &over_run),
        within(source),
    ];
    figures.into_iter().flatten().collect()
}

fn over_run_caption(source: Source<'_>) -> String {
    let is_thinned = |(_, found): (_, &VariantAnalysis)| found.timeline.len() > MARKS_MAX;
    let seconds = match source.measured().any(is_thinned) {
        true => ", or the mean of some seconds (the data has all)",
        false => "",
    };
    format!(
        "Each mark is a trial, or a second of a longer one{seconds}; hollow ones are excluded. Drift that all variants \
         share comes from the machine, and pairing removes it."
    )
}

/// The run's time in a unit that reads well.
struct Clock {
    per_unit_ns: f64,
    name: &'static str,
}

impl Clock {
    fn of(source: Source<'_>) -> Self {
        let moments = source.measured().flat_map(|(_, found)| &found.timeline);
        let last = moments.map(|moment| moment.at_ns).max().unwrap_or(0);
        match last {
            ns if ns > 3 * 3_600_000_000_000 => Self {
                per_unit_ns: 3.6e12,
                name: "hours since the run began",
            },
            ns if ns > 180_000_000_000 => Self {
                per_unit_ns: 6e10,
                name: "minutes since the run began",
            },
            _ => Self {
                per_unit_ns: 1e9,
                name: "seconds since the run began",
            },
        }
    }
}

fn by_role(
    source: Source<'_>,
    id: &'static str,
    title: &str,
    caption: &str,
    unit: Unit,
    value: impl Fn(&RoleMoment) -> Option<f64>,
) -> Option<Figure> {
    let mut data = Sheet::new(&[
        "component",
        "load_point",
        "variant",
        "trial",
        "at_ns",
        "counts",
        if unit == MIB { "bytes" } else { "cores" },
    ]);
    let mut choices = Vec::new();
    for role in ROLES_OVER_RUN {
        for point in source.points() {
            let of_moment = |moment: &Moment| {
                let here = moment.roles.iter().find(|r| r.role == role)?;
                value(here)
            };
            let what = format!("{}, {}", role_name(role), load_in_words(point));
            let chart = over_run(source, point, unit, of_moment, |cells| {
                let mut row = vec![role_name(role).to_owned()];
                row.extend(cells);
                data.row(row);
            });
            choices.extend(chart.map(|chart| choice(what, title, chart)));
        }
    }
    (!choices.is_empty()).then(|| Figure {
        id,
        chapter: Chapter::Time,
        title: title.to_owned(),
        caption: caption.to_owned(),
        choices,
        data,
    })
}

fn median(source: Source<'_>, caption: &str) -> Option<Figure> {
    let mut data = Sheet::new(&[
        "load_point",
        "variant",
        "trial",
        "at_ns",
        "counts",
        "response_p50_ns",
    ]);
    let title = "Median response latency over the run";
    let mut choices = Vec::new();
    for point in source.points().filter(|p| p.is_steady()) {
        let chart = over_run(
            source,
            point,
            MICROSECONDS,
            |m| m.response_p50_ns,
            |cells| data.row(cells),
        );
        choices.extend(chart.map(|chart| choice(load_in_words(point), title, chart)));
    }
    (!choices.is_empty()).then(|| Figure {
        id: "latency-over-time",
        chapter: Chapter::Time,
        title: title.to_owned(),
        caption: caption.to_owned(),
        choices,
        data,
    })
}

fn choice(label: String, title: &str, lines: LineChart) -> Choice {
    let chart = Chart::Lines(lines);
    Choice {
        alt: format!("{title}, {label}. {}", in_words(&chart)),
        label,
        chart,
    }
}

/// Marks for the trials at a load point; `None` without any.
fn over_run(
    source: Source<'_>,
    point: &LoadPoint,
    unit: Unit,
    value: impl Fn(&Moment) -> Option<f64>,
    mut kept: impl FnMut([String; 6]),
) -> Option<LineChart> {
    let clock = Clock::of(source);
    let most = MARKS_MAX / source.points().count().max(1);
    let mut all = Vec::new();
    for (asked, found) in source.measured() {
        let here = found.timeline.iter().filter(|m| m.load_point == point.id);
        let here = here.filter_map(|moment| {
            let value = value(moment).filter(|v| v.is_finite())?;
            Some((moment, value))
        });
        let here: Vec<(&Moment, f64)> = here.collect();
        for (moment, value) in &here {
            kept([
                point.id.0.clone(),
                asked.id.0.clone(),
                moment.trial.0.clone(),
                moment.at_ns.to_string(),
                moment.valid.to_string(),
                raw(Some(*value)),
            ]);
        }
        let dots: Vec<Dot> = marks(&here, most, unit, &clock);
        if !dots.is_empty() {
            all.push(series(source, asked, dots));
        }
    }
    (!all.is_empty()).then(|| LineChart {
        x: Axis {
            name: clock.name.to_owned(),
            scale: Scale::Linear,
        },
        y: Axis {
            name: unit.name.to_owned(),
            scale: Scale::Linear,
        },
        series: all,
        rules: warnings(source, &clock),
    })
}

/// About `most` marks at the most: of very many trials every second, or third, or n-th, and of a long trial the means of
/// consecutive moments.
fn marks(moments: &[(&Moment, f64)], most: usize, unit: Unit, clock: &Clock) -> Vec<Dot> {
    let trials: Vec<_> = moments.chunk_by(|a, b| a.0.trial == b.0.trial).collect();
    let step = trials.len().div_ceil(most.max(1)).max(1);
    let each = (most / trials.len().max(1)).max(1);
    let of_trial = |trial: &[(&Moment, f64)]| {
        let parts = trial.chunks(trial.len().div_ceil(each));
        parts
            .map(|part| mark(part, unit, clock))
            .collect::<Vec<_>>()
    };
    trials
        .into_iter()
        .step_by(step)
        .flat_map(of_trial)
        .collect()
}

/// The mean of some moments of a trial, at the first; there is one at least.
fn mark(moments: &[(&Moment, f64)], unit: Unit, clock: &Clock) -> Dot {
    let (first, _) = moments[0];
    let sum: f64 = moments.iter().map(|(_, value)| value).sum();
    let value = sum / moments.len() as f64;
    let counts = if first.valid { "" } else { ", excluded" };
    Dot {
        x: first.at_ns as f64 / clock.per_unit_ns,
        y: value * unit.factor,
        tip: format!("{}{counts}", figure_text(value, unit)),
        faint: !first.valid,
    }
}

/// What the cluster warned of, in the color of its variant.
fn warnings(source: Source<'_>, clock: &Clock) -> Vec<Rule> {
    let run = &source.analysis.run;
    let events = source.analysis.events.iter();
    let warnings = events.filter(|event| event.severity == Severity::Warning);
    let rule = |event: &ClusterEvent| {
        let place = source.place(event.variant.as_ref()?);
        let at_ns = active_ns(run.started_unix_ms, &run.resumptions, event.at_unix_ms);
        Some(Rule {
            variant: place,
            look: place,
            x: at_ns as f64 / clock.per_unit_ns,
            tip: format!("{}: {}", event.object, event.reason),
        })
    };
    warnings.filter_map(rule).collect()
}

fn series(source: Source<'_>, asked: &Variant, dots: Vec<Dot>) -> Line {
    let place = source.place(&asked.id);
    Line {
        variant: Some(place),
        look: place,
        label: name(asked),
        dots,
        stroke: Stroke::Marks,
    }
}

/// The cores that a component used in each step of a window.
fn course<'a>(
    role: ComponentRole,
    look: usize,
    steps: impl Iterator<Item = (&'a u64, &'a f64)>,
) -> Line {
    let dot = |(end_ns, cores): (&u64, &f64)| Dot {
        x: *end_ns as f64 / 1e6,
        y: *cores,
        tip: figure_text(*cores, CORES),
        faint: false,
    };
    Line {
        variant: None,
        look,
        label: role_name(role).to_owned(),
        dots: steps.map(dot).filter(|dot| dot.y.is_finite()).collect(),
        stroke: Stroke::Marked,
    }
}

/// The course of a trial, mean over all valid ones: a process that is still warming up is visible here.
fn within(source: Source<'_>) -> Option<Figure> {
    let title = "CPU within a trial";
    let mut data = Sheet::new(&["load_point", "variant", "component", "end_ns", "cores"]);
    let mut choices = Vec::new();
    for point in source.points() {
        for (asked, found) in source.measured() {
            let Some(found) = point_of(found, &point.id) else {
                continue;
            };
            let lines = courses(found, |[role, end_ns, cores]| {
                let (point, variant) = (point.id.0.clone(), asked.id.0.clone());
                data.row([point, variant, role, end_ns, cores]);
            });
            if lines.series.iter().any(|line| line.dots.len() > 1) {
                let label = format!("{}, {}", asked.id, load_in_words(point));
                choices.push(choice(label, title, lines));
            }
        }
    }
    (!choices.is_empty()).then(|| Figure {
        id: WITHIN_A_TRIAL,
        chapter: Chapter::Time,
        title: title.to_owned(),
        caption: "Mean over the valid trials, by component. A slope means that the window begins before the processes are \
         warmed up."
            .to_owned(),
        choices,
        data,
    })
}

/// The components of a variant at a load point. `kept` gets the component, the end of each step, and the cores in it.
fn courses(found: &Point, mut kept: impl FnMut([String; 3])) -> LineChart {
    let mut all = Vec::new();
    for (look, role) in ROLES.into_iter().enumerate() {
        let Some(series) = found.series.iter().find(|s| s.role == role) else {
            continue;
        };
        let steps = || found.series_ends_ns.iter().zip(&series.cores);
        for (end_ns, cores) in steps() {
            let role = role_name(role).to_owned();
            kept([role, end_ns.to_string(), raw(Some(*cores))]);
        }
        all.push(course(role, look + 2, steps()));
    }
    let axis = |name: &str| Axis {
        name: name.to_owned(),
        scale: Scale::Linear,
    };
    LineChart {
        x: axis("ms since the window began"),
        y: axis(CORES.name),
        series: all,
        rules: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::LoadPointId;
    use meshtax_model::plan::TrialId;

    use super::*;

    const SECONDS: Clock = Clock {
        per_unit_ns: 1e9,
        name: "seconds",
    };

    fn second(trial: u32, at_s: u64) -> Moment {
        Moment {
            trial: TrialId::new(1, 1, trial),
            at_ns: at_s * 1_000_000_000,
            load_point: LoadPointId("steady".to_owned()),
            valid: trial != 2,
            response_p50_ns: None,
            roles: Vec::new(),
        }
    }

    /// Each second's value is its time.
    fn drawn(moments: &[Moment], most: usize) -> Vec<(f64, f64, bool)> {
        let values: Vec<_> = moments.iter().map(|m| (m, m.at_ns as f64 / 1e9)).collect();
        let dots = marks(&values, most, CORES, &SECONDS);
        dots.iter().map(|dot| (dot.x, dot.y, dot.faint)).collect()
    }

    #[test]
    fn seconds_of_a_long_trial_are_drawn_as_means_that_do_not_cross_trials() {
        let first = (0..5).map(|at_s| second(1, at_s));
        let moments: Vec<Moment> = first.chain((10..14).map(|at_s| second(2, at_s))).collect();
        assert_eq!(drawn(&moments, 100).len(), 9);
        let expected = [
            (0.0, 1.0, false),
            (3.0, 3.5, false),
            (10.0, 10.5, true),
            (12.0, 12.5, true),
        ];
        assert_eq!(drawn(&moments, 4), expected);
    }

    #[test]
    fn every_second_trial_is_drawn_where_there_are_twice_as_many_as_marks() {
        let moments: Vec<Moment> = (0..10).map(|at| second(at + 3, u64::from(at))).collect();
        let drawn: Vec<f64> = drawn(&moments, 5).iter().map(|(x, ..)| *x).collect();
        assert_eq!(drawn, [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert!(marks(&[], 5, CORES, &SECONDS).is_empty());
    }
}
