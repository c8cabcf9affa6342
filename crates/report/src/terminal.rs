//! One screen of text.

use crate::layout::{self, wrap};
use crate::text::{clean, width};
use crate::view::document::{Block, Headline, Proof, View};
use crate::view::headings;
use crate::view::table::{Table, Tone};

/// How a terminal is written to. The caller finds out; this crate never looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns. Below [`TerminalOptions::MIN_WIDTH`] lines may be longer than requested.
    pub width: usize,
    /// Whether colors (SGR codes) may be used.
    pub color: bool,
}

impl TerminalOptions {
    /// The narrowest width that is laid out for.
    pub const MIN_WIDTH: usize = 40;
}

impl Default for TerminalOptions {
    fn default() -> Self {
        Self {
            width: 100,
            color: false,
        }
    }
}

/// Lays a view out for a terminal.
pub(crate) fn render(view: &View, options: TerminalOptions) -> String {
    let mut screen = Screen::new(options);
    screen.paragraph("", &view.title, Tone::Strong);
    if let Some(partial) = &view.partial {
        screen.paragraph("", partial, Tone::Bad);
    }
    screen.headlines(view);
    for text in &view.meaning {
        screen.paragraph("", text, Tone::Plain);
    }
    let decision = view.decision.iter().filter(|_| view.weighs);
    for table in view.tables.iter().chain(decision) {
        screen.blank();
        screen.table(table);
    }
    screen.blank();
    screen.evidence(view);
    screen.blank();
    screen.notes(&view.notes);
    screen.facts(&view.facts);
    screen.out
}

/// Lays out blocks from top to bottom.
pub(crate) fn document(parts: &[Block], options: TerminalOptions) -> String {
    let mut screen = Screen::new(options);
    for part in parts {
        match part {
            Block::Title(text) => screen.paragraph("", text, Tone::Strong),
            Block::Fact(name, text) => screen.paragraph(&format!("{name}  "), text, Tone::Plain),
            Block::Text(text, tone) => screen.paragraph("", text, *tone),
            Block::Item(text) => screen.paragraph("- ", text, Tone::Plain),
            Block::Aside(text) => screen.paragraph("    ", text, Tone::Muted),
            Block::Table(table) => screen.table(table),
            Block::Gap => screen.blank(),
        }
    }
    screen.out
}

struct Screen {
    width: usize,
    color: bool,
    out: String,
}

impl Screen {
    fn new(options: TerminalOptions) -> Self {
        Self {
            width: options.width.max(TerminalOptions::MIN_WIDTH),
            color: options.color,
            out: String::new(),
        }
    }

    fn notes(&mut self, notes: &[String]) {
        for note in notes {
            self.paragraph("- ", note, Tone::Plain);
        }
    }

