//! Charts as SVG: small, without a script, in the colors of the surrounding page.

pub(crate) use self::canvas::look_class;
use self::canvas::{Drawing, LEFT, WIDTH, shortened};
use crate::markup::escaped;
use crate::view::chart::Chart;
mod axis;
mod bars;
mod canvas;
mod forest;
mod lanes;
mod lines;

/// Colors and shapes of charts, for pages and for standalone pictures.
pub(crate) const STYLE: &str = include_str!("chart.css");

/// For a page, which has the styles.
pub(crate) fn inline(chart: &Chart, alt: &str) -> String {
    let Drawing { body, height } = draw(chart);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n{body}</svg>\n",
        escaped(alt)
    )
}

/// A standalone file.
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
