//! Measured and published figures: separate lanes and marks, without a line between them.

use super::axis::{Ruler, below};
use super::canvas::{AXIS_HEIGHT, Drawing, LEFT, RIGHT, data_attributes, look_class, shortened};
use crate::markup::escaped;
use crate::view::chart::{Lane, Lanes, LoadGroup, Origin, Pair, Scale};

/// Where labels end and lanes begin.
const LANE_LEFT: f64 = 172.0;
const LANE_HEIGHT: f64 = 17.0;
/// The line that names a load.
const HEAD_HEIGHT: f64 = 22.0;
/// Between one variant and the next.
const GAP: f64 = 5.0;
const LEGEND_LINE: f64 = 16.0;
/// As many of a small text as fit the width, on a phone too.
const LEGEND_CHARS: usize = 62;
const LABEL_CHARS: usize = 22;
/// How wide a character of a small text is, on a phone too.
const CHAR_WIDTH: f64 = 7.4;

pub(super) fn draw(lanes: &Lanes) -> Drawing {
    let ruler = Ruler::over(Scale::Log, reach(lanes).into_iter(), (LANE_LEFT, RIGHT));
    let key = key(lanes);
    let bottom: f64 = lanes.loads.iter().map(load_height).sum::<f64>() + GAP;
    let mut body = key.body;
    body.push_str(&format!(
        "<g transform=\"translate(0 {:.1})\">\n",
        key.height
    ));
    for tick in ruler.ticks() {
        body.push_str(&format!(
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"0\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\n",
            x = tick.at
        ));
    }
    let mut top = 0.0;
    for load in &lanes.loads {
        body.push_str(&load_text(load, &ruler, top));
        top += load_height(load);
    }
    body.push_str(&below(&ruler, &lanes.axis, bottom));
    body.push_str("</g>\n");
    Drawing {
        body,
        height: key.height + bottom + AXIS_HEIGHT,
    }
}

/// The range of all positions with a margin: for figures that are nearly equal, and for labels next to them.
fn reach(lanes: &Lanes) -> Vec<f64> {
    const ROOM: f64 = 1.6;
    let all = lanes.loads.iter().flat_map(|load| &load.pairs);
    let all = all.flat_map(|pair| &pair.lanes).flat_map(|lane| {
        let (low, high) = lane.interval.unzip();
        [lane.value, low, high]
    });
    let all: Vec<f64> = all.flatten().filter(|value| *value > 0.0).collect();
    let around = |value: &f64| [*value / ROOM, *value * ROOM];
    all.iter().flat_map(around).collect()
}

fn pair_height(pair: &Pair) -> f64 {
    LANE_HEIGHT * pair.lanes.len() as f64 + GAP
}

fn load_height(load: &LoadGroup) -> f64 {
    HEAD_HEIGHT + load.pairs.iter().map(pair_height).sum::<f64>()
}

fn load_text(load: &LoadGroup, ruler: &Ruler, top: f64) -> String {
    let mut out = format!(
        "<text class=\"load\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\n",
        top + 16.0,
        escaped(&shortened(&load.name, 60))
    );
    let mut top = top + HEAD_HEIGHT;
    for pair in &load.pairs {
        let look = pair.variant.map(look_class);
        let look = look.map_or(String::new(), |look| format!(" class=\"{look}\""));
        out.push_str(&format!("<g{look}{}>", data_attributes(pair.variant, "")));
        for (lane, at) in pair.lanes.iter().zip(0_u32..) {
            let y = top + LANE_HEIGHT * f64::from(at) + LANE_HEIGHT / 2.0;
            out.push_str(&lane_text(lane, ruler, y));
        }
        out.push_str("</g>\n");
        top += pair_height(pair);
    }
    out
}

fn lane_text(lane: &Lane, ruler: &Ruler, y: f64) -> String {
    let class = match lane.origin {
        Origin::Measured => "lane",
        Origin::Published => "lane published",
    };
    let base = y + 4.0;
    let name = lane.name();
    let tip = format!("{name}: {}", lane.text());
    let mut out = format!(
        "<g class=\"{class}\"{}><text class=\"small\" x=\"{LEFT}\" y=\"{base:.1}\">{}</text>",
        data_attributes(None, &tip),
        escaped(&shortened(&name, LABEL_CHARS))
    );
    let place = lane.value.and_then(|value| ruler.place(value));
    // What begins at nothing begins where the lane does.
    let ends = lane.interval.and_then(|(low, high)| {
        let from = ruler.place(low).unwrap_or(LANE_LEFT);
        Some((from, ruler.place(high)?))
    });
    if let (Some((from, to)), Some(_)) = (ends, place) {
        out.push_str(&format!(
            "<path class=\"spread\" d=\"M{from:.1} {y:.1}H{to:.1}M{from:.1} {up:.1}v6M{to:.1} {up:.1}v6\"/>",
            up = y - 3.0
        ));
    }
    if let Some(x) = place {
        out.push_str(&mark(lane.origin, x, y));
    }
    out.push_str(&beside(lane, place, ends, base));
    out.push_str("</g>\n");
    out
}

