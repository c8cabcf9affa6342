//! The content of a report on scaling laws.

use meshtax_model::analysis::{Estimate, Interval};
use meshtax_model::scaling::{Grows, Law, Line, NoInterval, Over, ScaledProgram, Scaling};

use crate::format::{self, MILLICORES, grouped};
use crate::view::document::Block;
use crate::view::programs::digest;
use crate::view::reasons::no_line;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// All parts, in order.
pub(crate) fn scaling(scaling: &Scaling) -> Vec<Block> {
    let mut parts = vec![Block::Title(format!(
        "meshtax scale: how costs grow with {}",
        words(scaling.over).more_of
    ))];
    for law in &scaling.laws {
        parts.push(Block::Gap);
        parts.push(Block::Text(in_words(scaling, law), Tone::Strong));
        parts.push(Block::Table(table(scaling.over, law)));
    }
    parts.push(Block::Gap);
    let notes = notes(scaling).into_iter();
    parts.extend(notes.map(Block::Item));
    parts.push(Block::Gap);
    if let Some(text) = programs(scaling) {
        parts.push(Block::Text(text, Tone::Muted));
    }
    parts.push(Block::Text(
        format!("Runs: {}", scaling.runs.join(", ")),
        Tone::Muted,
    ));
    parts
}

/// `Programs: envoy 1.40.0 (SHA-256 0123456789ab)`: memory is that of a build.
fn programs(scaling: &Scaling) -> Option<String> {
    let of_program = |one: &ScaledProgram| {
        let digest = digest(&one.sha256);
        format!("{} {} (SHA-256 {digest})", one.program, one.version)
    };
    let all: Vec<String> = scaling.programs.iter().map(of_program).collect();
    (!all.is_empty()).then(|| format!("Programs: {}", all.join(", ")))
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
            "requests per second",
            "requests/s",
            "for 1,000 requests/s",
            1e3,
        ),
        Over::Clients => words("client pods", "clients", "a client", 1.0),
        Over::Endpoints => words(
            "the endpoints in each proxy's configuration",
            "endpoints",
            "for 1,000 endpoints",
            1e3,
        ),
        Over::Churn => words(
            "endpoint changes per second",
            "changes/s",
            "for one change per second",
            1.0,
        ),
    }
}

/// Name, unit, and what one of the unit is in base units.
fn what(grows: Grows) -> (&'static str, &'static str, f64) {
    match grows {
        Grows::ProxyMemory => ("memory of all proxies", "MiB", 1_048_576.0),
        Grows::AddedMeanLatency => ("added mean latency", "ms", 1e6),
        Grows::AddedCpu => ("added CPU per request", "ms", 1e6),
        Grows::NodePrograms => ("file pages of the proxies on a node", "MiB", 1_048_576.0),
        Grows::NodesMemory => (
            "memory of all proxies and of their programs, a copy on each node",
            "MiB",
            1_048_576.0,
        ),
        Grows::IdleCpu => ("idle CPU of all proxies", MILLICORES.name, 1e-3),
        Grows::ProxyCpu => (
            "CPU of all proxies at the steady load",
            MILLICORES.name,
            1e-3,
        ),
        Grows::ServerProxyMemory => ("memory of the server's proxy", "MiB", 1_048_576.0),
        Grows::ServerProxyCpu => (
            "CPU of the server's proxy at the steady load",
            MILLICORES.name,
            1e-3,
        ),
        Grows::PushTime => ("time until every proxy is fully configured", "ms", 1e6),
        Grows::AddedStart => ("added time from start to first response", "ms", 1e6),
    }
}

