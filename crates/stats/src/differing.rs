//! What is not the same in the plans, machines and programs of runs.

use meshtax_model::comparison::Differing;
use meshtax_model::event::Ending;
use meshtax_model::experiment::{
    Arrivals, Experiment, Ingress, Inject, LoadPoint, Regime, ServiceAddress, Variant,
};

use crate::RunData;
use crate::between::{Options, Runs, candidates, pairs};

/// Each thing of which the two sides do not say the same, machines first. What is the same is left out.
pub(crate) fn differing(runs: Runs<'_>) -> Vec<Differing> {
    let mut found: Vec<Differing> = KNOWN
        .iter()
        .filter_map(|(what, say)| differs(what, runs, say))
        .collect();
    found.extend(named(runs, "program", programs));
    found.extend(named(runs, "variant", variants));
    found.extend(named(runs, "load", load_points));
    found
}

type Say = fn(&RunData<'_>) -> String;

const KNOWN: &[(&str, Say)] = &[
    ("meshtax", |d| d.run.meshtax_version.clone()),
    ("engine", |d| d.environment.engine.clone()),
    ("processor", |d| d.environment.host.cpu_model.clone()),
    ("cores", |d| d.environment.host.cores.to_string()),
    ("main memory", |d| {
        format!("{} MiB", d.environment.host.memory_bytes >> 20)
    }),
    ("kernel", |d| d.environment.host.kernel.clone()),
    ("clock", |d| d.environment.host.clock_source.clone()),
    ("virtual machine", |d| {
        yes(d.environment.host.virtual_machine)
    }),
    ("rootless", |d| yes(d.environment.rootless)),
    ("cores used", layout),
    ("experiment", |d| d.experiment.name.clone()),
    ("service", service),
    ("answers", |d| {
        format!("{} bytes", d.experiment.workload.response_bytes)
    }),
    ("connections", |d| {
        d.experiment.workload.connections.to_string()
    }),
    ("workers of each proxy", |d| {
        d.experiment.equal_work.workers.to_string()
    }),
    ("trial", |d| ms(d.experiment.design.trial_ns)),
    ("warm-up", |d| ms(d.experiment.design.warmup_ns)),
    ("time allowed", |d| ms(d.experiment.design.time_limit_ns)),
];

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn ms(ns: u64) -> String {
    match ns / 1_000_000 {
        ms if ms >= 10_000 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

fn layout(data: &RunData<'_>) -> String {
    let layout = &data.environment.layout;
    let list = |cores: &[u32]| {
        let cores: Vec<String> = cores.iter().map(u32::to_string).collect();
        cores.join("+")
    };
    format!(
        "generator {}, client {}, server {}",
        list(&layout.generator),
        list(&layout.client_node),
        list(&layout.server_node)
    )
}

fn service(data: &RunData<'_>) -> String {
    let service = &data.experiment.service;
    let address = match service.address {
        ServiceAddress::Pod => "pod",
        ServiceAddress::Virtual => "service",
    };
    let mut text = service.graph.as_ref().map_or_else(String::new, |graph| {
        format!(
            "topology {} ({} services), ",
            graph.name,
            graph.others.len() + 1
        )
    });
    let replicas = service.replicas;
    text.push_str(&format!("{replicas} behind the {address}'s address"));
    if service.nodes > 1 {
        text.push_str(&format!(", on {} nodes", service.nodes));
    }
    if let Some(program) = &service.program {
        let command = program.command.join(" ");
        text.push_str(&format!(
            ", `{command}` at {}{}",
            program.port, program.path
        ));
    }
    text
}

/// What each program, variant or load point is called, and what is to be said of it.
type Named = fn(&RunData<'_>) -> Vec<(String, String)>;

fn programs(data: &RunData<'_>) -> Vec<(String, String)> {
    let all = data.environment.artifacts.iter();
    all.map(|a| {
        let digest: String = a.sha256.chars().take(12).collect();
        let text = match digest.as_str() {
            "" => a.version.clone(),
            digest => format!("{} (sha256 {digest})", a.version),
        };
        (a.data_plane.clone(), text)
    })
    .collect()
}

fn variants(data: &RunData<'_>) -> Vec<(String, String)> {
    let all = data.experiment.variants.iter();
    all.map(|v| (v.id.0.clone(), variant(v))).collect()
}

fn variant(variant: &Variant) -> String {
    let mut text = variant.data_plane.clone();
    if let Some(level) = variant.level {
        text.push_str(&format!(" {level}"));
    }
    match variant.inject {
        None => {}
        // How long a share of the p50 is, a pilot measured: it is never twice the same.
        Some(Inject::DelayNs(ns)) => text.push_str(&format!(" with a delay of {ns} ns")),
        Some(Inject::DelayShareOfP50(share)) => {
            text.push_str(&format!(" with a delay of {} % of p50", share * 100.0));
        }
        Some(Inject::DelaySome { delay_ns, share }) => text.push_str(&format!(
            " with a delay of {delay_ns} ns for {} % of the requests",
            share * 100.0
        )),
        Some(Inject::BurnSteps(steps)) => text.push_str(&format!(" with {steps} steps of work")),
        Some(Inject::HoldBytes(bytes)) => text.push_str(&format!(" holding {bytes} bytes")),
        Some(Inject::CapPerS(rate)) => text.push_str(&format!(" capped at {rate}/s")),
        Some(Inject::LeakBytes(bytes)) => text.push_str(&format!(" leaking {bytes} bytes")),
    }
    if let Some(knows) = variant.options.knows {
        let (all, each) = (knows.endpoints, knows.per_service);
        text.push_str(&format!(" knowing {all} endpoints, {each} of a service"));
        if let Some(rate) = knows.changes_per_s {
            text.push_str(&format!(", of which {rate}/s change"));
        }
    }
    if variant.options.access_log {
        text.push_str(" with a log of requests");
    }
    if let Some(share) = variant.options.tracing {
        text.push_str(&format!(" tracing {} % of the requests", share * 100.0));
    }
    text
}

fn load_points(data: &RunData<'_>) -> Vec<(String, String)> {
    let all = data.experiment.load_points.iter();
    all.map(|p| (p.id.0.clone(), load_point(p))).collect()
}

fn load_point(point: &LoadPoint) -> String {
    let mut text = match point.load {
        Regime::Steady {
            rate_per_s,
            arrivals,
        } => {
            let arrivals = match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "Poisson",
            };
            format!("{rate_per_s}/s {arrivals}")
        }
        Regime::Saturated => "closed loop".to_owned(),
    };
    text.push_str(&format!(", {}", point.protocol));
    if let Some(connections) = point.connections {
        let what = if point.by_users {
            "users"
        } else {
            "connections"
        };
        text.push_str(&format!(", {connections} {what}"));
    }
    if let Some(most) = point.requests_per_connection {
        text.push_str(&format!(", {most} requests on a connection"));
    }
    if let Some(bytes) = point.response_bytes {
        text.push_str(&format!(", answers of {bytes} bytes"));
    }
    text.push_str(match point.ingress {
        None => "",
        Some(Ingress::Plaintext) => ", by ingress",
        Some(Ingress::Tls) => ", by ingress over TLS",
    });
    text
}

/// What the runs of a side say between them, each thing once.
fn said(side: &[RunData<'_>], say: impl Fn(&RunData<'_>) -> String) -> Vec<String> {
    let mut all: Vec<String> = side.iter().map(say).collect();
    all.sort();
    all.dedup();
    all
}

fn differs(what: &str, runs: Runs<'_>, say: impl Fn(&RunData<'_>) -> String) -> Option<Differing> {
    let (base, new) = (said(runs.base, &say), said(runs.new, &say));
    (base != new || base.len() > 1).then(|| Differing {
        what: what.to_owned(),
        base: base.join("; "),
        new: new.join("; "),
    })
}

fn named(runs: Runs<'_>, what: &str, all: Named) -> Vec<Differing> {
    let mut names: Vec<String> = Vec::new();
    for data in runs.base.iter().chain(runs.new) {
        for (name, _) in all(data) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
        .iter()
        .filter_map(|name| {
            differs(&format!("{what} {name}"), runs, |data| {
                let own = all(data).into_iter().find(|(other, _)| other == name);
                own.map_or_else(|| "not there".to_owned(), |(_, text)| text)
            })
        })
        .collect()
}

/// What only one side has, runs that are not whole, runs that stand on both sides.
pub(crate) fn notes(runs: Runs<'_>, options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    for data in runs.base {
        if runs.new.iter().any(|other| other.run.id == data.run.id) {
            let id = &data.run.id;
            notes.push(format!("{id} stands on both sides: nothing can differ."));
        }
    }
    if let (Some(base), Some(new)) = (runs.base.first(), runs.new.first()) {
        notes.extend(alone(base.experiment, new.experiment, options));
        if base.run.seed == new.run.seed && base.run.id != new.run.id {
            let seed = base.run.seed;
            notes.push(format!(
                "Same seed ({seed}): the same order and the same arrivals."
            ));
        }
    }
    for (side, all) in [("BASE", runs.base), ("NEW", runs.new)] {
        for data in all {
            let how = match &data.run.ending {
                Some(Ending::TimeUsed | Ending::PrecisionReached) => continue,
                Some(Ending::Interrupted) => "was interrupted".to_owned(),
                Some(Ending::Failed { reason }) => format!("broke off: {reason}"),
                None => "has no end on record".to_owned(),
            };
            notes.push(format!("{side}'s run {} {how}.", data.run.id));
        }
    }
    notes
}

fn alone(base: &Experiment, new: &Experiment, options: &Options) -> Vec<String> {
    let pairs = pairs(base, new, options);
    let mut notes = Vec::new();
    let mut tell = |what: &str, side: &str, ids: Vec<&str>| {
        if !ids.is_empty() {
            notes.push(format!(
                "Only in {side}, and not compared: {what} {}.",
                ids.join(", ")
            ));
        }
    };
    let left = candidates(base).filter(|v| !pairs.iter().any(|(one, _)| one.id == v.id));
    tell("variant", "BASE", left.map(|v| v.id.0.as_str()).collect());
    let left = candidates(new).filter(|v| !pairs.iter().any(|(_, two)| two.id == v.id));
    tell("variant", "NEW", left.map(|v| v.id.0.as_str()).collect());
    let points = |side: &'_ Experiment, other: &Experiment| -> Vec<String> {
        let all = side.load_points.iter();
        let missing = all.filter(|p| {
            other
                .load_point(&p.id)
                .is_none_or(|o| o.is_steady() != p.is_steady())
        });
        missing.map(|p| p.id.0.clone()).collect()
    };
    let (one, two) = (points(base, new), points(new, base));
    tell("load", "BASE", one.iter().map(String::as_str).collect());
    tell("load", "NEW", two.iter().map(String::as_str).collect());
    notes
}
