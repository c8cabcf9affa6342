//! The tables of a load point, and the same figures for the chart.

use crate::view::reasons::{no_level, not_estimable};
use std::collections::BTreeSet;

use meshtax_model::analysis::{Effect, Estimate, Level, Metric, Point, Verdict};
use meshtax_model::catalogue;
use meshtax_model::experiment::{Arrivals, LoadPoint, Regime, Role, Variant};
use meshtax_model::trial::ComponentRole;

use crate::format::{
    self, CPU_MS_PER_1K, MICROSECONDS, MILLISECONDS, PERCENT, Unit, decimals_of_column, grouped,
};

use crate::view::labels::{UNADJUSTED, margin, name_cell, role_cpu};
use crate::view::limits::cpu_text;
use crate::view::meaning;
use crate::view::outcome;
use crate::view::source::{Source, confidence_in_words, load_in_words, manner_in_words, point_of};
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

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

/// Columns are built one by one, each over all rows.
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
        // Each proxy is also listed in a separate table.
        self.push(head, Align::Left, Keep::IfItFits(4), proxies);
        let head = format!("added CPU {}", CPU_MS_PER_1K.name);
        self.effects(Metric::CpuPerRequest, head, CPU_MS_PER_1K, |e| e.difference);
    }

    fn cells(&self, cell: impl Fn(&Self, &Row<'a>) -> Cell) -> Vec<Cell> {
        self.rows.iter().map(|row| cell(self, row)).collect()
    }

    fn levels(&mut self, metric: Metric, head: String, unit: Unit, keep: Keep) {
        let scaled = |row: &Row<'_>| level_value(row, metric).map(|v| v * unit.factor);
        let is_lower_bound = |row: &Row<'_>| level(row, metric).is_some_and(|l| l.lower_bound);
        let decimals = match metric {
            Metric::Throughput => 0,
            _ => decimals_of_column(self.rows.iter().filter_map(scaled)),
        };
        let mut cells = Vec::new();
        for row in &self.rows {
            cells.push(match scaled(row) {
                Some(value) => {
                    let text = grouped(value, decimals);
                    Cell::text(outcome::at_least(text, is_lower_bound(row)))
                }
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
            let margin = margin(&self.source.analysis.experiment.margins, metric);
            let mut cell = effect_cell(role, effect, unit, pick, &margin, &mut self.notes);
            if metric == Metric::CpuPerRequest {
                cell = self.with_elsewhere(cell, effect);
            }
            if mixed && role == Role::Candidate && effect.is_some_and(|e| !e.primary) {
                cell = cell.marked(UNADJUSTED);
            }
            cells.push(cell);
        }
        self.push(head, Align::Left, Keep::Always, cells);
    }

    /// The other end of the range, where work may have moved out of the path.
    fn with_elsewhere(&mut self, cell: Cell, effect: Option<&Effect>) -> Cell {
        let found = effect.and_then(|effect| {
            let (variant, point) = (&effect.variant, &effect.load_point);
            self.source.analysis.added_cpu(variant, point)
        });
        let Some(end) = found.and_then(|added| added.with_elsewhere.as_ref()) else {
            return cell;
        };
        let (value, interval) = format::estimate(end.added, CPU_MS_PER_1K);
        let mark = self.notes.mark(&format!(
            "components only, to components plus {}",
            meaning::parts(&end.parts)
        ));
        let other_end = format!("to {value} {}", interval.unwrap_or_default());
        cell.followed_by(other_end.trim_end()).marked(&mark)
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
                "; no intervals with fewer than six blocks".to_owned()
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
                "closed loop: latency is connections / throughput".to_owned(),
            )
        }
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
        Some(_) => level(row, metric)?.reason.map(no_level),
    }
}

fn proxies_cell(row: &Row<'_>) -> Cell {
    let carries_nothing =
        row.asked.role != Role::Candidate || catalogue::is_baseline(&row.asked.data_plane);
    let Some(cpu) = row.found.and_then(|p| p.cpu.as_ref()) else {
        return if carries_nothing {
            Cell::empty()
        } else {
            Cell::missing()
        };
    };
    let client = cpu_text(cpu, ComponentRole::ClientProxy);
    let server = cpu_text(cpu, ComponentRole::ServerProxy);
    match (client, server) {
        (None, None) if carries_nothing => Cell::empty(),
        (None, None) => Cell::missing(),
        (client, server) => {
            let or_missing = |t: Option<String>| t.unwrap_or_else(|| format::MISSING.to_owned());
            let mut others = format!("+ {}", or_missing(server));
            for role in [ComponentRole::Waypoint, ComponentRole::Gateway] {
                if let Some(further) = cpu_text(cpu, role) {
                    others.push_str(&format!(" + {further}"));
                }
            }
            Cell::figure(or_missing(client), others)
        }
    }
}

fn effect_cell(
    role: Role,
    effect: Option<&Effect>,
    unit: Unit,
    pick: fn(&Effect) -> Option<Estimate>,
    margin: &str,
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
        let value = outcome::at_least(value, effect.lower_bound);
        let certain = e.interval.is_some();
        (Cell::figure(value, interval.unwrap_or_default()), certain)
    });
    match (&effect.verdict, figure) {
        (Verdict::NotEstimable { reason }, found) => {
            let mark = notes.mark(&not_estimable(reason, Some(&effect.variant)));
            let cell = match found {
                Some((cell, false)) => cell,
                _ => Cell::text("not estimable"),
            };
            cell.toned(Tone::Muted).marked(&mark)
        }
        (Verdict::Overloaded(overload), _) => Cell::text("overloaded")
            .toned(Tone::Bad)
            .marked(&notes.mark(&outcome::overload(overload))),
        (_, None) => Cell::missing(),
        (Verdict::Different, Some((cell, _))) if role == Role::Control => cell
            .toned(Tone::Bad)
            .marked(&notes.mark("the two baselines differ: something other than the mesh changed")),
        (Verdict::Different, Some((cell, _))) => cell.toned(Tone::Strong),
        // The control's row is the noise itself, so its figure is always shown.
        (_, Some((cell, _))) if role == Role::Control => cell.toned(Tone::Muted),
        (_, Some((cell, false))) => cell,
        (Verdict::Inconclusive, _) => Cell::text("inconclusive").toned(Tone::Muted),
        (Verdict::Equivalent, _) => Cell::text(format!("none beyond {margin}")).toned(Tone::Muted),
    }
}
