//! Values over something: percentile curves, latency over load, use over time.

use super::axis::Ruler;
use super::canvas::{Drawing, LEFT, RIGHT, data_attributes, legend, look_class, shortened};
use crate::markup::escaped;
use crate::view::chart::{Dot, Line, LineChart, Rule, Stroke};

const TOP: f64 = 24.0;
const BOTTOM: f64 = 250.0;
const INNER_LEFT: f64 = 58.0;
const AXIS_HEIGHT: f64 = 40.0;

pub(super) fn draw(lines: &LineChart) -> Drawing {
    let dots = || lines.series.iter().flat_map(|series| &series.dots);
    let xs = dots()
        .map(|dot| dot.x)
        .chain(lines.rules.iter().map(|rule| rule.x));
    let across = Ruler::over(lines.x.scale, xs, (INNER_LEFT, RIGHT));
    let up = Ruler::over(lines.y.scale, dots().map(|dot| dot.y), (BOTTOM, TOP));
    let mut body = frame(lines, &across, &up);
    for rule in &lines.rules {
        body.push_str(&rule_text(rule, &across));
    }
    for series in &lines.series {
        body.push_str(&series_text(series, &across, &up));
    }
    let entries: Vec<_> = lines
        .series
        .iter()
        .map(|series| {
            (
                look_class(series.look),
                series.label.clone(),
                series.variant,
            )
        })
        .collect();
    let key = legend(&entries, BOTTOM + AXIS_HEIGHT);
    body.push_str(&key.body);
    Drawing {
        body,
        height: BOTTOM + AXIS_HEIGHT + key.height,
    }
}

fn frame(lines: &LineChart, across: &Ruler, up: &Ruler) -> String {
    let mut out = format!(
        "<text class=\"axis-name\" x=\"{LEFT}\" y=\"13\">{}</text>\n\
         <line class=\"axis\" x1=\"{INNER_LEFT}\" y1=\"{BOTTOM}\" x2=\"{RIGHT}\" y2=\"{BOTTOM}\"/>\n",
        escaped(&shortened(&lines.y.name, 70))
    );
    for tick in up.ticks() {
        let y = tick.at;
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{INNER_LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            INNER_LEFT - 6.0,
            y + 4.0,
            escaped(&tick.label)
        ));
    }
    for tick in across.ticks() {
        let x = tick.at;
        let anchor = if x > RIGHT - 16.0 { "end" } else { "middle" };
        out.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            BOTTOM + 4.0,
            BOTTOM + 17.0,
            escaped(&tick.label)
        ));
    }
    out.push_str(&format!(
        "<text class=\"axis-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
        f64::midpoint(INNER_LEFT, RIGHT),
        BOTTOM + 32.0,
        escaped(&shortened(&lines.x.name, 70))
    ));
    out
}

fn rule_text(rule: &Rule, across: &Ruler) -> String {
    let Some(x) = across.place(rule.x) else {
        return String::new();
    };
    format!(
        "<line class=\"rule {}\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{BOTTOM}\"{}/>\n",
        look_class(rule.look),
        data_attributes(Some(rule.variant), &rule.tip)
    )
}

fn series_text(series: &Line, across: &Ruler, up: &Ruler) -> String {
    let placed = |dot: &Dot| Some((across.place(dot.x)?, up.place(dot.y)?));
    let mut out = format!(
        "<g class=\"{}\"{}>",
        look_class(series.look),
        data_attributes(series.variant, "")
    );
    if series.stroke != Stroke::Marks {
        let mut path = String::new();
        for (x, y) in series.dots.iter().filter_map(placed) {
            path.push_str(if path.is_empty() { "M" } else { "L" });
            path.push_str(&format!("{x:.1} {y:.1}"));
        }
        if !path.is_empty() {
            out.push_str(&format!("<path class=\"line\" d=\"{path}\"/>"));
        }
    }
    for dot in &series.dots {
        let Some((x, y)) = placed(dot) else { continue };
        let tip = data_attributes(None, &format!("{}: {}", series.label, dot.tip));
        match series.stroke {
            // An invisible hover target.
            Stroke::Line => {
                out.push_str(&format!(
                    "<circle class=\"hit\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"{tip}/>"
                ));
            }
            Stroke::Marked | Stroke::Marks => {
                let faint = if dot.faint { " faint" } else { "" };
                let shape = mark(series.look, x, y);
                out.push_str(&format!("<path class=\"mark{faint}\" d=\"{shape}\"{tip}/>"));
            }
        }
    }
    out.push_str("</g>\n");
    out
}

/// Circle, square, triangle, diamond: distinguishable without colors too.
fn mark(look: usize, x: f64, y: f64) -> String {
    match look % 4 {
        0 => format!("M{:.1} {y:.1}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z", x - 3.0),
        1 => format!("M{:.1} {:.1}h5.6v5.6h-5.6z", x - 2.8, y - 2.8),
        2 => format!("M{x:.1} {:.1}l3.5 6h-7z", y - 3.6),
        _ => format!("M{x:.1} {:.1}l3.7 3.7l-3.7 3.7l-3.7 -3.7z", y - 3.7),
    }
}
