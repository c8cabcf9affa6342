//! A report, and other documents, before they are laid out.

use super::chart::Figure;
use super::table::{Table, Tone};

/// The result of one variant in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headline {
    pub(crate) variant: String,
    pub(crate) clauses: Vec<String>,
    pub(crate) tone: Tone,
}

/// Whether a variant behaves as its name states.
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
    /// `None`: informational, neither passed nor failed.
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

/// The content of a report.
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
    /// What the run suggests for each requirement.
    pub(crate) decision: Vec<Table>,
    /// Whether requirements have weights: then it is shown where there is little room, too.
    pub(crate) weighs: bool,
    /// For the formats that have room.
    pub(crate) details: Vec<Table>,
    /// Likewise: the supporting data.
    pub(crate) checks: Vec<Table>,
    pub(crate) evidence_title: String,
    pub(crate) evidence: Vec<EvidenceLine>,
    pub(crate) notes: Vec<String>,
    /// Name and text.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl View {
    /// The line before the headlines.
    pub(crate) fn lead_line(&self) -> String {
        lead_line(&self.lead, &self.headlines)
    }
}

/// The line before these headlines, if there are any.
pub(crate) fn lead_line(lead: &str, headlines: &[Headline]) -> String {
    let end = if headlines.is_empty() { '.' } else { ':' };
    format!("{lead}{end}")
}

/// A part of a document that is no report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Block {
    /// The document's title.
    Title(String),
    /// A name and its value; further lines are aligned with the value.
    Fact(String, String),
    /// A text on its own.
    Text(String, Tone),
    /// A text that is one of several.
    Item(String),
    /// Something to follow, further in than the text before it.
    Aside(String),
    /// A table.
    Table(Table),
    /// Room.
    Gap,
}
