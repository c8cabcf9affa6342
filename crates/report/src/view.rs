//! The content of reports before layout: the one place for wording and digits.
//!
//! `table`, `chart` and `document` are the types that the formats lay out; `source` and `labels` are what all builders
//! use; every other module builds one part of a report, or a document of its own.

mod advice;
mod attribution;
mod caveats;
mod changes;
pub(crate) mod chart;
pub(crate) mod charts;
mod checks;
mod cluster;
mod decision;
mod details;
pub(crate) mod document;
mod elsewhere;
mod evidence;
mod figures;
mod gate;
pub(crate) mod headings;
mod headline;
mod ingress;
mod known_costs;
mod labels;
mod limits;
pub(crate) mod load;
mod meaning;
mod notes;
mod outcome;
mod programs;
mod proxies;
pub(crate) mod publication;
mod published;
mod reasons;
mod replicas;
mod saturation;
mod scaling;
mod series;
mod settings;
mod side_by_side;
mod so_far;
mod source;
mod study;
pub(crate) mod table;
mod upkeep;

use meshtax_model::analysis::{Analysis, Calibration};

pub(crate) use advice::advice;
pub(crate) use changes::comparison;
pub(crate) use gate::{gate, limit as gate_limit, line as gate_line, sentence as gate_sentence};
pub(crate) use outcome::overload;
pub(crate) use publication::publication;
pub(crate) use published::{list as published_list, mesh, meshes, result_set};
pub(crate) use reasons::{no_level, not_estimable};
pub(crate) use scaling::scaling;
pub(crate) use series::series;
pub(crate) use settings::{change, difference};
pub(crate) use so_far::so_far;
pub(crate) use study::how_long;

use document::View;
use source::Source;
use table::Table;

/// The report of a run.
pub(crate) fn report(analysis: &Analysis) -> View {
    let source = Source { analysis };
    let mut tables: Vec<Table> = source
        .points()
        .map(|point| figures::table(source, point))
        .collect();
    tables.extend(upkeep::table(source));
    tables.extend(ingress::table(source));
    tables.extend(replicas::table(source));
    tables.extend(known_costs::table(source));
    tables.extend(saturation::tables(source));
    tables.extend(study::tables(&[source]));
    let mut details = attribution::tables(source);
    // A run that takes a hop apart was made for it.
    if attribution::is_asked_for(source) {
        tables.append(&mut details);
    }
    details.push(meaning::table(source));
    details.push(elsewhere::leading(source));
    details.extend(proxies::table(source));
    details.push(programs::table(source));
    details.extend(elsewhere::others(source));
    details.extend(details::tables(source));
    details.extend(cluster::tables(source));
    tables.retain(|t| !t.rows.is_empty());
    details.retain(|t| !t.rows.is_empty());
    View {
        title: notes::title(analysis),
        partial: notes::partial(analysis),
        lead: headline::lead(source),
        headlines: headline::headlines(source),
        meaning: notes::meaning(&analysis.environment),
        figures: charts::figures(source),
        drawn: charts::drawn(source),
        tables,
        decision: decision::tables(analysis.decision.as_ref(), source.loads()),
        weighs: analysis
            .decision
            .as_ref()
            .is_some_and(|decision| !decision.weights.is_empty()),
        details,
        checks: checks::tables(source),
        evidence_title: evidence::title(analysis),
        evidence: evidence::lines(source),
        notes: notes::notes(source, &[source]),
        facts: notes::facts(analysis),
    }
}

/// The content of a calibration report.
pub(crate) fn calibration(calibration: &Calibration) -> View {
    let analysis = &calibration.analysis;
    let source = Source { analysis };
    let mut tables: Vec<Table> = known_costs::table(source).into_iter().collect();
    tables.push(known_costs::resolvable(calibration));
    tables.retain(|table| !table.rows.is_empty());
    let mut notes = notes::caveats(source);
    if calibration.resolvable.is_empty() {
        notes.insert(
            0,
            "Too few rounds to estimate the smallest detectable effect: allow more time."
                .to_owned(),
        );
    }
    View {
        title: "Measurement accuracy on this machine".to_owned(),
        partial: notes::partial(analysis),
        lead: known_costs::lead(calibration),
        headlines: Vec::new(),
        meaning: notes::meaning(&analysis.environment),
        figures: Vec::new(),
        drawn: Vec::new(),
        tables,
        decision: Vec::new(),
        weighs: false,
        details: Vec::new(),
        checks: Vec::new(),
        evidence_title: String::new(),
        evidence: Vec::new(),
        notes,
        facts: notes::facts(analysis),
    }
}
