//! What a month costs.

use crate::view::reasons::{self, cost_figure};
use meshtax_model::advice::{Advice, Cost, ProxyPlace};
use meshtax_model::analysis::{Estimate, Verdict};
use meshtax_model::experiment::LoadPointId;
use meshtax_model::trial::ComponentRole;

use super::section::{APART, Section, apart, at, interval_of, left, name_cell, table};
use crate::format::{self, MIB, MICROSECONDS, Unit, grouped, plural, trimmed};
use crate::view::table::{Cell, Table};

const CORES: Unit = Unit {
    factor: 1.0,
    name: "cores",
};

const MILLICORES: Unit = Unit {
    factor: 1e3,
    name: "millicores",
};

/// Of whatever currency the prices are in.
const MONEY: Unit = Unit {
    factor: 1.0,
    name: "",
};

const GIB: Unit = Unit {
    factor: 1.0 / (1024.0 * 1024.0 * 1024.0),
    name: "GiB",
};

/// A difference in rates above this factor is noted.
const FAR: f64 = 1.5;

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("3. What does it cost per month?");
    section.say(setting(advice));
    // The missing figures of the others are explained below.
    let estimated = advice
        .costs
        .iter()
        .filter(|cost| cost.cpu.is_some() || cost.memory.is_some());
    let estimated: Vec<Cost> = estimated.cloned().collect();
    let [choices, floors] = apart(advice, &estimated, |cost| &cost.variant);
    let interval = interval_of(advice);
    let measured_in = format!("per request and hop, per pod, or per node; {interval}");
    section.show(measured(advice, &choices, measured_in));
    section.show(measured(advice, &floors, APART.to_owned()));
    let month = format!("730 hours; {interval}");
    section.show(in_the_cluster(advice, &choices, month));
    section.show(in_the_cluster(advice, &floors, APART.to_owned()));
    section.show(held(advice));
    section.notes.extend(rates(advice));
    section.notes.extend(not_apart(advice));
    section.notes.extend(waypoints(advice));
    section.notes.extend(missing(advice));
    if !advice.costs.is_empty() {
        section.notes.push(
            "Costs are of resources used, not reserved: resource requests and limits of pods may be higher.".to_owned(),
        );
    }
    section
}

/// For how much it is reckoned.
fn setting(advice: &Advice) -> String {
    let asked = &advice.asked;
    let mut parts = Vec::new();
    if let Some(rate) = asked.requests_per_s {
        let hops = if asked.hops == 1.0 { "hop" } else { "hops" };
        let of = asked.topology.as_ref();
        let of = of.map_or(String::new(), |name| format!(" ({name})"));
        parts.push(format!(
            "{} requests/s of {} {hops}{of}",
            trimmed(rate),
            trimmed(asked.hops),
        ));
    }
    let counts = [(asked.pods, "pod", "pods"), (asked.nodes, "node", "nodes")];
    for (count, one, many) in counts {
        if let Some(count) = count {
            let number = grouped(f64::from(count), 0);
            parts.push(format!("{number} {}", plural(count as usize, one, many)));
        }
    }
    let prices = [(asked.cpu_price, "core"), (asked.memory_price, "GiB")];
    for (price, of) in prices {
        if let Some(price) = price {
            parts.push(format!("{price} per {of}-hour"));
        }
    }
    match parts.as_slice() {
        [] => "The cluster is not described: use --requests, --pods, --nodes, --cpu-price, --memory-price.".to_owned(),
        parts => format!("Added by each variant, for {}:", parts.join(", ")),
    }
}

fn measured(advice: &Advice, costs: &[Cost], detail: String) -> Table {
    let head = format!("CPU {}/request", MICROSECONDS.name);
    let columns = vec![left("variant"), left("at"), left(&head), left(MIB.name)];
    let mut costs_table = table("Measured overhead against no mesh", detail, columns);
    let row = |cost: &Cost| {
        let (cpu, memory) = (cost.cpu.as_ref(), cost.memory.as_ref());
        let point = cpu.map(|cpu| &cpu.load_point);
        let point = point.or(memory.map(|memory| &memory.load_point));
        vec![
            name_cell(advice, &cost.variant),
            point.map_or_else(Cell::missing, at),
            figure(cpu.map(|cpu| cpu.per_request_ns), MICROSECONDS),
            figure(memory.map(|memory| memory.each_bytes), MIB).marked(per(cost)),
        ]
    };
    costs_table.rows = costs.iter().map(row).collect();
    costs_table
}

