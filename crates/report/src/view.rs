//! What a report says, before it is laid out: the one place for wording and digits.

mod advice;
mod attribution;
mod changes;
mod charts;
mod checks;
mod details;
mod evidence;
mod figures;
mod gate;
mod headline;
mod ingress;
mod known_costs;
mod notes;
mod part;
mod proxies;
mod replicas;
mod scaling;
mod series;
mod so_far;
mod study;
mod upkeep;

use meshtax_model::analysis::{Analysis, Calibration, Effect, Metric, Point, VariantAnalysis};
use meshtax_model::experiment::{
    Ingress, LoadPoint, LoadPointId, Protocol, Regime, Role, Variant, VariantId,
};

pub(crate) use advice::Document;
pub(crate) use part::Part;
pub(crate) use scaling::parts as of_scaling;
pub(crate) use so_far::so_far;
pub(crate) use study::{asked_for, how_long};

use crate::figure::Figure;
use crate::format;
pub(crate) use gate::{limit as gate_limit, line as gate_line, sentence as gate_sentence};

/// How something is to be felt. Each format finds its own means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Strong,
    Muted,
    Good,
    Bad,
}

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Words, or one number.
    Text(String),
    /// A number and what belongs to it (its interval); the numbers of a column are aligned.
    Figure { value: String, beside: String },
}

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) content: Content,
    pub(crate) tone: Tone,
    /// A footnote's mark, or empty.
    pub(crate) mark: String,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self {
            content: Content::Text(text.into()),
            tone: Tone::Plain,
            mark: String::new(),
        }
    }

    pub(crate) fn figure(value: impl Into<String>, beside: impl Into<String>) -> Self {
        Self {
            content: Content::Figure {
                value: value.into(),
                beside: beside.into(),
            },
            tone: Tone::Plain,
            mark: String::new(),
        }
    }

    /// Nothing applies here.
    pub(crate) fn empty() -> Self {
        Self::text("")
    }

    /// Something belongs here and is not there.
    pub(crate) fn missing() -> Self {
        Self::text(format::MISSING).toned(Tone::Muted)
    }

    /// A figure with nothing beside it: its mark stands at the number.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(&self.content, Content::Figure { beside, .. } if beside.is_empty())
    }

    pub(crate) fn toned(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    pub(crate) fn marked(mut self, mark: &str) -> Self {
        self.mark.push_str(mark);
        self
    }
}

/// On which side a column's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// What may happen to a column that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It is what the table is for.
    Always,
    /// It is said elsewhere too and goes without a word, in this order (1 first), before
    /// anything is wrapped.
    IfItFits(u8),
    /// It goes in this order (1 first), and the reader is told.
    Until(u8),
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) head: String,
    pub(crate) align: Align,
    pub(crate) keep: Keep,
}

impl Column {
    pub(crate) fn new(head: impl Into<String>, align: Align, keep: Keep) -> Self {
        Self {
            head: head.into(),
            align,
            keep,
        }
    }
}

/// A table with its footnotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// What the title leaves open: units, how it was loaded.
    pub(crate) detail: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Mark and text.
    pub(crate) footnotes: Vec<(String, String)>,
}

/// One variant's answer in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headline {
    pub(crate) variant: String,
    pub(crate) clauses: Vec<String>,
    pub(crate) tone: Tone,
}

/// Whether a variant is what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Proven,
    Failed,
    Unknown,
}

/// One probe, for the formats that have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) name: String,
    /// `None`: it tells something, and can neither pass nor fail.
    pub(crate) passed: Option<bool>,
    pub(crate) seen: String,
}

/// One line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvidenceLine {
    pub(crate) variants: Vec<String>,
    pub(crate) proof: Proof,
    pub(crate) text: String,
    pub(crate) probes: Vec<Probe>,
}

/// Everything that a report says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) title: String,
    /// That the run is not whole.
    pub(crate) partial: Option<String>,
    /// What the headlines compare.
    pub(crate) lead: String,
    pub(crate) headlines: Vec<Headline>,
    /// What the figures mean on this machine.
    pub(crate) meaning: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    /// Place and name of each variant in the pictures.
    pub(crate) drawn: Vec<(usize, String)>,
    pub(crate) tables: Vec<Table>,
    /// For the formats that have room.
    pub(crate) details: Vec<Table>,
    /// Likewise: what stands behind the figures.
    pub(crate) checks: Vec<Table>,
    pub(crate) evidence_title: String,
    pub(crate) evidence: Vec<EvidenceLine>,
    pub(crate) notes: Vec<String>,
    /// Name and text.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl View {
    pub(crate) fn of(analysis: &Analysis) -> Self {
        let source = Source { analysis };
        let mut tables: Vec<Table> = source
            .points()
            .map(|point| figures::table(source, point))
            .collect();
        tables.extend(proxies::table(source));
        tables.extend(upkeep::table(source));
        tables.extend(ingress::table(source));
        tables.extend(replicas::table(source));
        tables.extend(known_costs::table(source));
        tables.extend(study::tables(&[source]));
        let mut details = attribution::tables(source);
        // A run that takes a hop apart was made for it.
        if attribution::is_asked_for(source) {
            tables.append(&mut details);
        }
        details.extend(details::tables(source));
        tables.retain(|t| !t.rows.is_empty());
        Self {
            title: notes::title(analysis),
            partial: notes::partial(analysis),
            lead: headline::lead(source),
            headlines: headline::headlines(source),
            meaning: notes::meaning(&analysis.environment.layout),
            figures: charts::figures(source),
            drawn: charts::drawn(source),
            tables,
            details,
            checks: checks::tables(source),
            evidence_title: evidence::title(analysis),
            evidence: evidence::lines(source),
            notes: notes::notes(source),
            facts: notes::facts(analysis),
        }
    }
}

