//! How to read the figures, and where they come from.

use meshtax_model::analysis::{Analysis, Metric, NoiseFloor, Verdict};
use meshtax_model::environment::{CpuLayout, Environment};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{Experiment, Inject, LoadPoint, Role, ServiceAddress, Variant};

use super::figures::UNADJUSTED;
use super::known_costs;
use super::{Source, load_in_words};
use crate::format::{self, CPU_MS_PER_1K, PERCENT, grouped, plural};

/// Which experiment, where.
pub(crate) fn title(analysis: &Analysis) -> String {
    format!(
        "meshtax {}: what the mesh costs ({} engine)",
        analysis.experiment.name, analysis.environment.engine
    )
}

/// That the run is not whole, and why.
pub(crate) fn partial(analysis: &Analysis) -> Option<String> {
    let least = analysis.experiment.design.min_rounds;
    let how_far = format!(
        "{} of at least {least} rounds have valid trials",
        analysis.rounds
    );
    match &analysis.run.ending {
        Some(Ending::TimeUsed | Ending::PrecisionReached) => None,
        Some(Ending::Interrupted) => Some(format!("Partial: interrupted; {how_far}.")),
        Some(Ending::Failed { reason }) => Some(format!(
            "Partial: the environment broke: {reason}; {how_far}."
        )),
        None => Some(format!(
            "Partial: killed or still running, the manifest names no end; {how_far}."
        )),
    }
}

/// What the layout of the cores does to the figures.
pub(crate) fn meaning(layout: &CpuLayout) -> Vec<String> {
    let mut texts = Vec::new();
    if layout.ends_share_cores() {
        let mut shared = layout.client_node.clone();
        shared.extend(&layout.server_node);
        shared.sort_unstable();
        shared.dedup();
        let (named, whose) = match shared.len() {
            1 => ("core", "one shared core".to_owned()),
            n => ("cores", format!("{n} shared cores")),
        };
        let generator = if layout.generator.is_empty() || layout.generator_shares_core() {
            String::new()
        } else {
            let named = plural(layout.generator.len(), "core", "cores");
            let cores = format::cores(&layout.generator);
            format!(" (the generator has {named} {cores} to itself)")
        };
        texts.push(format!(
            "Client, server and proxies share {named} {}{generator}: added latency and throughput \
             are those of {whose}, not of two machines; CPU per request is what carries over.",
            format::cores(&shared)
        ));
    }
    if layout.generator_shares_core() {
        texts.push(
            "The generator shares a core with what it measures: its own work is in the latency."
                .to_owned(),
        );
    }
    texts
}

/// Everything else that a reader must know, most important first.
pub(crate) fn notes(source: Source<'_>) -> Vec<String> {
    let mut notes = source.analysis.caveats.clone();
    notes.extend(gaps(source));
    notes.extend(not_told_apart(source));
    notes.extend(noise_floor(source));
    notes.extend(injected(source));
    notes.extend(options(source));
    notes.extend(marks(source));
    notes
}

/// Which primary effects a longer run would tell from none, the soonest first.
fn not_told_apart(source: Source<'_>) -> Option<String> {
    const SHOWN: usize = 3;
    let took_ns = source.analysis.run.took_ns as f64;
    let mut open: Vec<(f64, String)> = source
        .analysis
        .effects
        .iter()
        .filter(|effect| effect.primary)
        .filter_map(|effect| {
            let point = source.analysis.experiment.load_point(&effect.load_point)?;
            let what = format!(
                "{} {} at {}",
                effect.variant,
                effect.metric.name(),
                load_in_words(point)
            );
            Some((effect.longer_to_tell?, what))
        })
        .collect();
    open.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts: Vec<String> = open
        .iter()
        .take(SHOWN)
        .map(|(factor, what)| format!("{what} (about {})", roughly(took_ns * factor)))
        .collect();
    if open.len() > SHOWN {
        parts.push(format!("{} more", open.len() - SHOWN));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Not told from no difference; a longer run would, if they are as large as they look: {}.",
            parts.join(", ")
        )
    })
}

/// No more digits than such a guess has.
fn roughly(ns: f64) -> String {
    let minutes = (ns / 60e9).ceil().max(1.0);
    if minutes < 120.0 {
        return format!("{} min", grouped(minutes, 0));
    }
    format!("{} h", grouped((minutes / 60.0).ceil(), 0))
}

/// What was not asked of a variant, since it has no answer.
fn gaps(source: Source<'_>) -> Vec<String> {
    let experiment = &source.analysis.experiment;
    let of_variant = |variant: &'_ Variant| -> Option<String> {
        let gaps = source
            .points()
            .filter_map(|point| Some((point, experiment.gap(variant, point)?)));
        let (points, why): (Vec<_>, Vec<_>) = gaps.unzip();
        let names: Vec<String> = points.into_iter().map(load_in_words).collect();
        let why = why.first()?;
        Some(format!(
            "{} was not measured at {}: {why}.",
            variant.id,
            names.join(" and ")
        ))
    };
    experiment.variants.iter().filter_map(of_variant).collect()
}

