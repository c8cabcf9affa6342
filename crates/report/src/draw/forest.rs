//! Effects with their intervals, and the noise floor as a band.

use super::axis::{Ruler, below};
use super::canvas::{AXIS_HEIGHT, Drawing, LEFT, RIGHT, ROW_HEIGHT, data_attributes, row_head};
use crate::view::chart::{Mark, Panel, Scale};
use crate::view::table::Tone;

pub(super) fn draw(panel: &Panel) -> Drawing {
    let ends = panel.marks.iter().flat_map(|mark| {
        let (low, high) = mark.interval.unwrap_or((mark.value, mark.value));
        [mark.value, low, high]
    });
    let floor = panel
        .noise_floor
        .into_iter()
        .flat_map(|floor| [-floor, floor]);
    let ruler = Ruler::over(Scale::Linear, ends.chain(floor), (LEFT, RIGHT));
    let bottom = ROW_HEIGHT * panel.marks.len() as f64 + 4.0;
    let mut body = String::new();
    if let Some((from, to)) = panel
        .noise_floor
        .and_then(|floor| Some((ruler.place(-floor)?, ruler.place(floor)?)))
    {
        body.push_str(&format!(
            "<rect class=\"band\" x=\"{from:.1}\" y=\"0\" width=\"{:.1}\" height=\"{bottom:.1}\" \
             data-tip=\"noise floor\"/>\n",
            // A narrower noise floor would be invisible.
            (to - from).max(1.5)
        ));
    }
    body.push_str(&below(&ruler, &panel.axis, bottom));
    for (i, mark) in panel.marks.iter().enumerate() {
        body.push_str(&row(mark, &ruler, ROW_HEIGHT * i as f64));
    }
    Drawing {
        body,
        height: bottom + AXIS_HEIGHT,
    }
}

fn row(mark: &Mark, ruler: &Ruler, top: f64) -> String {
    let class = if mark.tone == Tone::Strong {
        "effect"
    } else {
        "effect quiet"
    };
    let y = top + 27.0;
    let tip = format!("{}: {}", mark.label, mark.figure);
    let mut out = format!(
        "<g class=\"{class}\"{}>{}",
        data_attributes(Some(mark.variant), &tip),
        row_head(&mark.label, &mark.figure, top)
    );
    let ends = mark
        .interval
        .and_then(|(low, high)| Some((ruler.place(low)?, ruler.place(high)?)));
    if let Some((from, to)) = ends {
        out.push_str(&format!(
            "<path d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {:.1}v8M{to:.1} {:.1}v8\"/>",
            y - 4.0,
            y - 4.0
        ));
    }
    if let Some(x) = ruler.place(mark.value) {
        out.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"));
    }
    out.push_str("</g>\n");
    out
}
