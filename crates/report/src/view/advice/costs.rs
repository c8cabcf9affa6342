//! What a month costs.

use meshtax_model::advice::{Advice, Cost, ProxyPlace};
use meshtax_model::analysis::{Estimate, Verdict};
use meshtax_model::experiment::LoadPointId;
use meshtax_model::trial::ComponentRole;

use super::{APART, Section, apart, at, interval_of, left, name_cell, table};
use crate::format::{self, MIB, MICROSECONDS, Unit, grouped, plural, trimmed};
use crate::view::{Cell, Table};

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

/// Rates that differ by more are worth a word.
const FAR: f64 = 1.5;

pub(super) fn section(advice: &Advice) -> Section {
    let mut section = Section::new("3. What does a month cost?");
    section.say(setting(advice));
    // Why there is nothing of the others stands below.
    let told = advice
        .costs
        .iter()
        .filter(|cost| cost.cpu.is_some() || cost.memory.is_some());
    let told: Vec<Cost> = told.cloned().collect();
    let [choices, floors] = apart(advice, &told, |cost| &cost.variant);
    let interval = interval_of(advice);
    let measured_in = format!("for each request and hop, pod or node; {interval}");
    section.show(measured(advice, &choices, measured_in));
    section.show(measured(advice, &floors, APART.to_owned()));
    let month = format!("a month is 730 hours; {interval}");
    section.show(in_the_cluster(advice, &choices, month));
    section.show(in_the_cluster(advice, &floors, APART.to_owned()));
    section.show(held(advice));
    section.notes.extend(rates(advice));
    section.notes.extend(not_apart(advice));
    section.notes.extend(waypoints(advice));
    section.notes.extend(missing(advice));
    if !advice.costs.is_empty() {
        section.notes.push(
            "It is what is used, not what is reserved for it: requests and limits of pods may be higher.".to_owned(),
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
        [] => "Nothing is said of the cluster: --requests, --pods, --nodes, --cpu-price, --memory-price.".to_owned(),
        parts => format!("What each variant adds to no mesh, for {}:", parts.join(", ")),
    }
}

fn measured(advice: &Advice, costs: &[Cost], detail: String) -> Table {
    let head = format!("CPU {}/request", MICROSECONDS.name);
    let columns = vec![left("variant"), left("at"), left(&head), left(MIB.name)];
    let mut told = table("Measured, against no mesh", detail, columns);
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
    told.rows = costs.iter().map(row).collect();
    told
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
        columns.push(left("money a month"));
    }
    let mut told = table("Added in the cluster", detail, columns);
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
    told.rows = costs.iter().map(row).collect();
    told
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

/// Of CPU and memory together, or of the one that there is.
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

/// What each proxy held, and where its file pages are told.
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
            "CPU per request is from {}, where each proxy carried {carried}/s ({})",
            self.load_point,
            self.variants.join(", ")
        );
        let Some(asked) = self.asked_per_s else {
            return text + ".";
        };
        text.push_str(&format!(
            "; yours would carry {}/s",
            grouped(asked, usize::from(asked < 10.0))
        ));
        if asked * FAR < low || asked > high * FAR {
            text.push_str(
                ", which was not measured: at a low rate a request may cost several times as much as at a high one",
            );
        }
        text + "."
    }
}

/// Where CPU per request is from, and how far that is from what is asked.
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
            matches!(
                verdict,
                Some(Verdict::NotDistinguishable | Verdict::Equivalent)
            )
        })
        .map(|cost| cost.variant.0.as_str())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "Added CPU is not distinguishable from none: {}.",
            names.join(", ")
        )
    })
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
            "{}: one waypoint is counted, as its median; each further one takes as much again.",
            names.join(", ")
        )
    })
}

/// Each missing figure once, with the variants that it is missing for.
fn missing(advice: &Advice) -> Vec<String> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for cost in &advice.costs {
        for missing in &cost.missing {
            let text = format!("{}: {}", missing.what, missing.why);
            let name = cost.variant.0.as_str();
            match said.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(name),
                None => said.push((text, vec![name])),
            }
        }
    }
    let all = advice.costs.len();
    let said = said.into_iter();
    said.map(|(text, names)| {
        if names.len() == all {
            format!("Not in it: {text}.")
        } else {
            format!("Not in it, of {}: {text}.", names.join(", "))
        }
    })
    .collect()
}
