//! What scaling laws say.

use meshtax_model::analysis::{Estimate, Interval};
use meshtax_model::scaling::{Grows, Law, Line, Over, Scaling};

use super::{Align, Cell, Column, Keep, Part, Table, Tone};
use crate::format::{self, MILLICORES, grouped};

/// All of it, one below the other.
pub(crate) fn parts(scaling: &Scaling) -> Vec<Part> {
    let mut parts = vec![Part::Title(format!(
        "meshtax scale: how costs grow with {}",
        words(scaling.over).more_of
    ))];
    for law in &scaling.laws {
        parts.push(Part::Gap);
        parts.push(Part::Text(in_words(scaling, law), Tone::Strong));
        parts.push(Part::Table(table(scaling.over, law)));
    }
    parts.push(Part::Gap);
    let notes = notes(scaling).into_iter();
    parts.extend(notes.map(Part::Item));
    parts.push(Part::Gap);
    parts.push(Part::Text(
        format!("Runs: {}", scaling.runs.join(", ")),
        Tone::Muted,
    ));
    parts
}

/// How what there is more of is called.
struct Words {
    more_of: &'static str,
    /// Above its column.
    column: &'static str,
    /// Behind what so many of them add.
    each: &'static str,
    /// How many that are: one endpoint adds too little for a figure.
    counted_by: f64,
}

fn words(over: Over) -> Words {
    let words = |more_of, column, each, counted_by| Words {
        more_of,
        column,
        each,
        counted_by,
    };
    match over {
        Over::Pods => words("pods", "pods", "a pod", 1.0),
        Over::Nodes => words("the servers' nodes", "nodes", "a node", 1.0),
        Over::Hops => words("hops", "hops", "a hop", 1.0),
        Over::Rates => words(
            "the requests in a second",
            "requests/s",
            "for 1,000 requests/s",
            1e3,
        ),
        Over::Known => words(
            "the endpoints that each proxy knows",
            "endpoints",
            "for 1,000 endpoints",
            1e3,
        ),
        Over::Churn => words(
            "the endpoints that change in a second",
            "changes/s",
            "for one change a second",
            1.0,
        ),
    }
}

/// Name, unit, and what one of the unit is in base units.
fn what(grows: Grows) -> (&'static str, &'static str, f64) {
    match grows {
        Grows::ProxyMemory => ("memory of all proxies", "MiB", 1_048_576.0),
        Grows::AddedMeanLatency => ("added mean latency", "ms", 1e6),
        Grows::AddedCpu => ("added CPU for a request", "ms", 1e6),
        Grows::NodePrograms => ("file pages of the proxies on a node", "MiB", 1_048_576.0),
        Grows::NodesMemory => (
            "memory of all proxies and of their programs, a copy on each node",
            "MiB",
            1_048_576.0,
        ),
        Grows::IdleCpu => ("CPU of all proxies without requests", MILLICORES.name, 1e-3),
        Grows::ProxyCpu => (
            "CPU of all proxies at the steady load",
            MILLICORES.name,
            1e-3,
        ),
        Grows::PushTime => ("time until every proxy holds it all", "ms", 1e6),
        Grows::AddedStart => ("added time from start to first answer", "ms", 1e6),
    }
}

/// `envoy-sidecar-mtls, memory of all proxies: 16 MiB and 14.6 MiB a pod`.
fn in_words(scaling: &Scaling, law: &Law) -> String {
    let (name, unit, scale) = what(law.grows);
    let Some(line) = &law.line else {
        let reason = law.reason.as_deref().unwrap_or("no line");
        return format!("{}, {name}: {reason}", law.variant);
    };
    let words = words(scaling.over);
    let mut text = format!(
        "{}, {name}: {} {unit} {}, and {} {unit} besides",
        law.variant,
        shown(line.each, scale / words.counted_by),
        words.each,
        shown(line.fixed, scale),
    );
    if let Some(said) = predicted(scaling, line, unit, scale) {
        text.push_str(&format!("; {said}"));
    }
    text
}

/// `at 150`, or `for bookinfo, as for 3.67`.
fn asked(scaling: &Scaling, at: f64) -> String {
    match &scaling.topology {
        None => format!("at {}", format::trimmed(at)),
        Some(topology) => format!(
            "for {topology}, as for {} {}",
            grouped(at, if at.fract() == 0.0 { 0 } else { 2 }),
            words(scaling.over).column
        ),
    }
}

