//! The tables of a load point, and the same figures for the chart.

use std::collections::BTreeSet;

use meshtax_model::analysis::{CpuAccount, Effect, Estimate, Level, Metric, Point, Verdict};
use meshtax_model::experiment::{Arrivals, LoadPoint, Regime, Role, Variant};
use meshtax_model::trial::ComponentRole;

use super::details::margin;
use super::{
    Align, Cell, Column, Keep, Source, Table, Tone, confidence_in_words, load_in_words,
    manner_in_words, point_of,
};
use crate::format::{
    self, CPU_MS_PER_1K, MICROSECONDS, MILLISECONDS, PERCENT, Unit, decimals_of_column, grouped,
};

/// Marks differences outside the adjusted family.
pub(crate) const UNADJUSTED: &str = "†";

/// From here on, a column of latencies is in milliseconds.
const MILLISECONDS_FROM_NS: f64 = 10e6;

/// Texts under a table, each once, numbered in order of first use.
#[derive(Default)]
struct Footnotes {
    texts: Vec<String>,
}

impl Footnotes {
    fn mark(&mut self, text: &str) -> String {
        let at = match self.texts.iter().position(|t| t == text) {
            Some(at) => at,
            None => {
                self.texts.push(text.to_owned());
                self.texts.len() - 1
            }
        };
        superscript(at + 1)
    }

    fn finish(self) -> Vec<(String, String)> {
        let marks = (1..).map(superscript);
        marks.zip(self.texts).collect()
    }
}

fn superscript(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    number
        .to_string()
        .bytes()
        .filter_map(|b| DIGITS.get(usize::from(b.wrapping_sub(b'0'))))
        .collect()
}

/// A row before it is formatted.
struct Row<'a> {
    asked: &'a Variant,
    found: Option<&'a Point>,
}

/// Everything measured at one load point.
pub(crate) fn table(source: Source<'_>, point: &LoadPoint) -> Table {
    let rows: Vec<Row<'_>> = source
        .measured()
        .filter(|(asked, _)| source.analysis.experiment.gap(asked, point).is_none())
        .map(|(asked, found)| Row {
            asked,
            found: point_of(found, &point.id),
        })
        .collect();
    let mut builder = Builder {
        source,
        point,
        rows,
        notes: Footnotes::default(),
        columns: Vec::new(),
    };
    builder.names();
    match point.load {
        Regime::Steady { .. } => {
            let unit = builder.latency_unit();
            let (always, p99) = (Keep::Always, Keep::Until(1));
            builder.latency(Metric::ResponseP50, "p50", unit, always, Keep::IfItFits(3));
            builder.latency(Metric::ResponseP99, "p99", unit, p99, Keep::IfItFits(2));
        }
        Regime::Saturated => builder.throughput(),
    }
    builder.cpu();
    builder.finish()
}

/// Columns are built one after the other, each over all rows.
struct Builder<'a> {
    source: Source<'a>,
    point: &'a LoadPoint,
    rows: Vec<Row<'a>>,
    notes: Footnotes,
    columns: Vec<(Column, Vec<Cell>)>,
}

impl<'a> Builder<'a> {
    fn push(&mut self, head: String, align: Align, keep: Keep, cells: Vec<Cell>) {
        self.columns.push((Column::new(head, align, keep), cells));
    }

    fn names(&mut self) {
        let cells = self.rows.iter().map(|r| name_cell(r.asked)).collect();
        self.push("variant".to_owned(), Align::Left, Keep::Always, cells);
    }

    fn latency_unit(&self) -> Unit {
        let largest = [Metric::ResponseP50, Metric::ResponseP99]
            .into_iter()
            .flat_map(|m| self.rows.iter().filter_map(move |r| level_value(r, m)))
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        if largest >= MILLISECONDS_FROM_NS {
            MILLISECONDS
        } else {
            MICROSECONDS
        }
    }

