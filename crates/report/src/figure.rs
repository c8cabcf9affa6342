//! Pictures before they are drawn: what they show, in words, shapes and figures.

use crate::layout::{clean, plain_cell};
use crate::view::{Table, Tone};

/// Where in a report a picture belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chapter {
    Overheads,
    Published,
    Latency,
    Cpu,
    Memory,
    Attribution,
    Time,
}

impl Chapter {
    /// In the order of a report.
    pub(crate) const ALL: [Self; 7] = [
        Self::Overheads,
        Self::Published,
        Self::Latency,
        Self::Cpu,
        Self::Memory,
        Self::Attribution,
        Self::Time,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Overheads => "Overheads",
            Self::Published => "Beside what was published",
            Self::Latency => "Latency",
            Self::Cpu => "CPU",
            Self::Memory => "Memory",
            Self::Attribution => "Where it comes from",
            Self::Time => "Over time",
        }
    }

    /// For anchors.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Overheads => "overheads",
            Self::Published => "beside-published",
            Self::Latency => "latency",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Attribution => "attribution",
            Self::Time => "time",
        }
    }
}

/// A picture, and all that belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// For anchors and file names: `percentiles`.
    pub(crate) id: &'static str,
    pub(crate) chapter: Chapter,
    pub(crate) title: String,
    /// How to read it.
    pub(crate) caption: String,
    /// Drawings of which one is looked at, the first without a word.
    pub(crate) choices: Vec<Choice>,
    /// What is drawn, in raw figures: all choices.
    pub(crate) data: Sheet,
}

/// One drawing of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// What tells it from the others.
    pub(crate) label: String,
    pub(crate) chart: Chart,
    /// The same in words.
    pub(crate) alt: String,
}

/// Raw figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sheet {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self {
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// A table's words as they stand.
    pub(crate) fn of(table: &Table) -> Self {
        let rows = table.rows.iter();
        Self {
            head: table.columns.iter().map(|c| clean(&c.head)).collect(),
            rows: rows
                .map(|row| row.iter().map(plain_cell).collect())
                .collect(),
        }
    }

    /// Adds a row; it has as many cells as the head.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
    }

    /// Comma-separated, with its head.
    pub(crate) fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        // Writing into memory cannot fail, and all rows have the head's length.
        let _ = writer.write_record(&self.head);
        for row in &self.rows {
            let _ = writer.write_record(row);
        }
        let bytes = writer.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What a drawing is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chart {
    /// Effects with their intervals.
    Forest(Panel),
    /// Values over something.
    Lines(Lines),
    /// Sums by their parts.
    Stacks(Stacks),
    /// Steps that add up.
    Waterfall(Waterfall),
    /// What was measured and what was published, apart.
    Lanes(Lanes),
}

/// A row of a forest plot, in its panel's unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Its variant's place in the experiment.
    pub(crate) variant: usize,
    pub(crate) label: String,
    pub(crate) figure: String,
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) tone: Tone,
}

/// Effects on one metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Panel {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    pub(crate) noise_floor: Option<f64>,
    pub(crate) marks: Vec<Mark>,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers of ten.
    Log,
    /// Quantiles at even distances in nines, as HdrHistogram's plots are.
    Nines,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Name and unit.
    pub(crate) name: String,
    pub(crate) scale: Scale,
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dot {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// What is told of it.
    pub(crate) tip: String,
    /// It is there, and does not count.
    pub(crate) faint: bool,
}

/// How the points of a series are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
    /// A line without marks.
    Line,
    /// A line with a mark at each point.
    Marked,
    /// Marks alone.
    Marks,
}

/// One variant's, or one role's, line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// Its variant's place in the experiment, if it is one's.
    pub(crate) variant: Option<usize>,
    /// Its color and mark.
    pub(crate) look: usize,
    pub(crate) label: String,
    pub(crate) dots: Vec<Dot>,
    pub(crate) stroke: Stroke,
}

/// A vertical line across a chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) variant: usize,
    pub(crate) look: usize,
    pub(crate) x: f64,
    pub(crate) tip: String,
}

/// Values over something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lines {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) rules: Vec<Rule>,
}

/// A part of a sum: its kind's place in the legend, and its size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) kind: usize,
    pub(crate) value: f64,
    pub(crate) tip: String,
}

/// A sum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stack {
    pub(crate) variant: usize,
    pub(crate) label: String,
    /// The sum, in words.
    pub(crate) figure: String,
    pub(crate) pieces: Vec<Piece>,
}

/// Sums by their parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stacks {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    /// What the parts are called.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) stacks: Vec<Stack>,
}

/// What is added by a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rise {
    pub(crate) label: String,
    pub(crate) figure: String,
    /// `None`: it could not be estimated, and what follows begins where this did.
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<(f64, f64)>,
}

/// Steps that add up, from nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waterfall {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    pub(crate) rises: Vec<Rise>,
    /// The sum, in words, if all steps are known.
    pub(crate) total: Option<String>,
}

/// Who says a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Measured,
    Published,
}

/// One figure along a scale, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) origin: Origin,
    /// The variant, as whose figure it is calls it.
    pub(crate) label: String,
    /// The figure in words, or what stands in its place.
    pub(crate) figure: String,
    /// Its interval in words, or a remark: where there is room.
    pub(crate) more: String,
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<(f64, f64)>,
}

impl Lane {
    /// Whose figure it is: `envoy-sidecar-mtls`, `published: Istio`.
    pub(crate) fn name(&self) -> String {
        match self.origin {
            Origin::Measured => self.label.clone(),
            Origin::Published => format!("published: {}", self.label),
        }
    }

    /// `0.0132 s [0.0129, 0.0135]`.
    pub(crate) fn said(&self) -> String {
        let said = format!("{} {}", self.figure, self.more);
        said.trim_end().to_owned()
    }
}

/// What belongs to one variant at one load: its own figure, and those that were published of its like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    /// Its variant's place in the experiment, if there is one.
    pub(crate) variant: Option<usize>,
    pub(crate) lanes: Vec<Lane>,
}

/// All at one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) name: String,
    pub(crate) pairs: Vec<Pair>,
}

/// Measured and published figures in lanes of their own, on a scale by powers of ten.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lanes {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    pub(crate) loads: Vec<Load>,
    /// What a mark of each origin is.
    pub(crate) measured: String,
    pub(crate) published: String,
}