fn predicted(scaling: &Scaling, line: &Line, unit: &str, scale: f64) -> Option<String> {
    let predicted = line.predicted.as_ref()?;
    let mut text = format!(
        "{}: {} {unit} predicted",
        asked(scaling, predicted.at),
        shown(predicted.value, scale)
    );
    if let Some(measured) = predicted.measured {
        let decimals = format::decimals_by_size(measured / scale);
        text.push_str(&format!(
            ", {} measured, {}",
            grouped(measured / scale, decimals),
            match predicted.holds {
                Some(true) => "within the interval",
                Some(false) => "outside of the interval",
                None => "and no interval to hold it against",
            }
        ));
    }
    if let Some(by_one) = predicted.by_one {
        let said = shown(by_one, scale);
        text.push_str(&format!(
            "; what one hop adds, so many times: {said} {unit}"
        ));
        if let Some(measured) = predicted.measured.filter(|_| by_one.value > 0.0) {
            let off = (measured / by_one.value - 1.0) * 100.0;
            text.push_str(&format!(" (measured {} %)", format::signed(off, 0)));
        }
    }
    Some(text)
}

/// With its interval, and as many digits as that carries.
fn shown(estimate: Estimate, scale: f64) -> String {
    let value = estimate.value / scale;
    let interval = estimate.interval.map(|interval| Interval {
        low: interval.low / scale,
        high: interval.high / scale,
    });
    let decimals = format::decimals_by_interval(value, interval);
    let text = grouped(value, decimals);
    match interval {
        Some(interval) => format!("{text} {}", format::interval_text(interval, decimals)),
        None => text,
    }
}

fn table(over: Over, law: &Law) -> Table {
    let (name, unit, scale) = what(law.grows);
    let columns = vec![
        Column::new(words(over).column, Align::Right, Keep::Always),
        Column::new(format!("measured {unit}"), Align::Right, Keep::Always),
        Column::new("off the line", Align::Right, Keep::Always),
    ];
    let row = |(at, value): &(u32, f64)| {
        let on_the_line = |line: &Line| line.fixed.value + line.each.value * f64::from(*at);
        let off = law
            .line
            .as_ref()
            .map(|line| (value - on_the_line(line)) / value * 100.0);
        vec![
            Cell::text(grouped(f64::from(*at), 0)),
            Cell::text(grouped(
                value / scale,
                format::decimals_by_size(value / scale),
            )),
            match off.filter(|off| off.is_finite()) {
                Some(off) => Cell::text(format!("{} %", format::signed(off, 1))),
                None => Cell::missing(),
            },
        ]
    };
    Table {
        title: name.to_owned(),
        detail: "one run each".to_owned(),
        columns,
        rows: law.points.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

fn notes(scaling: &Scaling) -> Vec<String> {
    let confidence = format::trimmed(scaling.confidence * 100.0);
    let mut notes = vec![format!(
        "A straight line by least squares, a run is one point; [{confidence} % interval] by what the runs are off the \
         line. A prediction's interval is of one more run, on this machine."
    )];
    notes.extend(
        of_its_kind(scaling.over)
            .iter()
            .map(|note| (*note).to_owned()),
    );
    notes
}

/// What must be known of figures over this.
fn of_its_kind(over: Over) -> &'static [&'static str] {
    const MEMORY: &str = "Memory is what the proxies hold themselves (anonymous pages, settled). A node has one copy of \
        each program's file pages besides, however many pods run it.";
    match over {
        Over::Pods => &[
            MEMORY,
            "Each proxy here knows one service: in a cluster it holds what it knows of all others, too \
             (`meshtax scale known`).",
            "CPU without requests is that of all proxies while another variant was measured.",
        ],
        Over::Nodes => &[
            "The number of pods stays: what a pod adds is the law of `meshtax scale pods`. What stands besides is that \
             of all pods, and of the clients' node.",
            "Memory is what the proxies hold themselves (anonymous pages, settled). Each node, the clients' included, \
             has one copy of each program's file pages.",
            "CPU without requests is that of all proxies while another variant was measured. All nodes share the cores \
             of this machine.",
        ],
        Over::Hops => &[
            "A topology's hops are a mean over requests: one more than its calls that lie one behind the other for \
             latency, than all its calls for CPU; for memory its pods count.",
            "All services share the cores that the generator leaves: with more hops they are busier, and requests wait. \
             A line that bends upward shows it.",
        ],
        Over::Rates => &[
            "At a low rate a request costs more CPU than at a high one, since every one wakes processes that sleep: a \
             line that bends so has wide intervals, and no rate beyond those measured should be read off it.",
        ],
        Over::Known => &[
            MEMORY,
            "What is known is nobody's to call: services of the mesh with endpoints, clusters and routes as the measured \
             one has them, all on one port.",
            "Times are those of this machine, with all proxies of the variant at once on the cores that they share.",
        ],
        Over::Churn => &[
            "A change replaces one endpoint of a service by another, service by service, and each is sent by itself: \
             Istio's control plane gathers what comes close together, and sends less.",
            "What stands besides is the load's own CPU and what the proxies use without changes.",
        ],
    }
}