    fn latency(&mut self, metric: Metric, name: &str, unit: Unit, level: Keep, ratio: Keep) {
        self.levels(metric, format!("{name} {}", unit.name), unit, level);
        let head = format!("added {name} {}", unit.name);
        self.effects(metric, head, unit, |e| e.difference);
        let ratios = self.cells(|b, row| b.ratio(row.asked, metric));
        if ratios.iter().any(|c| *c != Cell::empty()) {
            let head = format!("{name} ratio");
            self.push(head, Align::Right, ratio, ratios);
        }
    }

    fn throughput(&mut self) {
        let unit = Unit {
            factor: 1.0,
            name: "/s",
        };
        self.levels(
            Metric::Throughput,
            "requests/s".to_owned(),
            unit,
            Keep::Always,
        );
        self.effects(Metric::Throughput, "change %".to_owned(), PERCENT, |e| {
            e.relative
        });
    }

    fn cpu(&mut self) {
        let app = self.cells(|_, row| match row.found.and_then(|p| p.cpu.as_ref()) {
            Some(cpu) => role_cpu(cpu, ComponentRole::App).map_or_else(Cell::empty, Cell::text),
            None => Cell::empty(),
        });
        let head = format!("app {}", CPU_MS_PER_1K.name);
        self.push(head, Align::Right, Keep::IfItFits(1), app);
        let proxies = self.cells(|_, row| proxies_cell(row));
        let head = format!("proxies {}", CPU_MS_PER_1K.name);
        // Each proxy has a table of its own, too.
        self.push(head, Align::Left, Keep::IfItFits(4), proxies);
        let head = format!("added CPU {}", CPU_MS_PER_1K.name);
        self.effects(Metric::CpuPerRequest, head, CPU_MS_PER_1K, |e| e.difference);
        if !self.point.is_steady() {
            let rest = self.cells(|_, row| unattributed_cell(row));
            let head = "unattrib. CPU".to_owned();
            self.push(head, Align::Right, Keep::Until(2), rest);
        }
    }

