//! Tables and their cells, before they are laid out.

use crate::format;
use crate::text::clean;

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

/// The content of a cell.
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

    /// With more text beside its figure.
    pub(crate) fn followed_by(mut self, more: &str) -> Self {
        if let Content::Figure { beside, .. } = &mut self.content {
            beside.push(' ');
            beside.push_str(more);
        }
        self
    }

    /// Nothing applies here.
    pub(crate) fn empty() -> Self {
        Self::text("")
    }

    /// Something belongs here and is not there.
    pub(crate) fn missing() -> Self {
        Self::text(format::MISSING).toned(Tone::Muted)
    }

    /// A figure without text next to it: its mark is placed at the number.
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

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// What may happen to a column that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Essential to the table.
    Always,
    /// Shown elsewhere too: dropped without a notice, in this order (1 first), before
    /// anything is wrapped.
    IfItFits(u8),
    /// Dropped in this order (1 first), with a notice.
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

/// A cell on one line.
pub(crate) fn plain_cell(cell: &Cell) -> String {
    let text = match &cell.content {
        Content::Text(text) => text.clone(),
        Content::Figure { value, beside } if beside.is_empty() => value.clone(),
        Content::Figure { value, beside } => format!("{value} {beside}"),
    };
    clean(&format!("{text}{}", cell.mark))
}