impl View {
    /// What a calibration says.
    pub(crate) fn of_calibration(calibration: &Calibration) -> Self {
        let analysis = &calibration.analysis;
        let source = Source { analysis };
        let mut tables: Vec<Table> = known_costs::table(source).into_iter().collect();
        tables.push(known_costs::resolvable(calibration));
        tables.retain(|table| !table.rows.is_empty());
        let mut notes = analysis.caveats.clone();
        if calibration.resolvable.is_empty() {
            notes.insert(
                0,
                "Too few rounds to say what a run here finds: give it more time.".to_owned(),
            );
        }
        Self {
            title: "How well this machine measures".to_owned(),
            partial: notes::partial(analysis),
            lead: known_costs::lead(calibration),
            headlines: Vec::new(),
            meaning: notes::meaning(&analysis.environment.layout),
            figures: Vec::new(),
            drawn: Vec::new(),
            tables,
            details: Vec::new(),
            checks: Vec::new(),
            evidence_title: String::new(),
            evidence: Vec::new(),
            notes,
            facts: notes::facts(analysis),
        }
    }

    /// What stands before the headlines.
    pub(crate) fn lead_line(&self) -> String {
        let end = if self.headlines.is_empty() { '.' } else { ':' };
        format!("{}{end}", self.lead)
    }
}

/// An analysis with the look-ups that every part of the view needs.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) analysis: &'a Analysis,
}

impl<'a> Source<'a> {
    pub(crate) fn points(self) -> impl Iterator<Item = &'a LoadPoint> {
        self.analysis.experiment.load_points.iter()
    }

    pub(crate) fn first_steady(self) -> Option<&'a LoadPoint> {
        self.points().find(|p| p.is_steady())
    }

    pub(crate) fn first_saturated(self) -> Option<&'a LoadPoint> {
        self.points().find(|p| !p.is_steady())
    }

    /// Variants that were measured, in the experiment's order, with what was asked of them.
    pub(crate) fn measured(self) -> impl Iterator<Item = (&'a Variant, &'a VariantAnalysis)> {
        self.variants().filter(|(_, v)| v.left_out.is_none())
    }

    pub(crate) fn variants(self) -> impl Iterator<Item = (&'a Variant, &'a VariantAnalysis)> {
        self.analysis
            .variants
            .iter()
            .filter_map(move |v| Some((self.analysis.experiment.variant(&v.variant)?, v)))
    }

    /// A variant's place in the experiment: by it, its color is the same in all pictures.
    pub(crate) fn place(self, id: &VariantId) -> usize {
        let mut variants = self.analysis.experiment.variants.iter();
        variants.position(|v| v.id == *id).unwrap_or_default()
    }

    pub(crate) fn effect(
        self,
        variant: &VariantId,
        point: &LoadPointId,
        metric: Metric,
    ) -> Option<&'a Effect> {
        self.analysis.effect(variant, point, metric)
    }

    /// `no mesh` for the data plane `none`, else the baseline's name.
    pub(crate) fn baseline_name(self) -> String {
        match self.analysis.experiment.by_role(Role::Baseline) {
            Some(v) if v.data_plane != "none" => v.id.0.clone(),
            _ => "no mesh".to_owned(),
        }
    }
}

/// What was found for a variant at a load point.
pub(crate) fn point_of<'a>(variant: &'a VariantAnalysis, id: &LoadPointId) -> Option<&'a Point> {
    variant.points.iter().find(|p| p.load_point == *id)
}

/// `1,000 requests/s` or `saturated`, and how often a connection is used.
pub(crate) fn load_in_words(point: &LoadPoint) -> String {
    let load = match point.load {
        Regime::Steady { rate_per_s, .. } => format!("{} requests/s", format::trimmed(rate_per_s)),
        Regime::Saturated => "saturated".to_owned(),
    };
    load + &manner_in_words(point)
}

/// Behind a load: what is other than usual about it.
pub(crate) fn manner_in_words(point: &LoadPoint) -> String {
    let mut words = reuse_in_words(point);
    if let Some(connections) = point.connections {
        let what = if point.by_users {
            "users"
        } else {
            "connections"
        };
        words.push_str(&format!(", {connections} {what}"));
    }
    if point.protocol != Protocol::Http1 {
        words.push_str(&format!(", {}", point.protocol));
    }
    if let Some(bytes) = point.response_bytes {
        words.push_str(&format!(", answers of {}", format::bytes(u64::from(bytes))));
    }
    words.push_str(match point.ingress {
        None => "",
        Some(Ingress::Plaintext) => ", by ingress",
        Some(Ingress::Tls) => ", by ingress over TLS",
    });
    words
}

/// How often a connection is used, where that is not without end.
fn reuse_in_words(point: &LoadPoint) -> String {
    match point.requests_per_connection {
        None => String::new(),
        Some(1) => ", a new connection for each request".to_owned(),
        Some(most) => format!(", a new connection after {most} requests"),
    }
}

/// `95 %`.
pub(crate) fn confidence_in_words(analysis: &Analysis) -> String {
    format!("{} %", format::trimmed(analysis.confidence * 100.0))
}