fn marks(source: Source<'_>) -> Option<String> {
    let shown = source
        .analysis
        .effects
        .iter()
        .filter(|e| !matches!(e.verdict, Verdict::NotEstimable { .. }));
    let candidates = shown.filter(|e| {
        let asked = source.analysis.experiment.variant(&e.variant);
        asked.is_some_and(|v| v.role == Role::Candidate)
    });
    let (mut adjusted, mut unadjusted) = (false, false);
    for effect in candidates {
        adjusted |= effect.primary;
        unadjusted |= !effect.primary;
    }
    match (adjusted, unadjusted) {
        (true, true) => Some(format!(
            "Verdicts are adjusted for several comparisons (Holm), except those marked {UNADJUSTED}."
        )),
        (true, false) => Some("Verdicts are adjusted for several comparisons (Holm).".to_owned()),
        (false, true) => Some(format!(
            "{UNADJUSTED}: verdicts not adjusted for several comparisons."
        )),
        (false, false) => None,
    }
}

fn noise_floor(source: Source<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for point in source.points() {
        let metrics: &[Metric] = if point.is_steady() {
            &[
                Metric::ResponseP50,
                Metric::ResponseP99,
                Metric::CpuPerRequest,
            ]
        } else {
            &[Metric::Throughput, Metric::CpuPerRequest]
        };
        let figures: Vec<String> = metrics
            .iter()
            .filter_map(|m| floor_text(source, point, *m))
            .collect();
        if !figures.is_empty() {
            parts.push(format!("{} {}", point.id, figures.join(", ")));
        }
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Noise floor (the baseline against itself): {}.",
            parts.join("; ")
        )
    })
}

fn floor_text(source: Source<'_>, point: &LoadPoint, metric: Metric) -> Option<String> {
    let floor: &NoiseFloor = source
        .analysis
        .noise_floor
        .iter()
        .find(|f| f.load_point == point.id && f.metric == metric)?;
    let two_digits = |value: f64| grouped(value, usize::from(value.abs() < 10.0));
    Some(match metric {
        Metric::Throughput => {
            format!(
                "throughput ±{} %",
                two_digits(floor.relative? * PERCENT.factor)
            )
        }
        Metric::CpuPerRequest => {
            let value = two_digits(floor.absolute? * CPU_MS_PER_1K.factor);
            format!("CPU ±{value} {}", CPU_MS_PER_1K.name)
        }
        latency => {
            let value = floor.absolute?;
            let unit = format::time_unit(value);
            let decimals = format::decimals_by_size(value * unit.factor).min(1);
            let name = latency.name();
            format!(
                "{name} ±{} {}",
                grouped(value * unit.factor, decimals),
                unit.name
            )
        }
    })
}

fn injected(source: Source<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for (asked, found) in source.measured() {
        let Some(inject) = asked.inject else { continue };
        let mut text = format!(
            "{} carries a known cost: {}",
            asked.id,
            known_costs::in_words(inject)
        );
        let by = match inject {
            Inject::BurnSteps(_) => "CPU by the server's own clock",
            _ => "by the server's clock",
        };
        let seen = found.points.iter().find_map(|p| p.injected_ns);
        if let Some(ns) = seen {
            text.push_str(&format!(", {} µs {by}", format::trimmed(ns / 1e3)));
        }
        texts.push(text + ".");
    }
    texts
}

/// What proxies do and hold besides what their level promises.
fn options(source: Source<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for (asked, _) in source.measured() {
        if let Some(knows) = asked.options.knows {
            let changes = knows.changes_per_s.map_or_else(String::new, |rate| {
                format!(
                    ", of which {} a second are replaced by others while it is measured",
                    format::trimmed(rate)
                )
            });
            texts.push(format!(
                "{}: each proxy knows {} endpoints of {} services that nobody calls{changes}.",
                asked.id,
                grouped(f64::from(knows.endpoints), 0),
                grouped(f64::from(knows.services()), 0),
            ));
        }
        if asked.options.access_log {
            texts.push(format!(
                "{}: its proxies write a line for each request; what becomes of the lines behind them is no cost here.",
                asked.id
            ));
        }
        if let Some(share) = asked.options.tracing {
            texts.push(format!(
                "{}: its proxies send spans of {} % of the requests to a collector in their own pod, which is no cost here.",
                asked.id,
                format::trimmed(share * 100.0)
            ));
        }
    }
    texts
}

