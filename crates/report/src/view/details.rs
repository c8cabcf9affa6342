//! Details for pages only: comparisons between variants, the whole CPU account, memory.

use crate::view::reasons::{not_estimable, withheld};
use meshtax_model::analysis::{Comparison, ComponentMemory, NodeMemory, VariantAnalysis, Verdict};
use meshtax_model::environment::{CpuSplit, NodeRole};
use meshtax_model::experiment::{LoadPoint, Variant};

use crate::format::{self, CPU_MS_PER_1K, MIB, PERCENT, grouped};
use crate::view::labels::{ROLES, name_cell, role_name};
use crate::view::source::{Source, load_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// All of them.
pub(crate) fn tables(source: Source<'_>) -> Vec<Table> {
    let mut tables = vec![comparisons(source)];
    tables.extend(source.points().map(|point| account(source, point)));
    tables.push(memory(source));
    tables.push(nodes(source));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn comparisons(source: Source<'_>) -> Table {
    let row = |c: &Comparison| {
        let point = source.analysis.experiment.load_point(&c.load_point);
        let change = c.relative.map_or_else(Cell::missing, |relative| {
            let (value, interval) = format::estimate(relative, PERCENT);
            Cell::figure(value, interval.unwrap_or_default())
        });
        let verdict = match &c.verdict {
            Verdict::Different => Cell::text("different").toned(Tone::Strong),
            Verdict::Overloaded(_) => Cell::text("overloaded").toned(Tone::Bad),
            Verdict::Equivalent => Cell::text("equivalent"),
            Verdict::Inconclusive => Cell::text(match (c.withheld, c.longer_to_tell) {
                (Some(why), _) => format!("inconclusive: {}", withheld(why)),
                (None, Some(factor)) => format!(
                    "inconclusive; a run {} times as long would decide",
                    grouped(factor.ceil().max(2.0), 0)
                ),
                (None, None) => "inconclusive".to_owned(),
            }),
            Verdict::NotEstimable { reason } => Cell::text(format!(
                "not estimable: {}",
                not_estimable(reason, Some(&c.second))
            )),
        };
        vec![
            Cell::text(c.second.0.clone()),
            Cell::text(c.first.0.clone()),
            Cell::text(format!(
                "{}, {}",
                c.metric.name(),
                point.map(load_in_words).unwrap_or_default()
            )),
            change,
            verdict,
        ]
    };
    Table {
        title: "Comparisons between variants".to_owned(),
        detail: "paired differences; verdicts adjusted for multiple comparisons (Holm)".to_owned(),
        columns: vec![
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("against", Align::Left, Keep::Always),
            Column::new("in", Align::Left, Keep::Always),
            Column::new("change %", Align::Left, Keep::Always),
            Column::new("", Align::Left, Keep::Always),
        ],
        rows: source.analysis.comparisons.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

/// The CPU account of the machine: a row per component, then the unattributed time.
fn account(source: Source<'_>, point: &LoadPoint) -> Table {
    let machines = &source.analysis.environment.machines;
    let sampled = match machines.first().map_or(CpuSplit::Unknown, |m| m.cpu_split) {
        CpuSplit::Exact => "",
        CpuSplit::Sampled | CpuSplit::Unknown => " (sampled)",
    };
    let mut rows = Vec::new();
    for (asked, found) in source.measured() {
        rows.extend(account_rows(asked, found, point));
    }
    let columns = vec![
        Column::new("variant", Align::Left, Keep::Always),
        Column::new("", Align::Left, Keep::Always),
        Column::new(CPU_MS_PER_1K.name, Align::Right, Keep::Always),
        Column::new(format!("kernel{sampled}"), Align::Right, Keep::Always),
        Column::new("share of busy time", Align::Right, Keep::Always),
        Column::new("context switches/request", Align::Right, Keep::Always),
        Column::new("bytes in/request", Align::Right, Keep::Always),
        Column::new("bytes out/request", Align::Right, Keep::Always),
    ];
    Table {
        title: format!("CPU of the whole machine, {}", load_in_words(point)),
        detail: "bytes: on the links of the pods; the last rows belong to no component".to_owned(),
        columns,
        rows,
        footnotes: Vec::new(),
    }
}

fn account_rows(asked: &Variant, found: &VariantAnalysis, point: &LoadPoint) -> Vec<Vec<Cell>> {
    let Some(cpu) = point_of(found, &point.id).and_then(|p| p.cpu.as_ref()) else {
        return Vec::new();
    };
    let ms = |ns: f64| grouped(ns * CPU_MS_PER_1K.factor, 1);
    let percent = |share: f64| format!("{} %", grouped(share * 100.0, 1));
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (role, name) in ROLES {
        for component in cpu.components.iter().filter(|c| c.role == role) {
            let link = cpu.links.iter().find(|link| link.role == role);
            let or_empty = |text: Option<String>| text.map_or_else(Cell::empty, Cell::text);
            let bytes = |count: f64| grouped(count, 0);
            rows.push(vec![
                Cell::empty(),
                Cell::text(name),
                Cell::text(ms(component.cpu_per_request_ns)),
                or_empty(component.system_per_request_ns.map(ms)),
                or_empty(component.share_of_busy.map(percent)),
                or_empty(component.switches_per_request.map(|n| grouped(n, 2))),
                or_empty(link.map(|l| bytes(l.received_bytes))),
                or_empty(link.map(|l| bytes(l.sent_bytes))),
            ]);
        }
    }
    let rest: [(&str, Option<u64>); 4] = [
        ("unattributed", cpu.unattributed_ns),
        ("of which kernel threads", cpu.kernel_threads_ns),
        (
            "interrupts (sampled)",
            Some(cpu.interrupts_ns).filter(|ns| *ns > 0),
        ),
        ("eBPF programs (also included above)", cpu.bpf_ns),
    ];
    for (name, ns) in rest {
        if let Some(ns) = ns {
            let share = (cpu.busy_ns > 0).then(|| percent(ns as f64 / cpu.busy_ns as f64));
            let mut cells = vec![
                Cell::empty(),
                Cell::text(name).toned(Tone::Muted),
                Cell::text(ms(ns as f64 / cpu.requests.max(1) as f64)),
                Cell::empty(),
                share.map_or_else(Cell::empty, Cell::text),
            ];
            cells.resize(8, Cell::empty());
            rows.push(cells);
        }
    }
    if let Some(first) = rows.first_mut() {
        first[0] = name_cell(asked);
    }
    rows
}

fn mib(bytes: u64) -> String {
    grouped(bytes as f64 * MIB.factor, 1)
}

fn memory(source: Source<'_>) -> Table {
    let mut rows = Vec::new();
    for (asked, found) in source.measured() {
        for (at, memory) in found.memory.iter().enumerate() {
            let name = if at == 0 {
                name_cell(asked)
            } else {
                Cell::empty()
            };
            rows.push(memory_row(name, memory));
        }
    }
    let heads = [
        "anonymous MiB",
        "settled",
        "peak incl. file pages",
        "file",
        "PSS",
    ];
    let mut columns = vec![
        Column::new("variant", Align::Left, Keep::Always),
        Column::new("", Align::Left, Keep::Always),
    ];
    columns.extend(heads.map(|head| Column::new(head, Align::Right, Keep::Always)));
    columns.push(Column::new("growth KiB/s", Align::Right, Keep::Always));
    Table {
        title: "Memory".to_owned(),
        detail: "medians over the trials; settled: over the second half of each round; growth: within the windows"
            .to_owned(),
        columns,
        rows,
        footnotes: Vec::new(),
    }
}

fn memory_row(name: Cell, memory: &ComponentMemory) -> Vec<Cell> {
    let mut cells = vec![name, Cell::text(role_name(memory.role))];
    let figures = [
        memory.anonymous_bytes,
        memory.settled_bytes,
        memory.peak_bytes,
        memory.file_bytes,
        memory.pss_bytes,
    ];
    cells.extend(figures.map(|bytes| Cell::text(mib(bytes))));
    cells.push(
        memory
            .growth_bytes_per_s
            .map_or_else(Cell::missing, |rate| Cell::text(grouped(rate / 1024.0, 0))),
    );
    cells
}

fn node_name(source: Source<'_>, held: &NodeMemory) -> String {
    let environment = &source.analysis.environment;
    let name = environment.nodes.get(held.node as usize);
    let name = name.map_or("?", |node| node.name.as_str());
    match held.role {
        NodeRole::Client => format!("{name}: clients' proxies"),
        NodeRole::Server => format!("{name}: application and proxies"),
    }
}

/// The added memory of a node is what a mesh costs there, whatever shares pages on this one machine.
fn nodes(source: Source<'_>) -> Table {
    let mut rows = Vec::new();
    for (asked, found) in source.measured() {
        for (at, node) in found.nodes.iter().enumerate() {
            rows.push(vec![
                if at == 0 {
                    name_cell(asked)
                } else {
                    Cell::empty()
                },
                Cell::text(node_name(source, node)),
                Cell::text(mib(node.anonymous_bytes)),
                Cell::text(mib(node.file_bytes)),
                Cell::text(mib(node.anonymous_bytes.saturating_add(node.file_bytes))),
            ]);
        }
    }
    Table {
        title: "Memory of each node".to_owned(),
        detail: "anonymous pages of all processes, and one copy of each program".to_owned(),
        columns: vec![
            Column::new("variant", Align::Left, Keep::Always),
            Column::new("node", Align::Left, Keep::Always),
            Column::new("anonymous MiB", Align::Right, Keep::Always),
            Column::new("programs", Align::Right, Keep::Always),
            Column::new("sum", Align::Right, Keep::Always),
        ],
        rows,
        footnotes: Vec::new(),
    }
}
