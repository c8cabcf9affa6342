//! What all charts are drawn with: their measures, labels and legends.

use crate::markup::escaped;

/// Units of a drawing: it is scaled to the room that it has, and reads well from 340 pixels on.
pub(super) const WIDTH: f64 = 480.0;
pub(super) const LEFT: f64 = 8.0;
pub(super) const RIGHT: f64 = WIDTH - 12.0;
/// A row with its label above what is drawn.
pub(super) const ROW_HEIGHT: f64 = 38.0;
pub(super) const AXIS_HEIGHT: f64 = 40.0;
/// As many colors as there are; further variants get them again, dashed.
pub(super) const LOOKS: usize = 8;

/// A drawing's body and its height.
pub(super) struct Drawing {
    pub(super) body: String,
    pub(super) height: f64,
}

/// Attributes for the script: the variant to hide, the tooltip to show.
pub(super) fn data_attributes(variant: Option<usize>, tip: &str) -> String {
    let mut out = String::new();
    if let Some(variant) = variant {
        out.push_str(&format!(" data-v=\"{variant}\""));
    }
    if !tip.is_empty() {
        out.push_str(&format!(" data-tip=\"{}\"", escaped(tip)));
    }
    out
}

/// The class of a color, and of a dash where colors repeat.
pub(crate) fn look_class(look: usize) -> String {
    let again = if look >= LOOKS { " again" } else { "" };
    format!("s{}{again}", look % LOOKS)
}

/// The label of a row at its left, its figure at its right.
pub(super) fn row_head(label: &str, figure: &str, top: f64) -> String {
    /// As many as fit a line, both together.
    const CHARS: usize = 66;
    let y = top + 15.0;
    let figure = shortened(figure, CHARS * 3 / 4);
    let room = CHARS.saturating_sub(figure.chars().count()).max(16);
    format!(
        "<text x=\"{LEFT}\" y=\"{y:.1}\">{}</text><text class=\"value\" x=\"{RIGHT}\" y=\"{y:.1}\">{}</text>",
        escaped(&shortened(label, room)),
        escaped(&figure)
    )
}

/// Names from outside may be of any length.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// One line per pair of names, each with a mark of its class.
pub(super) fn legend(entries: &[(String, String, Option<usize>)], top: f64) -> Drawing {
    const LINE: f64 = 18.0;
    let column = (RIGHT - LEFT) / 2.0;
    let mut body = String::new();
    for (i, (class, label, variant)) in entries.iter().enumerate() {
        let x = LEFT + column * (i % 2) as f64;
        let y = top + LINE * (i / 2) as f64 + 12.0;
        body.push_str(&format!(
            "<g class=\"{class}\"{}><rect class=\"swatch\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"9\" \
             rx=\"1\"/><text class=\"small\" x=\"{:.1}\" y=\"{y:.1}\">{}</text></g>\n",
            data_attributes(*variant, ""),
            y - 8.5,
            x + 20.0,
            escaped(&shortened(label, 32))
        ));
    }
    Drawing {
        body,
        height: LINE * entries.len().div_ceil(2) as f64 + 6.0,
    }
}
