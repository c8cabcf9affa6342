//! Text in columns: what fits is aligned, what does not is wrapped, left out with a word, or
//! stacked.

use crate::text::{clean, width};
use crate::view::table::{Align, Cell, Column, Content, Keep, Table, Tone, plain_cell};
/// Between two columns.
const GAP: usize = 2;

/// Words in lines of at most `limit` columns; a longer word has a line to itself.
pub(crate) fn wrap(text: &str, limit: usize) -> Vec<String> {
    filled(&unbroken(words(&clean(text))), limit)
}

/// A number and its percent sign on one line.
fn unbroken(words: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        match joined.last_mut() {
            Some(number) if word.starts_with('%') => {
                number.push(' ');
                number.push_str(&word);
            }
            _ => joined.push(word),
        }
    }
    joined
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// The longest name of a unit in a heading ("MiB").
const UNIT: usize = 3;

/// The words of a column's heading, the last with its unit as long as that is possible.
fn heading_words(head: &str, squeeze: Squeeze) -> Vec<String> {
    let mut words = words(head);
    if squeeze < Squeeze::Units
        && let [.., _, last] = words.as_slice()
        && width(last) <= UNIT
        && let Some(unit) = words.pop()
        && let Some(name) = words.last_mut()
    {
        name.push(' ');
        name.push_str(&unit);
    }
    words
}

fn filled(words: &[String], limit: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= limit => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

/// A line's part with its tone, already padded.
pub(crate) type Piece = (String, Tone);

/// How cells may be broken to make a table narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Squeeze {
    /// Not at all.
    None,
    /// Words may wrap, but no heading's unit.
    Words,
    /// Units may stand below what they are the units of.
    Units,
    /// Intervals may be placed below their figure.
    Figures,
}

/// A table as lines of pieces, and the heads of the columns that were left out.
pub(crate) struct Laid {
    pub(crate) lines: Vec<Vec<Piece>>,
    pub(crate) left_out: Vec<String>,
}

/// Lays a table out in at most `limit` columns.
pub(crate) fn table(table: &Table, limit: usize) -> Laid {
    let mut visible: Vec<usize> = (0..table.columns.len()).collect();
    let mut left_out = Vec::new();
    loop {
        for squeeze in [Squeeze::None, Squeeze::Words, Squeeze::Units] {
            let is_roomy = !visible
                .iter()
                .any(|i| matches!(keep(table, *i), Keep::IfItFits(_)));
            // Columns that may go without a word go before anything is wrapped.
            if squeeze > Squeeze::None && !is_roomy {
                continue;
            }
            if let Some(lines) = in_columns(table, &visible, limit, squeeze) {
                return Laid { lines, left_out };
            }
        }
        let Some(next) = next_to_go(table, &visible) else {
            break;
        };
        visible.retain(|i| *i != next);
        if matches!(keep(table, next), Keep::Until(_)) {
            left_out.extend(table.columns.get(next).map(|c| c.head.clone()));
        }
    }
    match in_columns(table, &visible, limit, Squeeze::Figures) {
        Some(lines) => Laid { lines, left_out },
        // With a line for each cell there is room for all of them again.
        None => Laid {
            lines: stacked(table, limit),
            left_out: Vec::new(),
        },
    }
}

fn keep(table: &Table, column: usize) -> Keep {
    table.columns.get(column).map_or(Keep::Always, |c| c.keep)
}

/// Columns that are also shown elsewhere first, then the others, each in their order.
fn next_to_go(table: &Table, visible: &[usize]) -> Option<usize> {
    visible
        .iter()
        .copied()
        .filter(|i| keep(table, *i) != Keep::Always)
        .min_by_key(|i| match keep(table, *i) {
            Keep::IfItFits(order) => (0, order),
            Keep::Until(order) => (1, order),
            Keep::Always => (2, 0),
        })
}

/// A column with its cells and how wide it may be.
struct Measured<'a> {
    column: &'a Column,
    heading: Vec<String>,
    cells: Vec<&'a Cell>,
    /// Of the numbers in the column's figures, so that they can be aligned.
    value_width: usize,
    least: usize,
    natural: usize,
}

fn measure(table: &Table, index: usize, squeeze: Squeeze) -> Option<Measured<'_>> {
    let column = table.columns.get(index)?;
    let cells: Vec<&Cell> = table.rows.iter().filter_map(|r| r.get(index)).collect();
    let value_width = cells
        .iter()
        .map(|c| match &c.content {
            Content::Figure { value, .. } => width(&clean(value)),
            Content::Text(_) => 0,
        })
        .max()
        .unwrap_or(0);
    let mut natural = width(&column.head);
    let heading = heading_words(&column.head, squeeze);
    let mut least = longest(&heading);
    for cell in &cells {
        let (cell_least, cell_natural) = cell_widths(cell, value_width, squeeze);
        natural = natural.max(cell_natural);
        least = least.max(cell_least);
    }
    Some(Measured {
        column,
        heading,
        cells,
        value_width,
        least: if squeeze == Squeeze::None {
            natural
        } else {
            least
        },
        natural,
    })
}