fn in_the_cluster(advice: &Advice, costs: &[Cost], detail: String) -> Table {
    let cores = |cost: &Cost| cost.cpu.as_ref().map(|cpu| cpu.cores);
    let bytes = |cost: &Cost| cost.memory.as_ref().map(|memory| memory.total_bytes);
    // One unit for the choices and for the floors.
    let cpu_unit = fitting(advice.costs.iter().filter_map(cores), CORES, MILLICORES);
    let memory_unit = fitting(advice.costs.iter().filter_map(bytes), GIB, MIB);
    let mut columns = vec![left("variant"), left(cpu_unit.name), left(memory_unit.name)];
    let priced = advice.asked.cpu_price.is_some() || advice.asked.memory_price.is_some();
    if priced {
        columns.push(left("cost per month"));
    }
    let mut costs_table = table("Added cost of the cluster", detail, columns);
    let row = |cost: &Cost| {
        let mut row = vec![
            name_cell(advice, &cost.variant),
            figure(cores(cost), cpu_unit),
            figure(bytes(cost), memory_unit),
        ];
        if priced {
            row.push(money(cost));
        }
        row
    };
    costs_table.rows = costs.iter().map(row).collect();
    costs_table
}

/// The larger unit, unless it would make fractions of all figures.
fn fitting(figures: impl Iterator<Item = Estimate>, large: Unit, small: Unit) -> Unit {
    let largest = figures
        .map(|figure| figure.value.abs() * large.factor)
        .fold(0.0, f64::max);
    if largest > 0.0 && largest < 1.0 {
        small
    } else {
        large
    }
}

/// Behind a figure, what has so much.
fn per(cost: &Cost) -> &'static str {
    match cost.memory.as_ref().map(|memory| memory.per) {
        Some(ProxyPlace::Pod) => " a pod",
        Some(ProxyPlace::Node) => " a node",
        None => "",
    }
}

fn figure(estimate: Option<Estimate>, unit: Unit) -> Cell {
    match estimate.filter(|estimate| estimate.value.is_finite()) {
        None => Cell::missing(),
        Some(estimate) => {
            let (value, interval) = format::estimate(estimate, unit);
            Cell::figure(value, interval.unwrap_or_else(|| "no interval".to_owned()))
        }
    }
}

/// CPU and memory together, or the one that is available.
fn money(cost: &Cost) -> Cell {
    let cpu = cost.cpu.as_ref().and_then(|cpu| cpu.monthly);
    let memory = cost.memory.as_ref().and_then(|memory| memory.monthly);
    let (part, of) = match (cost.monthly, cpu, memory) {
        (Some(both), ..) => (Some(both), ""),
        (None, Some(cpu), _) => (Some(cpu), " (CPU only)"),
        (None, None, Some(memory)) => (Some(memory), " (memory only)"),
        (None, None, None) => (None, ""),
    };
    figure(part, MONEY).marked(if part.is_some() { of } else { "" })
}

/// The memory of each kind of proxy, and where its file pages are reported.
fn held(advice: &Advice) -> Table {
    let mut held = table(
        "Memory of each proxy in this run",
        format!("medians, anonymous + file pages, {}", MIB.name),
        vec![
            left("variant"),
            left("client's"),
            left("server's"),
            left("waypoint"),
        ],
    );
    let mib = |bytes: u64| {
        let value = bytes as f64 * MIB.factor;
        grouped(value, usize::from(value < 10.0))
    };
    let cell = |cost: &Cost, role: ComponentRole| {
        let part = cost.parts.iter().find(|part| part.role == role);
        part.map_or_else(Cell::missing, |part| {
            let text = format!("{} + {}", mib(part.anonymous_bytes), mib(part.file_bytes));
            Cell::text(text)
        })
    };
    let with_proxies = advice.costs.iter().filter(|cost| !cost.parts.is_empty());
    held.rows = with_proxies
        .map(|cost| {
            vec![
                name_cell(advice, &cost.variant),
                cell(cost, ComponentRole::ClientProxy),
                cell(cost, ComponentRole::ServerProxy),
                cell(cost, ComponentRole::Waypoint),
            ]
        })
        .collect();
    held
}

