//! What differs between two variants of one run in addition to their figures under load: start-up, idle CPU, features, probes.

use meshtax_model::analysis::{Estimate, Upkeep};
use meshtax_model::comparison::{PairDetails, ProbeChange};
use meshtax_model::evidence::{Balances, Features, Handshake};

use crate::format::{MILLICORES, MILLISECONDS, Unit};
use crate::view::reasons::probe;
use crate::view::table::{Align, Cell, Column, Keep, Table};
use crate::view::upkeep::cell;

type Figure = fn(&Upkeep) -> Option<Estimate>;

/// Start-up and idle figures of both; then features and probes that differ, if any do.
pub(super) fn tables(pair: &PairDetails) -> [Table; 2] {
    let name = |id: &meshtax_model::experiment::VariantId| id.0.clone();
    let columns = || {
        vec![
            Column::new("", Align::Left, Keep::Always),
            Column::new(name(&pair.base_variant), Align::Left, Keep::Always),
            Column::new(name(&pair.new_variant), Align::Left, Keep::Always),
        ]
    };
    let differing = features(pair).chain(pair.probes.iter().map(probe_row));
    let mut differing: Vec<Vec<Cell>> = differing.collect();
    if differing.is_empty() {
        differing.push(vec![
            Cell::text("no feature and no probe differs"),
            Cell::empty(),
            Cell::empty(),
        ]);
    }
    [
        Table {
            title: "Start-up time and idle CPU".to_owned(),
            detail: "means over rounds".to_owned(),
            columns: columns(),
            rows: upkeep(pair),
            footnotes: Vec::new(),
        },
        Table {
            title: "Features".to_owned(),
            detail: "as the probes found them".to_owned(),
            columns: columns(),
            rows: differing,
            footnotes: Vec::new(),
        },
    ]
}

fn upkeep(pair: &PairDetails) -> Vec<Vec<Cell>> {
    let figures: [(&str, Unit, Figure); 3] = [
        ("start to first response", MILLISECONDS, |u| u.start_ns),
        ("configured in", MILLISECONDS, |u| u.push_ns),
        ("idle CPU", MILLICORES, |u| u.idle_cores),
    ];
    let is_known = |of: Figure| pair.upkeep.iter().any(|upkeep| of(upkeep).is_some());
    let known = figures.into_iter().filter(|(_, _, of)| is_known(*of));
    known
        .map(|(name, unit, of)| {
            let [base, new] = &pair.upkeep;
            let title = Cell::text(format!("{name} {}", unit.name));
            vec![title, cell(of(base), unit), cell(of(new), unit)]
        })
        .collect()
}

/// A row for each feature that is not the same.
fn features(pair: &PairDetails) -> impl Iterator<Item = Vec<Cell>> {
    type Read = fn(&Features) -> String;
    let read: [(&str, Read); 5] = [
        ("headers that it adds", |f| f.added_headers.join(", ")),
        ("keeps the client's address", |f| {
            answer(Some(f.keeps_client_address))
        }),
        ("counts responses", |f| answer(f.counts_requests)),
        ("retries a 503", |f| answer(f.tries_again)),
        ("balances", |f| match f.balances {
            Some(Balances::Connections) => "connections".to_owned(),
            Some(Balances::Requests) => "requests".to_owned(),
            None => answer(None),
        }),
    ];
    let rows = read.into_iter().map(|(name, read)| {
        let [base, new] = pair.features.each_ref().map(|found| match found {
            Some(features) => read(features),
            None => answer(None),
        });
        [name.to_owned(), base, new]
    });
    let [base, new] = pair.handshakes.each_ref().map(|all| handshakes(all));
    let tls = ["TLS handshake".to_owned(), base, new];
    let differing = rows.chain([tls]).filter(|[_, base, new]| base != new);
    differing.map(|row| row.map(Cell::text).to_vec())
}

fn answer(known: Option<bool>) -> String {
    match known {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not determined",
    }
    .to_owned()
}

/// Each kind once.
fn handshakes(all: &[Handshake]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for Handshake {
        version,
        cipher,
        key_exchange_group,
    } in all
    {
        let text = format!("{version}, {cipher}, {key_exchange_group}");
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("; ")
}

fn probe_row(change: &ProbeChange) -> Vec<Cell> {
    let result = |passed: Option<bool>| {
        Cell::text(match passed {
            Some(true) => "passed",
            Some(false) => "failed",
            None => "not run",
        })
    };
    vec![
        Cell::text(format!("probe: {}", probe(change.probe))),
        result(change.base),
        result(change.new),
    ]
}
