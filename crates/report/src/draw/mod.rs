//! Charts as SVG: small, without a script, in the colors of the page they stand on.

mod axis;
mod bars;
mod forest;
mod lanes;
mod lines;

use crate::figure::Chart;
use crate::html::escaped;

/// Colors and shapes of charts, for pages and for pictures that stand alone.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// Units of a drawing: it is scaled to the room that it has, and reads well from 340 pixels on.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 12.0;
/// A row with its label above what is drawn.
const ROW_HEIGHT: f64 = 38.0;
const AXIS_HEIGHT: f64 = 40.0;
/// As many colors as there are; further variants get them again, dashed.
const LOOKS: usize = 8;

/// A drawing's body and its height.
struct Drawing {
    body: String,
    height: f64,
}

/// For a page, which has the styles.
pub(crate) fn inline(chart: &Chart, alt: &str) -> String {
    let Drawing { body, height } = draw(chart);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{body}</svg>\n",
        escaped(alt)
    )
}

/// A file of its own.
pub(crate) fn alone(chart: &Chart, title: &str, alt: &str) -> String {
    let Drawing { body, height } = draw(chart);
    const TITLE_HEIGHT: f64 = 28.0;
    let whole = height + TITLE_HEIGHT;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {whole:.0}\" \
         width=\"{WIDTH}\" height=\"{whole:.0}\" role=\"img\" aria-label=\"{}\">\n<style>\n{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{whole:.0}\"/>\n\
         <text class=\"name\" x=\"{LEFT}\" y=\"19\">{}</text>\n\
         <g transform=\"translate(0 {TITLE_HEIGHT})\">\n{body}</g>\n</svg>\n",
        escaped(alt),
        escaped(&shortened(title, 58))
    )
}

fn draw(chart: &Chart) -> Drawing {
    match chart {
        Chart::Forest(panel) => forest::draw(panel),
        Chart::Lines(lines) => lines::draw(lines),
        Chart::Stacks(stacks) => bars::stacks(stacks),
        Chart::Waterfall(waterfall) => bars::waterfall(waterfall),
        Chart::Lanes(lanes) => lanes::draw(lanes),
    }
}

/// Attributes of what belongs to a variant and tells something.
fn told(variant: Option<usize>, tip: &str) -> String {
    let mut out = String::new();
    if let Some(variant) = variant {
        out.push_str(&format!(" data-v=\"{variant}\""));
    }
    if !tip.is_empty() {
        out.push_str(&format!(" data-tip=\"{}\"", escaped(tip)));
    }
    out
}

/// The class of a color, and of a dash where colors come again.
pub(crate) fn look_class(look: usize) -> String {
    let again = if look >= LOOKS { " again" } else { "" };
    format!("s{}{again}", look % LOOKS)
}

/// The label of a row at its left, its figure at its right.
fn row_head(label: &str, figure: &str, top: f64) -> String {
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
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// One line per pair of names, each with a mark of its class.
fn legend(entries: &[(String, String, Option<usize>)], top: f64) -> Drawing {
    const LINE: f64 = 18.0;
    let column = (RIGHT - LEFT) / 2.0;
    let mut body = String::new();
    for (i, (class, label, variant)) in entries.iter().enumerate() {
        let x = LEFT + column * (i % 2) as f64;
        let y = top + LINE * (i / 2) as f64 + 12.0;
        body.push_str(&format!(
            "<g class=\"{class}\"{}><rect class=\"swatch\" x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"9\" \
             rx=\"1\"/><text class=\"small\" x=\"{:.1}\" y=\"{y:.1}\">{}</text></g>\n",
            told(*variant, ""),
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