/// Where the CPU per request of some variants is from.
struct Origin<'a> {
    load_point: &'a LoadPointId,
    asked_per_s: Option<f64>,
    /// The lowest and the highest.
    carried_per_s: [f64; 2],
    variants: Vec<&'a str>,
}

impl Origin<'_> {
    fn in_words(&self) -> String {
        let [low, high] = self.carried_per_s;
        let carried = match [low, high].map(|rate| grouped(rate, 0)) {
            [low, high] if low == high => low,
            [low, high] => format!("{low} to {high}"),
        };
        let mut text = format!(
            "CPU per request was measured at {}, where each proxy carried {carried}/s ({})",
            self.load_point,
            self.variants.join(", ")
        );
        let Some(asked) = self.asked_per_s else {
            return text + ".";
        };
        text.push_str(&format!(
            "; in your cluster it would carry {}/s",
            grouped(asked, usize::from(asked < 10.0))
        ));
        if asked * FAR < low || asked > high * FAR {
            text.push_str(
                ", which was not measured: at a low rate, CPU per request may be several times higher",
            );
        }
        text + "."
    }
}

/// The load points behind CPU per request, and how far they are from the requested rate.
fn rates(advice: &Advice) -> Vec<String> {
    let mut origins: Vec<Origin<'_>> = Vec::new();
    for cost in &advice.costs {
        let Some(cpu) = &cost.cpu else { continue };
        let (name, carried) = (cost.variant.0.as_str(), cpu.measured_per_proxy_per_s);
        let same = origins.iter_mut().find(|origin| {
            *origin.load_point == cpu.load_point && origin.asked_per_s == cpu.asked_per_proxy_per_s
        });
        match same {
            Some(origin) => {
                let [low, high] = origin.carried_per_s;
                origin.carried_per_s = [low.min(carried), high.max(carried)];
                origin.variants.push(name);
            }
            None => origins.push(Origin {
                load_point: &cpu.load_point,
                asked_per_s: cpu.asked_per_proxy_per_s,
                carried_per_s: [carried; 2],
                variants: vec![name],
            }),
        }
    }
    origins.iter().map(Origin::in_words).collect()
}

fn not_apart(advice: &Advice) -> Option<String> {
    let costs = advice.costs.iter();
    let names: Vec<&str> = costs
        .filter(|cost| {
            let verdict = cost.cpu.as_ref().map(|cpu| &cpu.verdict);
            matches!(verdict, Some(Verdict::Inconclusive | Verdict::Equivalent))
        })
        .map(|cost| cost.variant.0.as_str())
        .collect();
    (!names.is_empty()).then(|| format!("No added CPU is shown for: {}.", names.join(", ")))
}

fn waypoints(advice: &Advice) -> Option<String> {
    let costs = advice.costs.iter();
    let names: Vec<&str> = costs
        .filter(|cost| {
            let memory = cost.memory.as_ref();
            memory.is_some_and(|memory| memory.waypoint_bytes.is_some())
        })
        .map(|cost| cost.variant.0.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: one waypoint is included, at its median; each additional one costs the same again.",
            names.join(", ")
        )
    })
}

/// Each missing figure once, with the variants that it is missing for.
fn missing(advice: &Advice) -> Vec<String> {
    let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
    for cost in &advice.costs {
        for missing in &cost.missing {
            let text = format!(
                "{}: {}",
                cost_figure(missing.figure),
                reasons::missing(&missing.reason, &cost.variant)
            );
            let name = cost.variant.0.as_str();
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(name),
                None => texts.push((text, vec![name])),
            }
        }
    }
    let all = advice.costs.len();
    let texts = texts.into_iter();
    texts
        .map(|(text, names)| {
            if names.len() == all {
                format!("Not included: {text}.")
            } else {
                format!("Not included for {}: {text}.", names.join(", "))
            }
        })
        .collect()
}