    fn cells(&self, cell: impl Fn(&Self, &Row<'a>) -> Cell) -> Vec<Cell> {
        self.rows.iter().map(|row| cell(self, row)).collect()
    }

    fn levels(&mut self, metric: Metric, head: String, unit: Unit, keep: Keep) {
        let scaled = |row: &Row<'_>| level_value(row, metric).map(|v| v * unit.factor);
        let decimals = match metric {
            Metric::Throughput => 0,
            _ => decimals_of_column(self.rows.iter().filter_map(scaled)),
        };
        let mut cells = Vec::new();
        for row in &self.rows {
            cells.push(match scaled(row) {
                Some(value) => Cell::text(grouped(value, decimals)),
                None => match unresolved(row, metric) {
                    Some(reason) => Cell::missing().marked(&self.notes.mark(&reason)),
                    None => Cell::missing(),
                },
            });
        }
        self.push(head, Align::Right, keep, cells);
    }

    fn effects(
        &mut self,
        metric: Metric,
        mut head: String,
        unit: Unit,
        pick: fn(&Effect) -> Option<Estimate>,
    ) {
        let found: Vec<(Role, Option<&Effect>)> = self
            .rows
            .iter()
            .map(|r| {
                let effect = self.source.effect(&r.asked.id, &self.point.id, metric);
                (r.asked.role, effect)
            })
            .collect();
        // The whole column is marked at its head, a mixed one cell by cell.
        let families: BTreeSet<bool> = found
            .iter()
            .filter(|(role, _)| *role == Role::Candidate)
            .filter_map(|(_, e)| e.map(|e| e.primary))
            .collect();
        let mixed = families.len() > 1;
        if !mixed && families.contains(&false) {
            head.push_str(UNADJUSTED);
        }
        let mut cells = Vec::new();
        for (role, effect) in found {
            let margin = margin(self.source, self.point, metric);
            let mut cell = effect_cell(role, effect, unit, pick, margin, &mut self.notes);
            if mixed && role == Role::Candidate && effect.is_some_and(|e| !e.primary) {
                cell = cell.marked(UNADJUSTED);
            }
            cells.push(cell);
        }
        self.push(head, Align::Left, Keep::Always, cells);
    }

    fn ratio(&self, variant: &Variant, metric: Metric) -> Cell {
        let effect = self.source.effect(&variant.id, &self.point.id, metric);
        let relative = effect
            .filter(|e| e.verdict == Verdict::Different)
            .and_then(|e| e.relative);
        match relative {
            Some(relative) if variant.role == Role::Candidate => {
                let ratio = relative.value + 1.0;
                let decimals = if ratio < 10.0 { 2 } else { 1 };
                Cell::text(format!("{}×", grouped(ratio, decimals)))
            }
            _ => Cell::empty(),
        }
    }

    fn finish(self) -> Table {
        let (title, mut detail) = heading(self.source, self.point);
        let effects = &self.source.analysis.effects;
        let here = effects.iter().filter(|e| e.load_point == self.point.id);
        let estimates: Vec<Estimate> = here.filter_map(|e| e.difference).collect();
        if !estimates.is_empty() {
            detail.push_str(&if estimates.iter().any(|e| e.interval.is_some()) {
                let confidence = confidence_in_words(self.source.analysis);
                format!("; [{confidence} interval]")
            } else {
                "; no intervals: fewer than six blocks".to_owned()
            });
        }
        let mut rows: Vec<Vec<Cell>> = self.rows.iter().map(|_| Vec::new()).collect();
        let mut columns = Vec::new();
        for (column, cells) in self.columns {
            columns.push(column);
            for (row, cell) in rows.iter_mut().zip(cells) {
                row.push(cell);
            }
        }
        Table {
            title,
            detail,
            columns,
            rows,
            footnotes: self.notes.finish(),
        }
    }
}

fn heading(source: Source<'_>, point: &LoadPoint) -> (String, String) {
    match point.load {
        Regime::Steady { arrivals, .. } => {
            let arrivals = match arrivals {
                Arrivals::Constant => "evenly spaced",
                Arrivals::Poisson => "Poisson arrivals",
            };
            (
                format!("Steady, {}", load_in_words(point)),
                format!("open loop, {arrivals}"),
            )
        }
        Regime::Saturated => {
            let usual = source.analysis.experiment.workload.connections;
            let usual = match point.connections {
                Some(_) => String::new(),
                None => format!(", {usual} connections"),
            };
            (
                format!("Saturated{usual}{}", manner_in_words(point)),
                "closed loop: latency would be connections / throughput".to_owned(),
            )
        }
    }
}

/// A variant's name in the first column.
pub(crate) fn name_cell(variant: &Variant) -> Cell {
    match variant.role {
        Role::Control => Cell::text(format!("{} (A/A)", variant.id)).toned(Tone::Muted),
        Role::Baseline => Cell::text(variant.id.0.clone()),
        Role::Candidate => Cell::text(variant.id.0.clone()).toned(Tone::Strong),
    }
}

fn level<'a>(row: &Row<'a>, metric: Metric) -> Option<&'a Level> {
    row.found?.levels.iter().find(|l| l.metric == metric)
}

fn level_value(row: &Row<'_>, metric: Metric) -> Option<f64> {
    level(row, metric)?.value
}

fn unresolved(row: &Row<'_>, metric: Metric) -> Option<String> {
    match row.found {
        None => Some("no trials".to_owned()),
        Some(point) if point.valid == 0 => Some("no valid trials".to_owned()),
        Some(_) => level(row, metric)?.reason.clone(),
    }
}

/// CPU of all components with a role, in ms per 1,000 requests.
pub(crate) fn role_cpu(cpu: &CpuAccount, role: ComponentRole) -> Option<String> {
    let mut of_role = cpu.components.iter().filter(|c| c.role == role).peekable();
    of_role.peek()?;
    let per_request_ns: f64 = of_role.map(|c| c.cpu_per_request_ns).sum();
    let value = per_request_ns * CPU_MS_PER_1K.factor;
    let decimals = usize::from(value.abs() < 10.0);
    Some(grouped(value, decimals))
}