/// `envoy-sidecar-mtls, memory of all proxies: 16 MiB and 14.6 MiB a pod`.
fn in_words(scaling: &Scaling, law: &Law) -> String {
    let (name, unit, scale) = what(law.grows);
    let Some(line) = &law.line else {
        return format!("{}, {name}: {}", law.variant, no_line(law.reason));
    };
    let words = words(scaling.over);
    let mut text = format!(
        "{}, {name}: {} {unit} {}, plus {} {unit} fixed",
        law.variant,
        shown(line.each, scale / words.counted_by),
        words.each,
        shown(line.fixed, scale),
    );
    if let Some(text_of_hops) = predicted(scaling, line, unit, scale) {
        text.push_str(&format!("; {text_of_hops}"));
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
    let how = match predicted.no_interval {
        None | Some(NoInterval::NotALine) => "predicted",
        Some(NoInterval::OutsideRange | NoInterval::CallGraph) => "extrapolated",
    };
    let mut text = format!(
        "{}: {} {unit} {how}",
        asked(scaling, predicted.at),
        shown(predicted.value, scale)
    );
    let off = |measured: f64, expected: f64| {
        let percent = (measured / expected - 1.0) * 100.0;
        format!(
            "{} %",
            format::signed(percent, usize::from(percent.abs() < 10.0))
        )
    };
    if let Some(measured) = predicted.measured {
        let decimals = format::decimals_by_size(measured / scale);
        let verdict = match predicted.holds {
            Some(true) => "within the interval".to_owned(),
            Some(false) => "outside the interval".to_owned(),
            None => off(measured, predicted.value.value),
        };
        text.push_str(&format!(
            ", measured {}, {verdict}",
            grouped(measured / scale, decimals)
        ));
    }
    if let Some(error) = predicted.held_out_error {
        text.push_str(&format!(
            " (checked on the outermost run, which the others miss by {} %)",
            format::signed(error * 100.0, usize::from(error.abs() < 0.1))
        ));
    }
    if let Some(by_one) = predicted.by_one {
        let decimals = format::decimals_by_size(by_one / scale);
        text.push_str(&format!(
            "; one hop's cost times the number of hops: {} {unit}",
            grouped(by_one / scale, decimals)
        ));
        if let Some(measured) = predicted.measured.filter(|_| by_one > 0.0) {
            text.push_str(&format!(" (measured {})", off(measured, by_one)));
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
        Column::new("deviation", Align::Right, Keep::Always),
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
        detail: match law.line.as_ref().map(|line| line.lack_of_fit) {
            Some(Some(p_value)) if p_value < 0.05 => {
                format!("one run per point; not a line: a curve fits better (p = {p_value:.2})")
            }
            Some(Some(_)) => "one run per point; no curvature shown".to_owned(),
            Some(None) => "one run per point; too few to test for curvature".to_owned(),
            None => "one run per point".to_owned(),
        },
        columns,
        rows: law.points.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

fn notes(scaling: &Scaling) -> Vec<String> {
    let confidence = format::trimmed(scaling.confidence * 100.0);
    let mut notes = vec![format!(
        "Linear least-squares fit, one point per run; [{confidence} % interval] from the residuals. A prediction \
         interval is for one more run on this machine, within the measured range. Beyond it, and for a call graph, a figure \
         is an extrapolation without an interval."
    )];
    let is_graph = |law: &Law| {
        let predicted = law.line.as_ref().and_then(|line| line.predicted.as_ref());
        predicted
            .is_some_and(|p| p.no_interval == Some(NoInterval::CallGraph) && p.measured.is_none())
    };
    if scaling.laws.iter().any(is_graph) {
        notes.push(
            "Call graphs that were measured as well (--check) deviated from their extrapolation by -2 to +39 % in \
             latency and CPU (docs/scale.md)."
                .to_owned(),
        );
    }
    notes.extend(
        of_its_kind(scaling.over)
            .iter()
            .map(|note| (*note).to_owned()),
    );
    notes
}

/// What must be known of figures over this.
fn of_its_kind(over: Over) -> &'static [&'static str] {
    const MEMORY: &str = "Memory: anonymous pages of the proxies, settled. In addition, a node has one copy of each program's file \
     pages, however many pods run it.";
    match over {
        Over::Pods => &[
            MEMORY,
            "Each proxy here is configured with one service; in a cluster it also holds the configuration of all \
             others (`meshtax scale endpoints`).",
            "Idle CPU: all proxies of the variant while another variant was measured.",
        ],
        Over::Nodes => &[
            "The number of pods is constant: `meshtax scale pods` shows what a pod adds. The fixed part is that \
             of all pods and of the clients' node.",
            "Memory: anonymous pages of the proxies, settled. In addition, each node, including the clients', \
             has one copy of each program's file pages.",
            "Idle CPU: all proxies of the variant while another variant was measured. All nodes share the cores \
             of this machine.",
        ],
        Over::Hops => &[
            "Hops are a mean over requests: for latency, sequential calls plus one; for CPU, all calls plus one; \
             for memory, the number of pods counts.",
            "All services share the cores that the load generator leaves: with more hops they are busier and \
             requests queue, so the relation bends upward.",
        ],
        Over::Rates => &[
            "CPU per request is higher at low rates, since each request wakes sleeping processes: such a curved \
             relation has wide intervals, and should not be extrapolated beyond the measured rates.",
        ],
        Over::Clients => &[
            MEMORY,
            "All runs have the same total rate and number of connections: only the number of client pods, each with \
             its own proxy, differs.",
        ],
        Over::Endpoints => &[
            MEMORY,
            "The additional services are never called: they have endpoints, clusters and routes like the \
             measured one, all on one port.",
            "Times are of this machine, with all proxies of the variant starting at once on shared cores.",
        ],
        Over::Churn => &[
            "A change replaces one endpoint of a service, service by service, and each is pushed individually; \
             Istio's control plane batches changes and pushes less often.",
            "The fixed part is the CPU of the load and what the proxies use without changes.",
        ],
    }
}
