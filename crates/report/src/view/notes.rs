//! How to read the figures, and their origin.

use std::collections::{BTreeMap, BTreeSet};

use crate::view::{limits, study};
use meshtax_model::analysis::{Analysis, Caveat, Metric, NoiseFloor, Verdict};
use meshtax_model::environment::{Environment, Host, NodeRole};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{Experiment, Inject, LoadPoint, Placement, Role, Variant, Workers};
use meshtax_model::topology::ServiceAddress;

use super::{caveats, known_costs};
use crate::format::{self, CPU_MS_PER_1K, grouped, plural};
use crate::view::labels::{self, UNADJUSTED};
use crate::view::source::{Source, at_load};

/// Which experiment, where.
pub(crate) fn title(analysis: &Analysis) -> String {
    format!(
        "meshtax {}: service mesh overhead ({} engine)",
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
        Some(Ending::Failed { detail: reason, .. }) => {
            Some(format!("Partial: {reason}; {how_far}."))
        }
        None => Some(format!(
            "Partial: killed or still running (no end in the manifest); {how_far}."
        )),
    }
}

/// What the layout of the cores does to the figures.
pub(crate) fn meaning(environment: &Environment) -> Vec<String> {
    let mut texts = Vec::new();
    if environment.ends_share_cores() {
        let mut shared = environment.tested_cores(NodeRole::Client);
        shared.extend(environment.tested_cores(NodeRole::Server));
        let (named, whose) = match shared.len() {
            1 => ("core", "one shared core".to_owned()),
            n => ("cores", format!("{n} shared cores")),
        };
        let own = environment.generator_cores();
        let generator = if own.is_empty() || environment.generator_shares_core() {
            String::new()
        } else {
            let named = plural(own.len(), "core", "cores");
            format!(" (the generator has {named} {})", core_list(&own))
        };
        texts.push(format!(
            "Client, server and proxies share {named} {}{generator}: latency and throughput are those of \
             {whose}, and wake-ups that idle cores would pay for do not show.",
            core_list(&shared)
        ));
    }
    if environment.generator_shares_core() {
        texts.push(
            "The load generator shares cores with the system under test: its own work affects latency."
                .to_owned(),
        );
    }
    texts
}

/// The analysis's own caveats, each in a sentence.
pub(crate) fn caveats(source: Source<'_>) -> Vec<String> {
    let all = source.analysis.caveats.iter();
    all.map(|caveat| caveats::sentence(caveat, source.loads()))
        .collect()
}

/// All other caveats, most important first. `runs`: those of one spec, `source` among them.
pub(crate) fn notes(source: Source<'_>, runs: &[Source<'_>]) -> Vec<String> {
    let all = &source.analysis.caveats;
    let mut notes = caveats(source);
    let is_published = |caveat: &Caveat| matches!(caveat, Caveat::PublishedFigures { .. });
    if all.iter().any(is_published) {
        notes.extend(study::unmatched(runs));
    }
    notes.extend(gaps(source));
    notes.extend(inconclusive(source));
    notes.extend(noise_floor(source));
    notes.extend(margins(source));
    notes.extend(injected(source));
    notes.extend(options(source));
    notes.extend(limits::notes(source));
    notes.extend(without_cluster(source));
    notes.extend(marks(source));
    notes
}

/// Which primary effects a longer run would decide, the soonest first.
fn inconclusive(source: Source<'_>) -> Option<String> {
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
                "{} {} {}",
                effect.variant,
                effect.metric.name(),
                at_load(point)
            );
            Some((effect.longer_to_tell?, what))
        })
        .collect();
    open.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut parts: Vec<String> = open
        .iter()
        .take(SHOWN)
        .map(|(factor, what)| format!("{what} (`--time {}`)", roughly(took_ns * factor)))
        .collect();
    if open.len() > SHOWN {
        parts.push(format!("{} more", open.len() - SHOWN));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Inconclusive, with the length of a run that would decide if the effect is as large as estimated: {}.",
            parts.join(", ")
        )
    })
}

/// A length for `--time`, without more digits than such a guess has.
fn roughly(ns: f64) -> String {
    let minutes = (ns / 60e9).ceil().max(1.0);
    if minutes < 120.0 {
        return format!("{minutes:.0}m");
    }
    format!("{:.0}h", (minutes / 60.0).ceil())
}

/// Load points that a variant does not support.
fn gaps(source: Source<'_>) -> Vec<String> {
    let experiment = &source.analysis.experiment;
    let of_variant = |variant: &'_ Variant| -> Option<String> {
        let gaps = source
            .points()
            .filter_map(|point| Some((point, experiment.gap(variant, point)?)));
        let (points, why): (Vec<_>, Vec<_>) = gaps.unzip();
        let names: Vec<String> = points.into_iter().map(at_load).collect();
        let why = why.first()?;
        Some(format!(
            "{} was not measured {}: {why}.",
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
            "Verdicts are adjusted for multiple comparisons (Holm), except those marked {UNADJUSTED}."
        )),
        (true, false) => Some("Verdicts are adjusted for multiple comparisons (Holm).".to_owned()),
        (false, true) => Some(format!(
            "{UNADJUSTED}: verdicts not adjusted for multiple comparisons."
        )),
        (false, false) => None,
    }
}

