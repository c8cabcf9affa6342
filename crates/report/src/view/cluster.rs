//! What a cluster granted the pods and reported of them, and what a monitoring system recorded meanwhile.

use meshtax_model::analysis::Analysis;
use meshtax_model::cluster::{ClusterEvent, ContainerGrant, PodGrant, Severity};
use meshtax_model::event::active_ns;
use meshtax_model::monitoring::{Monitoring, MonitoringQuery, MonitoringSeries};

use crate::format::{self, MIB, grouped};
use crate::view::source::Source;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

fn left(head: &str) -> Column {
    Column::new(head, Align::Left, Keep::Always)
}

fn right(head: &str) -> Column {
    Column::new(head, Align::Right, Keep::Always)
}

/// All of them.
pub(crate) fn tables(source: Source<'_>) -> Vec<Table> {
    let mut tables = vec![granted(source), events(source)];
    tables.extend(source.analysis.monitoring.as_ref().map(monitoring));
    tables
}

/// A row for each pod.
pub(crate) fn granted(source: Source<'_>) -> Table {
    let pods = &source.analysis.environment.pods;
    let mut last = None;
    let row = |grant: &PodGrant| {
        let is_same = last.as_ref() == Some(&grant.variant);
        last = Some(grant.variant.clone());
        vec![
            match is_same {
                true => Cell::empty(),
                false => Cell::text(grant.variant.0.clone()),
            },
            Cell::text(grant.pod.clone()),
            Cell::text(grant.node.clone()),
            match grant.qos.as_str() {
                "" => Cell::missing(),
                qos => Cell::text(qos),
            },
            Cell::text(cpus(&grant.containers)),
        ]
    };
    Table {
        title: "What the cluster granted".to_owned(),
        detail: "each pod's QoS class, and the CPUs that its containers may use".to_owned(),
        columns: vec![
            left("variant"),
            left("pod"),
            left("node"),
            left("class"),
            left("CPUs"),
        ],
        rows: pods.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

/// Containers with the same CPUs together: `all: 0-3`, or `agent, app: 0-1; proxy: 2`.
fn cpus(containers: &[ContainerGrant]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for container in containers {
        let cpus = match &container.cpus {
            Some(cpus) => format::cores(cpus),
            None => "not readable".to_owned(),
        };
        match groups.iter_mut().find(|(same, _)| *same == cpus) {
            Some((_, names)) => names.push(&container.name),
            None => groups.push((cpus, vec![&container.name])),
        }
    }
    match groups.as_slice() {
        [(cpus, _)] => cpus.clone(),
        groups => {
            let text =
                |(cpus, names): &(String, Vec<&str>)| format!("{}: {cpus}", names.join(", "));
            let texts: Vec<String> = groups.iter().map(text).collect();
            texts.join("; ")
        }
    }
}

/// When an event was, after the run's begin.
fn moment(analysis: &Analysis, at_unix_ms: u64) -> String {
    let run = &analysis.run;
    format::duration(active_ns(run.started_unix_ms, &run.resumptions, at_unix_ms))
}

/// A row for each event, in the order of time.
pub(crate) fn events(source: Source<'_>) -> Table {
    let row = |event: &ClusterEvent| {
        let reason = Cell::text(event.reason.clone());
        vec![
            Cell::text(moment(source.analysis, event.at_unix_ms)),
            Cell::text(match &event.variant {
                Some(variant) => variant.0.clone(),
                None => "the run's agents".to_owned(),
            }),
            Cell::text(event.object.clone()),
            match event.severity {
                Severity::Warning => reason.toned(Tone::Bad),
                Severity::Normal => reason,
            },
            Cell::text(grouped(f64::from(event.count), 0)),
            Cell::text(event.message.clone()),
        ]
    };
    Table {
        title: "Events on the cluster".to_owned(),
        detail: "events of the run's pods, by the time since the start of the run, without the routine creation and \
                 deletion of pods"
            .to_owned(),
        columns: vec![
            left("after"),
            left("variant"),
            left("object"),
            left("event"),
            right("times"),
            left("message"),
        ],
        rows: source.analysis.events.iter().map(row).collect(),
        footnotes: Vec::new(),
    }
}

/// A row for each series, with its mean and its extremes over the run.
fn monitoring(monitoring: &Monitoring) -> Table {
    let mut rows = Vec::new();
    for query in &monitoring.queries {
        let mut name = Cell::text(query.name.clone());
        for series in &query.series {
            rows.push(series_row(name, query, series));
            name = Cell::empty();
        }
        let why = query.problem.clone();
        let remark = match (query.series.is_empty(), query.omitted_series) {
            (true, _) => why.unwrap_or_else(|| "nothing matched".to_owned()),
            (false, 0) => continue,
            (false, omitted) => format!("{omitted} more series, which are not stored"),
        };
        let mut row = vec![name, Cell::text(remark).toned(Tone::Muted)];
        row.resize(5, Cell::empty());
        rows.push(row);
    }
    Table {
        title: "What monitoring recorded".to_owned(),
        detail: format!(
            "by {} over the whole run, including set-up and all variants: context only, no figure of this report uses it",
            server(&monitoring.url)
        ),
        columns: vec![
            left("query"),
            left("series"),
            right("mean"),
            right("lowest"),
            right("highest"),
        ],
        rows,
        footnotes: Vec::new(),
    }
}

/// Without its scheme: a page names nothing that a browser could load.
fn server(url: &str) -> &str {
    let (_, server) = url.split_once("://").unwrap_or(("", url));
    server.trim_end_matches('/')
}

fn series_row(name: Cell, query: &MonitoringQuery, series: &MonitoringSeries) -> Vec<Cell> {
    let labels: Vec<String> = series
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let values = series.values.iter().map(|(_, value)| *value);
    let (mut sum, mut low, mut high, mut count) = (0.0, f64::INFINITY, f64::NEG_INFINITY, 0.0);
    for value in values.filter(|value| value.is_finite()) {
        sum += value;
        count += 1.0;
        low = f64::min(low, value);
        high = f64::max(high, value);
    }
    let figure = |value: f64| match (count > 0.0, query.unit.as_str()) {
        (false, _) => Cell::missing(),
        (true, "bytes") => Cell::text(format!("{} {}", grouped(value * MIB.factor, 1), MIB.name)),
        (true, "") => Cell::text(format::three_digits(value)),
        (true, unit) => Cell::text(format!("{} {unit}", format::three_digits(value))),
    };
    vec![
        name,
        Cell::text(labels.join(", ")),
        figure(sum / count),
        figure(low),
        figure(high),
    ]
}