fn cell_widths(cell: &Cell, value_width: usize, squeeze: Squeeze) -> (usize, usize) {
    match &cell.content {
        Content::Text(text) => {
            let text = format!("{}{}", clean(text), cell.mark);
            (longest(&words(&text)), width(&text))
        }
        Content::Figure { beside, .. } => {
            let beside = width(beside) + width(&cell.mark);
            let gap = usize::from(!cell.is_bare());
            let natural = value_width + gap + beside;
            if squeeze == Squeeze::Figures && !cell.is_bare() {
                (value_width.max(beside), natural)
            } else {
                (natural, natural)
            }
        }
    }
}

fn longest(words: &[String]) -> usize {
    words.iter().map(|word| width(word)).max().unwrap_or(0)
}

fn in_columns(
    table: &Table,
    visible: &[usize],
    limit: usize,
    squeeze: Squeeze,
) -> Option<Vec<Vec<Piece>>> {
    let columns: Vec<Measured<'_>> = visible
        .iter()
        .filter_map(|i| measure(table, *i, squeeze))
        .collect();
    let gaps = GAP * columns.len().saturating_sub(1);
    let least: usize = columns.iter().map(|c| c.least).sum::<usize>() + gaps;
    if least > limit {
        return None;
    }
    let mut spare = limit - least;
    let widths: Vec<usize> = columns
        .iter()
        .map(|c| {
            let given = spare.min(c.natural - c.least);
            spare -= given;
            c.least + given
        })
        .collect();
    let mut lines = heading_lines(&columns, &widths);
    for row in 0..table.rows.len() {
        let cells: Vec<&Cell> = columns
            .iter()
            .filter_map(|c| c.cells.get(row).copied())
            .collect();
        lines.extend(row_lines(&columns, &widths, &cells));
    }
    Some(lines)
}

fn heading_lines(columns: &[Measured<'_>], widths: &[usize]) -> Vec<Vec<Piece>> {
    let heads = columns.iter().zip(widths);
    let broken = heads.map(|(column, width)| filled(&column.heading, *width));
    let tones = vec![Tone::Muted; columns.len()];
    side_by_side(columns, widths, &broken.collect::<Vec<_>>(), &tones)
}

fn row_lines(columns: &[Measured<'_>], widths: &[usize], cells: &[&Cell]) -> Vec<Vec<Piece>> {
    let broken: Vec<Vec<String>> = columns
        .iter()
        .zip(widths)
        .zip(cells)
        .map(|((column, width), cell)| cell_lines(cell, column.value_width, *width))
        .collect();
    let tones: Vec<Tone> = cells.iter().map(|cell| cell.tone).collect();
    side_by_side(columns, widths, &broken, &tones)
}

/// Cells that are already broken into lines, padded to their columns' widths.
fn side_by_side(
    columns: &[Measured<'_>],
    widths: &[usize],
    broken: &[Vec<String>],
    tones: &[Tone],
) -> Vec<Vec<Piece>> {
    let height = broken.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|at| {
            let mut line = Vec::new();
            for (i, ((column, size), tone)) in columns.iter().zip(widths).zip(tones).enumerate() {
                let text = broken.get(i).and_then(|l| l.get(at));
                let text = text.map_or("", String::as_str);
                let padding = " ".repeat(size.saturating_sub(width(text)));
                let (before, after) = match column.column.align {
                    Align::Left => (String::new(), padding),
                    Align::Right => (padding, String::new()),
                };
                let gap = if i == 0 { 0 } else { GAP };
                line.push((" ".repeat(gap) + &before, Tone::Plain));
                line.push((text.to_owned(), *tone));
                line.push((after, Tone::Plain));
            }
            line
        })
        .collect()
}

fn cell_lines(cell: &Cell, value_width: usize, limit: usize) -> Vec<String> {
    match &cell.content {
        Content::Text(text) => wrap(&format!("{text}{}", cell.mark), limit),
        Content::Figure { value, beside } => {
            let value = clean(value);
            let padding = " ".repeat(value_width.saturating_sub(width(&value)));
            let beside = format!("{beside}{}", cell.mark);
            if cell.is_bare() {
                return vec![format!("{padding}{value}{beside}")];
            }
            let line = format!("{padding}{value} {beside}");
            if width(&line) <= limit {
                vec![line]
            } else {
                vec![format!("{padding}{value}"), beside]
            }
        }
    }
}

/// For a very narrow terminal: each row on separate lines, each cell with its column's heading.
fn stacked(table: &Table, limit: usize) -> Vec<Vec<Piece>> {
    let mut lines = Vec::new();
    for row in &table.rows {
        for (at, (column, cell)) in table.columns.iter().zip(row).enumerate() {
            let text = plain_cell(cell);
            if at == 0 {
                lines.push(vec![(text, cell.tone)]);
            } else if !text.is_empty() {
                let wrapped = wrap(&format!("{}: {text}", column.head), limit.saturating_sub(2));
                lines.extend(
                    wrapped
                        .into_iter()
                        .map(|l| vec![("  ".to_owned(), Tone::Plain), (l, cell.tone)]),
                );
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_sign_stays_on_the_line_of_its_number() {
        assert_eq!(wrap("loses 95 % of it", 8), ["loses", "95 % of", "it"]);
        assert_eq!(wrap("95 %, then", 20), ["95 %, then"]);
        assert_eq!(wrap("%", 8), ["%"]);
    }
}