fn noise_floor(source: Source<'_>) -> Option<String> {
    let mut parts = Vec::new();
    // The summary names the only steady load.
    let is_only_steady = source.points().filter(|point| point.is_steady()).count() == 1;
    for point in source.points() {
        let metrics: &[Metric] = if point.is_steady() {
            &[
                Metric::ResponseP50,
                Metric::ResponseP99,
                Metric::CpuPerRequest,
            ]
        } else {
            &[Metric::CpuPerRequest]
        };
        let figures: Vec<String> = metrics
            .iter()
            .filter_map(|m| floor_text(source, point, *m))
            .collect();
        if !figures.is_empty() {
            parts.push(match point.is_steady() && is_only_steady {
                true => figures.join(", "),
                false => format!("{} {}", figures.join(", "), at_load(point)),
            });
        }
    }
    (!parts.is_empty()).then(|| format!("Noise floor (A/A): {}.", parts.join("; ")))
}

/// What *no relevant difference* means here: the margins of the metrics with an effect, each with its metrics.
fn margins(source: Source<'_>) -> Option<String> {
    let mut parts: Vec<(String, Vec<&str>)> = Vec::new();
    let metrics: BTreeSet<Metric> = source.analysis.effects.iter().map(|e| e.metric).collect();
    for metric in metrics {
        let margin = labels::margin(&source.analysis.experiment.margins, metric);
        match parts.iter_mut().find(|(other, _)| *other == margin) {
            Some((_, names)) => names.push(metric.name()),
            None => parts.push((margin, vec![metric.name()])),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(margin, names)| format!("{} {margin}", names.join(", ")))
        .collect();
    (!parts.is_empty()).then(|| format!("Margins, fixed before the run: {}.", parts.join("; ")))
}

fn floor_text(source: Source<'_>, point: &LoadPoint, metric: Metric) -> Option<String> {
    let floor: &NoiseFloor = source
        .analysis
        .noise_floor
        .iter()
        .find(|f| f.load_point == point.id && f.metric == metric)?;
    let value = floor.absolute?;
    let (name, unit) = match metric {
        Metric::CpuPerRequest => ("CPU", CPU_MS_PER_1K),
        latency => (latency.name(), format::time_unit(value)),
    };
    let figure = format::two_digits(value * unit.factor);
    Some(format!("{name} ±{figure} {}", unit.name))
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

/// A spec is the same on every engine.
fn without_cluster(source: Source<'_>) -> Option<String> {
    let is_ignored = source.analysis.experiment.kubernetes.is_some()
        && source.analysis.environment.kubernetes.is_none();
    is_ignored.then(|| {
        "The pod settings in the spec (`kubernetes`) apply only to runs on a cluster, and had no effect here.".to_owned()
    })
}

/// Additional work and configuration of the proxies, beyond their level.
fn options(source: Source<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for (asked, _) in source.measured() {
        if let Some(extra) = asked.options.extra_endpoints {
            let changes = extra.changes_per_s.map_or_else(String::new, |rate| {
                format!(
                    ", {} of which are replaced per second during the measurement",
                    format::trimmed(rate)
                )
            });
            texts.push(format!(
                "{}: each proxy is configured with {} additional endpoints of {} services that nobody \
                 calls{changes}.",
                asked.id,
                grouped(f64::from(extra.endpoints), 0),
                grouped(f64::from(extra.services()), 0),
            ));
        }
        if asked.options.access_log {
            texts.push(format!(
                "{}: its proxies write an access log line per request; shipping the log is not included.",
                asked.id
            ));
        }
        if let Some(share) = asked.options.tracing {
            texts.push(format!(
                "{}: its proxies send spans of {} % of the requests to a collector in their pod, whose cost is \
                 not included.",
                asked.id,
                format::trimmed(share * 100.0)
            ));
        }
        if asked.options.all_stats {
            texts.push(format!(
                "{}: its proxies keep all their statistics; Istio's keep a few.",
                asked.id
            ));
        }
    }
    texts
}

/// What was run, on what, by what.
pub(crate) fn facts(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Run", run(analysis)),
        ("Design", design(analysis)),
        ("Machine", machine(&analysis.environment)),
    ];
    let programs: Vec<String> = programs(analysis).chain(workers(analysis)).collect();
    facts.push(("Programs", programs.join("; ")));
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

fn run(analysis: &Analysis) -> String {
    let run = &analysis.run;
    let ending = match &run.ending {
        Some(Ending::TimeUsed) => "time used",
        Some(Ending::PrecisionReached) => "precision reached",
        Some(Ending::Interrupted) => "interrupted",
        Some(Ending::Failed { .. }) => "failed",
        None => "unknown end",
    };
    let resumed = match run.resumptions.len() {
        0 => String::new(),
        1 => ", resumed once".to_owned(),
        times => format!(", resumed {times} times"),
    };
    format!(
        "{}, {}, {} ({ending}{resumed}), seed {}, meshtax {}",
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

/// User input, without terminal control sequences.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The service under test, and its replicas and address type unless it is a single pod with its own address.
fn answers(experiment: &Experiment) -> String {
    let size = |bytes: u32| format::bytes(u64::from(bytes));
    let topology = &experiment.topology;
    let usual = experiment.workload.response_bytes;
    let points = experiment.load_points.iter();
    let sizes = points.map(|point| point.response_bytes.unwrap_or(usual));
    let (low, high) = sizes.fold((u32::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
    let mut text = match topology.program() {
        Some(program) => format!(
            "responses of `{}` at port {}, {}",
            printable(&program.command.join(" ")),
            program.port,
            program.path
        ),
        None if low >= high => format!("{} responses", size(high)),
        None => format!("responses of {} to {}", size(low), size(high)),
    };
    if let Some(name) = &topology.name {
        let clients = match topology.entry_point_count() {
            1 => String::new(),
            called => format!(" ({called} of them entry points)"),
        };
        text.push_str(&format!(
            ", topology {}: {} services{clients}, {} calls between them per request",
            printable(name),
            topology.services.len(),
            grouped(topology.calls_per_request(), 2)
        ));
    }
    let entry = topology.entry_points().next();
    match entry.map(|service| (service.replicas, service.address)) {
        None | Some((1, ServiceAddress::Virtual)) => {}
        Some((_, ServiceAddress::Pod)) => text.push_str(", called by the pod's address"),
        Some((n, _)) => text.push_str(&format!(", {n} replicas behind the service address")),
    }
    let clients = experiment.workload.clients;
    if clients > 1 {
        text.push_str(&format!(
            ", called by {clients} client pods that share the load, each with its own proxy"
        ));
    }
    let nodes = topology.server_nodes();
    if nodes > 1 {
        text.push_str(&format!(
            ", distributed over {nodes} server nodes, which share cores here"
        ));
    }
    if experiment.placement == Placement::OneNode {
        text.push_str(", client and services on one node");
    }
    text
}

/// Where it was measured.
pub(crate) fn machine(environment: &Environment) -> String {
    let mut parts: Vec<String> = Vec::new();
    for machine in environment.machines.iter().map(host) {
        if !parts.contains(&machine) {
            parts.push(machine);
        }
    }
    if let Some(version) = &environment.kubernetes {
        parts.push(format!("Kubernetes {version}"));
    }
    if environment.rootless {
        parts.push("rootless".to_owned());
    }
    let generator = environment.generator_cores();
    if !generator.is_empty() {
        let named = plural(generator.len(), "core", "cores");
        parts.push(format!("generator on {named} {}", core_list(&generator)));
    }
    let [client, server] =
        [NodeRole::Client, NodeRole::Server].map(|role| environment.tested_cores(role));
    if !environment.ends_share_cores() && !client.is_empty() {
        parts.push(format!(
            "client's node on {}, server's on {}",
            core_list(&client),
            core_list(&server)
        ));
    }
    parts.join(", ")
}

fn host(host: &Host) -> String {
    let cores = plural(host.cores as usize, "core", "cores");
    let virtual_machine = if host.virtual_machine {
        ", virtual machine"
    } else {
        ""
    };
    format!(
        "{} {cores}, {}, Linux {}{virtual_machine}",
        host.cores, host.cpu_model, host.kernel
    )
}

/// The cores of one machine; of several machines, without their names.
fn core_list(cores: &BTreeSet<(u32, u32)>) -> String {
    let numbers: Vec<u32> = cores.iter().map(|(_, core)| *core).collect();
    format::cores(&numbers)
}

/// One for each build: `ztunnel 1.28.0 (it does not parse HTTP)`.
fn programs(analysis: &Analysis) -> impl Iterator<Item = String> {
    // The versions of one program have one note.
    let mut listed: Vec<(&str, Option<&str>, Vec<&str>)> = Vec::new();
    for artifact in &analysis.environment.artifacts {
        let (plane, note) = (artifact.data_plane.as_str(), artifact.note.as_deref());
        match listed.iter_mut().find(|of| (of.0, of.1) == (plane, note)) {
            Some((.., versions)) => versions.push(&artifact.version),
            None => listed.push((plane, note, vec![&artifact.version])),
        }
    }
    listed.into_iter().map(|(plane, note, versions)| {
        let note = note.map_or_else(String::new, |note| format!(" ({note})"));
        format!("{plane} {}{note}", versions.join(", "))
    })
}

/// Threads of each proxy; `None`: there is none.
fn workers(analysis: &Analysis) -> Option<String> {
    let artifacts = &analysis.environment.artifacts;
    if artifacts.is_empty() {
        return None;
    }
    Some(match analysis.experiment.workers {
        Workers::Equal(workers) => {
            let named = plural(workers as usize, "worker", "workers");
            format!("{workers} {named} per proxy")
        }
        Workers::Native => {
            let each: BTreeMap<&str, u32> = artifacts
                .iter()
                .filter_map(|a| Some((a.program.as_str(), a.workers?)))
                .collect();
            let each: Vec<String> = each.iter().map(|(name, n)| format!("{name} {n}")).collect();
            format!("workers by each proxy's own default: {}", each.join(", "))
        }
    })
}