/// A filled circle, or a hollow diamond: the shapes differ, not only the colors.
fn mark(origin: Origin, x: f64, y: f64) -> String {
    match origin {
        Origin::Measured => {
            format!("<circle class=\"measured\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>")
        }
        Origin::Published => format!(
            "<path class=\"hollow\" d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\"/>",
            y - 5.0
        ),
    }
}

/// The figure behind its mark, or before it where no room is behind; the whole of it, if that finds room.
fn beside(lane: &Lane, place: Option<f64>, ends: Option<(f64, f64)>, base: f64) -> String {
    let (from, to) = match (place, ends) {
        (Some(x), Some((from, to))) => (from.min(x), to.max(x)),
        (Some(x), None) => (x, x),
        (None, _) => (LANE_LEFT, LANE_LEFT),
    };
    let whole = lane.text();
    let (text, (x, anchor)) = match room(&whole, from, to) {
        Some(room) => (whole, room),
        None => {
            let text = shortened(&lane.figure, 30);
            let room = room(&text, from, to).unwrap_or((RIGHT, "end"));
            (text, room)
        }
    };
    format!(
        "<text class=\"small figure\" x=\"{x:.1}\" y=\"{base:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(&text)
    )
}

/// The position of a text next to a range, and its text anchor.
fn room(text: &str, from: f64, to: f64) -> Option<(f64, &'static str)> {
    /// Between a mark's middle and the text.
    const AWAY: f64 = 9.0;
    let width = text.chars().count() as f64 * CHAR_WIDTH;
    let behind = to + AWAY + width <= RIGHT;
    let before = from - AWAY - width >= LANE_LEFT;
    match (behind, before) {
        (true, _) => Some((to + AWAY, "start")),
        (false, true) => Some((from - AWAY, "end")),
        (false, false) => None,
    }
}

/// What the two kinds of marks are; the words of each wrapped.
fn key(lanes: &Lanes) -> Drawing {
    let mut body = String::new();
    let mut line = 0_u32;
    for (origin, words) in [
        (Origin::Measured, &lanes.measured),
        (Origin::Published, &lanes.published),
    ] {
        let class = match origin {
            Origin::Measured => "key",
            Origin::Published => "key published",
        };
        let y = |line: u32| LEGEND_LINE * f64::from(line) + 12.0;
        body.push_str(&format!(
            "<g class=\"{class}\">{}",
            mark(origin, LEFT + 6.0, y(line) - 4.0)
        ));
        for text in wrapped(words, LEGEND_CHARS) {
            body.push_str(&format!(
                "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT + 20.0,
                y(line),
                escaped(&text)
            ));
            line += 1;
        }
        body.push_str("</g>\n");
    }
    Drawing {
        body,
        height: LEGEND_LINE * f64::from(line) + 6.0,
    }
}

/// Lines of whole words.
fn wrapped(words: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shortened(word, most)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("  ", 7), Vec::<String>::new());
        assert_eq!(wrapped("aaaaaaaaa b", 4), ["aaa…", "b"]);
    }

    #[test]
    fn figures_are_shortened_to_the_available_width() {
        let lane = Lane {
            origin: Origin::Measured,
            label: String::new(),
            figure: "0.423 ms".to_owned(),
            more: "[0.300, 0.546]".to_owned(),
            value: None,
            interval: None,
        };
        let at = |from, to| beside(&lane, Some(from), Some((from, to)), 0.0);
        for (from, to, expected) in [
            (LANE_LEFT, LANE_LEFT, ("start", true)),
            (RIGHT, RIGHT, ("end", true)),
            (300.0, 340.0, ("start", false)),
            (300.0, RIGHT, ("end", false)),
        ] {
            let text = at(from, to);
            let (anchor, whole) = expected;
            assert!(text.contains(anchor), "{text}");
            assert_eq!(text.contains("0.546"), whole, "{text}");
        }
    }
}