/// What was run, on what, by what.
pub(crate) fn facts(analysis: &Analysis) -> Vec<(&'static str, String)> {
    vec![
        ("Run", run(analysis)),
        ("Design", design(analysis)),
        ("Machine", machine(&analysis.environment)),
        ("Programs", programs(analysis)),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .collect()
}

fn run(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let ending = match &run.ending {
        Some(Ending::TimeUsed) => "time used",
        Some(Ending::PrecisionReached) => "precision reached",
        Some(Ending::Interrupted) => "interrupted",
        Some(Ending::Failed { .. }) => "broke off",
        None => "end unknown",
    };
    format!(
        "{}, {}, {} ({ending}), seed {}, meshtax {}",
        run.id,
        format::date_utc(run.started_unix_ms),
        format::duration(run.took_ns),
        run.seed,
        run.meshtax_version
    )
}

fn design(analysis: &Analysis) -> String {
    let points = || analysis.variants.iter().flat_map(|v| &v.points);
    let valid: u64 = points().map(|p| u64::from(p.valid)).sum();
    let invalid: u64 = points()
        .flat_map(|p| p.invalid.values())
        .map(|n| u64::from(*n))
        .sum();
    let experiment = &analysis.experiment;
    let each = match experiment.design.requests_per_trial {
        Some(requests) => format!("{} requests in a closed loop", grouped(requests as f64, 0)),
        None => format::duration(experiment.design.trial_ns),
    };
    format!(
        "{} {}, {} {}, {} valid and {} invalid trials of {}, {}",
        analysis.rounds,
        plural(analysis.rounds as usize, "round", "rounds"),
        analysis.blocks,
        plural(analysis.blocks as usize, "block", "blocks"),
        grouped(valid as f64, 0),
        grouped(invalid as f64, 0),
        each,
        answers(experiment),
    )
}

/// What a person typed, without what a terminal would take for orders.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// What answered, and from where if that is not one pod by its own address.
fn answers(experiment: &Experiment) -> String {
    let size = |bytes: u32| format::bytes(u64::from(bytes));
    let usual = experiment.workload.response_bytes;
    let points = experiment.load_points.iter();
    let sizes = points.map(|point| point.response_bytes.unwrap_or(usual));
    let (low, high) = sizes.fold((u32::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    let mut text = match &experiment.service.program {
        Some(program) => format!(
            "answers of `{}` at port {}, {}",
            printable(&program.command.join(" ")),
            program.port,
            program.path
        ),
        None if low >= high => format!("{} answers", size(high)),
        None => format!("answers of {} to {}", size(low), size(high)),
    };
    if let Some(graph) = &experiment.service.graph {
        let clients = match graph.called() {
            1 => String::new(),
            called => format!(" (clients call {called} of them)"),
        };
        text.push_str(&format!(
            ", topology {}: {} services{clients}, {} calls between them for a request",
            printable(&graph.name),
            graph.others.len() + 1,
            grouped(graph.calls_per_request(), 2)
        ));
    }
    match (experiment.service.replicas, experiment.service.address) {
        (1, ServiceAddress::Pod) => {}
        (1, ServiceAddress::Virtual) => text.push_str(", called by the service's address"),
        (n, _) => text.push_str(&format!(", {n} replicas behind the service's address")),
    }
    if experiment.service.nodes > 1 {
        let nodes = experiment.service.nodes;
        text.push_str(&format!(
            ", dealt out to {nodes} nodes of the servers', which share cores here"
        ));
    }
    text
}

/// Where it was measured.
pub(crate) fn machine(environment: &Environment) -> String {
    let host = &environment.host;
    let mut parts = vec![
        format!(
            "{} {}",
            host.cores,
            plural(host.cores as usize, "core", "cores")
        ),
        host.cpu_model.clone(),
        format!("Linux {}", host.kernel),
    ];
    if host.virtual_machine {
        parts.push("virtual machine".to_owned());
    }
    if environment.rootless {
        parts.push("rootless".to_owned());
    }
    let layout = &environment.layout;
    if !layout.generator.is_empty() {
        let cores = format::cores(&layout.generator);
        let named = plural(layout.generator.len(), "core", "cores");
        parts.push(format!("generator on {named} {cores}"));
    }
    if !layout.ends_share_cores() && !layout.client_node.is_empty() {
        parts.push(format!(
            "client's node on {}, server's on {}",
            format::cores(&layout.client_node),
            format::cores(&layout.server_node)
        ));
    }
    parts.join(", ")
}

fn programs(analysis: &Analysis) -> String {
    let artifacts = analysis.environment.artifacts.iter();
    let texts: Vec<String> = artifacts
        .map(|a| match &a.note {
            Some(note) => format!("{} {} ({note})", a.data_plane, a.version),
            None => format!("{} {}", a.data_plane, a.version),
        })
        .collect();
    if texts.is_empty() {
        return String::new();
    }
    let workers = analysis.experiment.equal_work.workers;
    let named = plural(workers as usize, "worker", "workers");
    format!("{}; {workers} {named} per proxy", texts.join("; "))
}