fn proxies_cell(row: &Row<'_>) -> Cell {
    let carries_nothing = row.asked.role != Role::Candidate || row.asked.data_plane == "none";
    let Some(cpu) = row.found.and_then(|p| p.cpu.as_ref()) else {
        return if carries_nothing {
            Cell::empty()
        } else {
            Cell::missing()
        };
    };
    let client = role_cpu(cpu, ComponentRole::ClientProxy);
    let server = role_cpu(cpu, ComponentRole::ServerProxy);
    match (client, server) {
        (None, None) if carries_nothing => Cell::empty(),
        (None, None) => Cell::missing(),
        (client, server) => {
            let or_missing = |t: Option<String>| t.unwrap_or_else(|| format::MISSING.to_owned());
            let mut others = format!("+ {}", or_missing(server));
            for role in [ComponentRole::Waypoint, ComponentRole::Gateway] {
                if let Some(further) = role_cpu(cpu, role) {
                    others.push_str(&format!(" + {further}"));
                }
            }
            Cell::figure(or_missing(client), others)
        }
    }
}

fn unattributed_cell(row: &Row<'_>) -> Cell {
    let Some(cpu) = row.found.and_then(|p| p.cpu.as_ref()) else {
        return Cell::missing();
    };
    if cpu.busy_ns <= 0 {
        return Cell::missing();
    }
    let percent = |ns: u64| ns as f64 / cpu.busy_ns as f64 * 100.0;
    match cpu.unattributed_ns {
        Some(ns) => Cell::text(format!("{} %", grouped(percent(ns), 1))),
        None => {
            Cell::text(format!("< {} %", grouped(percent(cpu.resolution_ns), 1))).toned(Tone::Muted)
        }
    }
}

fn effect_cell(
    role: Role,
    effect: Option<&Effect>,
    unit: Unit,
    pick: fn(&Effect) -> Option<Estimate>,
    margin: Option<f64>,
    notes: &mut Footnotes,
) -> Cell {
    if role == Role::Baseline {
        return Cell::empty();
    }
    let Some(effect) = effect else {
        return Cell::missing();
    };
    let figure = pick(effect).filter(|e| e.value.is_finite()).map(|e| {
        let (value, interval) = format::estimate(e, unit);
        let certain = e.interval.is_some();
        (Cell::figure(value, interval.unwrap_or_default()), certain)
    });
    match (&effect.verdict, figure) {
        (Verdict::NotEstimable { reason }, Some((cell, false))) => {
            cell.marked(&notes.mark(reason)).toned(Tone::Muted)
        }
        (Verdict::NotEstimable { reason }, _) => Cell::text("not estimable")
            .toned(Tone::Muted)
            .marked(&notes.mark(reason)),
        (_, None) => Cell::missing(),
        (Verdict::Different, Some((cell, _))) if role == Role::Control => cell
            .toned(Tone::Bad)
            .marked(&notes.mark("the two baselines differ: something other than the mesh moved")),
        (Verdict::Different, Some((cell, _))) => cell.toned(Tone::Strong),
        // The control's row is the noise itself, so its figure is what a reader wants.
        (_, Some((cell, _))) if role == Role::Control => cell.toned(Tone::Muted),
        (_, Some((cell, false))) => cell,
        (Verdict::NotDistinguishable, _) => Cell::text("not distinguishable").toned(Tone::Muted),
        (Verdict::Equivalent, _) => Cell::text(equivalent(margin)).toned(Tone::Muted),
    }
}

/// As wide as the margin is, so much may still be there.
fn equivalent(margin: Option<f64>) -> String {
    match margin.filter(|margin| margin.is_finite()) {
        Some(margin) => {
            let percent = margin.abs() * 100.0;
            format!(
                "none beyond ±{} %",
                grouped(percent, usize::from(percent < 10.0))
            )
        }
        None => "no relevant difference".to_owned(),
    }
}
