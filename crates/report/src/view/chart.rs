//! Charts before they are drawn: data, labels and captions.

use crate::text::clean;
use crate::view::table::{Table, Tone, plain_cell};

/// The section of a report that a figure belongs to.
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
            Self::Published => "Compared with published results",
            Self::Latency => "Latency",
            Self::Cpu => "CPU",
            Self::Memory => "Memory",
            Self::Attribution => "Attribution",
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

/// A figure: one or more drawings of the same data, with title and caption.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// For anchors and file names: `percentiles`.
    pub(crate) id: &'static str,
    pub(crate) chapter: Chapter,
    pub(crate) title: String,
    /// How to read it.
    pub(crate) caption: String,
    /// Drawings of which the page shows one at a time, the first by default.
    pub(crate) choices: Vec<Choice>,
    /// The raw data of all drawings.
    pub(crate) data: Sheet,
}

/// One drawing of a figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// What distinguishes it from the others.
    pub(crate) label: String,
    pub(crate) chart: Chart,
    /// The text alternative.
    pub(crate) alt: String,
}

/// Raw data.
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

    /// A table's text.
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
    /// Values over a variable.
    Lines(LineChart),
    /// Stacked bars.
    Stacks(Stacks),
    /// Steps that add up.
    Waterfall(Waterfall),
    /// Measured and published figures in separate lanes.
    Lanes(Lanes),
}

/// A row of a forest plot, in its panel's unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Index of its variant in the experiment.
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
    /// Its tooltip.
    pub(crate) tip: String,
    /// Excluded from the analysis.
    pub(crate) faint: bool,
}

/// How the points of a line are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stroke {
    /// A line without marks.
    Line,
    /// A line with a mark at each point.
    Marked,
    /// Marks alone.
    Marks,
}

/// The line of a variant or a role.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// Index of its variant in the experiment, if it belongs to one.
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

/// A line chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LineChart {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Line>,
    pub(crate) rules: Vec<Rule>,
}

/// A segment of a stack: index of its kind in the legend, and its size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) kind: usize,
    pub(crate) value: f64,
    pub(crate) tip: String,
}

/// A sum.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stack {
    pub(crate) variant: usize,
    pub(crate) label: String,
    /// The sum, as text.
    pub(crate) figure: String,
    pub(crate) segments: Vec<Segment>,
}

/// Stacked bars.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stacks {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    /// Labels of the kinds.
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) stacks: Vec<Stack>,
}

/// A step of a waterfall.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rise {
    pub(crate) label: String,
    pub(crate) figure: String,
    /// `None`: not estimable; the next step starts where this one does.
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<(f64, f64)>,
}

/// Steps that add up from zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waterfall {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    pub(crate) rises: Vec<Rise>,
    /// The sum, as text, if all steps are estimable.
    pub(crate) total: Option<String>,
}

/// The origin of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Measured,
    Published,
}

/// One figure along a scale, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lane {
    pub(crate) origin: Origin,
    /// The name of the variant at its origin.
    pub(crate) label: String,
    /// The figure as text, or the reason why there is none.
    pub(crate) figure: String,
    /// Its interval as text, or a remark, where space allows.
    pub(crate) more: String,
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<(f64, f64)>,
}

impl Lane {
    /// Its label with its origin: `envoy-sidecar-mtls`, `published: Istio`.
    pub(crate) fn name(&self) -> String {
        match self.origin {
            Origin::Measured => self.label.clone(),
            Origin::Published => format!("published: {}", self.label),
        }
    }

    /// `0.0132 s [0.0129, 0.0135]`.
    pub(crate) fn text(&self) -> String {
        let text = format!("{} {}", self.figure, self.more);
        text.trim_end().to_owned()
    }
}

/// The figures of one variant at one load: measured, and published of its counterpart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    /// Index of its variant in the experiment, if there is one.
    pub(crate) variant: Option<usize>,
    pub(crate) lanes: Vec<Lane>,
}

/// All figures at one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadGroup {
    pub(crate) name: String,
    pub(crate) pairs: Vec<Pair>,
}

/// Measured and published figures in separate lanes, on a logarithmic scale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lanes {
    /// What the axis is: name and unit.
    pub(crate) axis: String,
    pub(crate) loads: Vec<LoadGroup>,
    /// Legend of each origin.
    pub(crate) measured: String,
    pub(crate) published: String,
}