    fn facts(&mut self, facts: &[(&'static str, String)]) {
        for (name, text) in facts {
            self.paragraph("", &format!("{name}: {text}"), Tone::Muted);
        }
    }

    fn blank(&mut self) {
        if !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    fn piece(&mut self, text: &str, tone: Tone) {
        let code = match tone {
            _ if !self.color || text.trim().is_empty() => None,
            Tone::Plain => None,
            Tone::Strong => Some("1"),
            Tone::Muted => Some("2"),
            Tone::Good => Some("32"),
            Tone::Bad => Some("31"),
        };
        match code {
            Some(code) => self.out.push_str(&format!("\u{1b}[{code}m{text}\u{1b}[0m")),
            None => self.out.push_str(text),
        }
    }

    fn end_line(&mut self) {
        let kept = self.out.trim_end_matches(' ').len();
        self.out.truncate(kept);
        self.out.push('\n');
    }

    /// Wrapped text; later lines are indented as far as `start` is long.
    fn paragraph(&mut self, start: &str, text: &str, tone: Tone) {
        let indent = width(start);
        for (i, line) in wrap(text, self.width.saturating_sub(indent))
            .iter()
            .enumerate()
        {
            if i == 0 {
                self.piece(start, Tone::Plain);
            } else {
                self.piece(&" ".repeat(indent), Tone::Plain);
            }
            self.piece(line, tone);
            self.end_line();
        }
    }

    fn headlines(&mut self, view: &View) {
        self.paragraph("", &view.lead_line(), Tone::Plain);
        let names = view.headlines.iter().map(|h| width(&h.variant));
        let column = names.max().unwrap_or(0);
        // Next to long names there would be no room for the text.
        let beside = column + 4 <= self.width / 2;
        for Headline {
            variant,
            clauses,
            tone,
        } in &view.headlines
        {
            let text = clauses.join("; ");
            let name = clean(variant);
            if beside {
                let padding = column.saturating_sub(width(&name));
                let indent = " ".repeat(column + 4);
                let lines = wrap(&text, self.width.saturating_sub(column + 4));
                for (i, line) in lines.iter().enumerate() {
                    if i == 0 {
                        self.piece("  ", Tone::Plain);
                        self.piece(&name, Tone::Strong);
                        self.piece(&" ".repeat(padding + 2), Tone::Plain);
                    } else {
                        self.piece(&indent, Tone::Plain);
                    }
                    self.piece(line, *tone);
                    self.end_line();
                }
            } else {
                self.paragraph("  ", &name, Tone::Strong);
                self.paragraph("    ", &text, *tone);
            }
        }
    }

    fn table(&mut self, table: &Table) {
        let title = clean(&table.title);
        let detail = format!("({})", table.detail);
        if table.detail.is_empty() {
            self.paragraph("", &title, Tone::Strong);
        } else if width(&title) + 1 + width(&detail) <= self.width {
            self.piece(&title, Tone::Strong);
            self.piece(&format!(" {detail}"), Tone::Muted);
            self.end_line();
        } else {
            self.paragraph("", &title, Tone::Strong);
            self.paragraph("", &detail, Tone::Muted);
        }
        let laid = layout::table(table, self.width.saturating_sub(2));
        for line in laid.lines {
            self.piece("  ", Tone::Plain);
            for (text, tone) in line {
                self.piece(&text, tone);
            }
            self.end_line();
        }
        for (mark, text) in &table.footnotes {
            self.paragraph("  ", &format!("{mark} {text}"), Tone::Muted);
        }
        if !laid.left_out.is_empty() {
            let text = headings::omitted_columns(&laid.left_out);
            self.paragraph("  ", &text, Tone::Muted);
        }
    }

    fn evidence(&mut self, view: &View) {
        if view.evidence.is_empty() {
            return;
        }
        self.paragraph("", &view.evidence_title, Tone::Strong);
        let names: Vec<String> = view
            .evidence
            .iter()
            .map(|l| clean(&l.variants.join(", ")))
            .collect();
        let column = names.iter().map(|n| width(n)).max().unwrap_or(0);
        let column = column.min(self.width / 3);
        for (line, name) in view.evidence.iter().zip(names) {
            let (sign, tone) = match line.proof {
                Proof::Proven => ("✓", Tone::Good),
                Proof::Failed => ("✗", Tone::Bad),
                Proof::Unknown => ("?", Tone::Bad),
            };
            let padding = column.saturating_sub(width(&name));
            let start = width(&name) + padding + 6;
            let texts = wrap(&line.text, self.width.saturating_sub(start).max(20));
            for (i, text) in texts.iter().enumerate() {
                if i == 0 {
                    self.piece("  ", Tone::Plain);
                    self.piece(sign, tone);
                    self.piece(&format!(" {name}{}  ", " ".repeat(padding)), Tone::Plain);
                } else {
                    self.piece(&" ".repeat(start), Tone::Plain);
                }
                self.piece(text, Tone::Plain);
                self.end_line();
            }
        }
    }
}
