//! A forest plot as inline SVG: effects with their intervals, and the noise floor as a band.

use crate::format::grouped;
use crate::html::escaped;
use crate::view::{Mark, Panel, Tone};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 12.0;
const TITLE_HEIGHT: f64 = 26.0;
const ROW_HEIGHT: f64 = 40.0;
const AXIS_HEIGHT: f64 = 34.0;
const PANEL_GAP: f64 = 14.0;
const TICKS: f64 = 5.0;

/// One drawing with a panel per metric; empty without panels.
pub(crate) fn forest(panels: &[Panel]) -> String {
    if panels.is_empty() {
        return String::new();
    }
    let height: f64 = panels.iter().map(panel_height).sum();
    let mut out = format!(
        "<svg class=\"forest\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"forest-title\">\n<title id=\"forest-title\">Overheads with their \
         intervals; the figures are in the tables below</title>\n"
    );
    let mut top = 0.0;
    for panel in panels {
        out.push_str(&draw(panel, top));
        top += panel_height(panel);
    }
    out.push_str("</svg>\n");
    out
}

fn panel_height(panel: &Panel) -> f64 {
    TITLE_HEIGHT + ROW_HEIGHT * panel.marks.len() as f64 + AXIS_HEIGHT + PANEL_GAP
}

/// From values to places.
struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

impl Axis {
    fn of(panel: &Panel) -> Self {
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        let mut take = |value: f64| {
            low = low.min(value);
            high = high.max(value);
        };
        for mark in &panel.marks {
            take(mark.value);
            if let Some((from, to)) = mark.interval {
                take(from);
                take(to);
            }
        }
        if let Some(floor) = panel.noise_floor {
            take(-floor);
            take(floor);
        }
        let span = high - low;
        if !span.is_finite() || span <= 0.0 {
            return Self {
                low: -1.0,
                high: 1.0,
                step: 0.5,
            };
        }
        let margin = span * 0.03;
        Self {
            low: low - margin,
            high: high + margin,
            step: nice_step(span / TICKS),
        }
    }

    fn x(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        LEFT + share * (RIGHT - LEFT)
    }

    fn ticks(&self) -> Vec<f64> {
        let first = (self.low / self.step).ceil();
        let last = (self.high / self.step).floor();
        if !(last - first).is_finite() || last < first || last - first > 100.0 {
            return vec![0.0];
        }
        // At most a hundred, checked above.
        let count = (last - first) as u32;
        (0..=count)
            .map(|i| (first + f64::from(i)) * self.step)
            .collect()
    }
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let lead = least / power;
    let nice = [1.0, 2.0, 5.0];
    let nice = nice.into_iter().find(|n| lead <= *n).unwrap_or(10.0);
    nice * power
}

fn draw(panel: &Panel, top: f64) -> String {
    let axis = Axis::of(panel);
    let rows_top = top + TITLE_HEIGHT;
    let rows_bottom = rows_top + ROW_HEIGHT * panel.marks.len() as f64;
    let mut out = format!(
        "<g>\n<text class=\"panel\" x=\"{LEFT}\" y=\"{:.1}\">{}, {}</text>\n",
        top + 15.0,
        escaped(&panel.title),
        panel.unit
    );
    if let Some(floor) = panel.noise_floor {
        let (from, to) = (axis.x(-floor), axis.x(floor));
        out.push_str(&format!(
            "<rect class=\"band\" x=\"{from:.1}\" y=\"{rows_top:.1}\" width=\"{:.1}\" \
             height=\"{:.1}\"><title>noise floor</title></rect>\n",
            // A floor thinner than a hair would not be seen at all.
            (to - from).max(1.5),
            rows_bottom - rows_top
        ));
    }
    let zero = axis.x(0.0);
    out.push_str(&format!(
        "<line class=\"zero\" x1=\"{zero:.1}\" y1=\"{rows_top:.1}\" x2=\"{zero:.1}\" \
         y2=\"{rows_bottom:.1}\"/>\n"
    ));
    for (i, mark) in panel.marks.iter().enumerate() {
        out.push_str(&row(mark, &axis, rows_top + ROW_HEIGHT * i as f64));
    }
    out.push_str(&scale(&axis, rows_bottom));
    out.push_str("</g>\n");
    out
}

fn row(mark: &Mark, axis: &Axis, top: f64) -> String {
    let class = if mark.tone == Tone::Strong {
        "effect"
    } else {
        "effect quiet"
    };
    let text_y = top + 16.0;
    let y = top + 28.0;
    let mut out = format!(
        "<g class=\"{class}\"><text x=\"{LEFT}\" y=\"{text_y:.1}\">{}</text>\
         <text class=\"value\" x=\"{RIGHT}\" y=\"{text_y:.1}\">{}</text>",
        escaped(&mark.label),
        escaped(&mark.figure)
    );
    if let Some((low, high)) = mark.interval {
        let (from, to) = (axis.x(low), axis.x(high));
        out.push_str(&format!(
            "<path d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {:.1}v8M{to:.1} {:.1}v8\"/>",
            y - 4.0,
            y - 4.0
        ));
    }
    out.push_str(&format!(
        "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.5\"/></g>\n",
        axis.x(mark.value)
    ));
    out
}

fn scale(axis: &Axis, y: f64) -> String {
    let mut out = format!(
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\n"
    );
    let decimals = (-axis.step.log10()).ceil().clamp(0.0, 3.0) as usize;
    for tick in axis.ticks() {
        let x = axis.x(tick);
        let anchor = match x {
            x if x < LEFT + 20.0 => "start",
            x if x > RIGHT - 20.0 => "end",
            _ => "middle",
        };
        out.push_str(&format!(
            "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            y + 4.0,
            y + 18.0,
            grouped(tick, decimals)
        ));
    }
    out
}
