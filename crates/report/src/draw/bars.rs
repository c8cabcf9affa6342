//! Sums by their parts, and steps that add up.

use super::axis::{Ruler, below};
use super::canvas::{
    AXIS_HEIGHT, Drawing, LEFT, RIGHT, ROW_HEIGHT, data_attributes, legend, row_head,
};
use crate::view::chart::{Rise, Scale, Stack, Stacks, Waterfall};

const BAR_HEIGHT: f64 = 13.0;

pub(super) fn stacks(stacks: &Stacks) -> Drawing {
    let sums = stacks
        .stacks
        .iter()
        .map(|stack| stack.segments.iter().map(|p| p.value.max(0.0)).sum());
    let ruler = Ruler::over(Scale::Linear, sums, (LEFT, RIGHT));
    let used = |kind: usize| {
        stacks
            .stacks
            .iter()
            .any(|s| s.segments.iter().any(|p| p.kind == kind))
    };
    let entries: Vec<_> = (0..)
        .zip(&stacks.kinds)
        .filter(|(kind, _)| used(*kind))
        .map(|(kind, name)| (format!("k{kind}"), (*name).to_owned(), None))
        .collect();
    let key = legend(&entries, 0.0);
    let mut body = key.body;
    body.push_str(&format!(
        "<g transform=\"translate(0 {:.1})\">\n",
        key.height
    ));
    let bottom = ROW_HEIGHT * stacks.stacks.len() as f64 + 4.0;
    body.push_str(&below(&ruler, &stacks.axis, bottom));
    for (i, stack) in stacks.stacks.iter().enumerate() {
        body.push_str(&stack_row(stack, &ruler, ROW_HEIGHT * i as f64));
    }
    body.push_str("</g>\n");
    Drawing {
        body,
        height: key.height + bottom + AXIS_HEIGHT,
    }
}

fn stack_row(stack: &Stack, ruler: &Ruler, top: f64) -> String {
    let mut out = format!(
        "<g{}>{}",
        data_attributes(Some(stack.variant), ""),
        row_head(&stack.label, &stack.figure, top)
    );
    let mut sum = 0.0;
    for segment in &stack.segments {
        let next = sum + segment.value.max(0.0);
        if let (Some(from), Some(to)) = (ruler.place(sum), ruler.place(next)) {
            out.push_str(&format!(
                "<rect class=\"bar k{}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\"{}/>",
                segment.kind,
                top + 20.0,
                (to - from).max(0.0),
                data_attributes(None, &format!("{}: {}", stack.label, segment.tip))
            ));
        }
        sum = next;
    }
    out.push_str("</g>\n");
    out
}

pub(super) fn waterfall(waterfall: &Waterfall) -> Drawing {
    let mut sum = 0.0;
    let mut spans = Vec::new();
    for rise in &waterfall.rises {
        let from = sum;
        sum += rise.value.unwrap_or(0.0);
        spans.push((from, sum, rise));
    }
    let ends = spans.iter().flat_map(|(from, to, rise)| {
        let (low, high) = rise.interval.unwrap_or((to - from, to - from));
        [*from, *to, from + low, from + high]
    });
    let ruler = Ruler::over(Scale::Linear, ends, (LEFT, RIGHT));
    let rows = spans.len() + usize::from(waterfall.total.is_some());
    let bottom = ROW_HEIGHT * rows as f64 + 4.0;
    let mut body = below(&ruler, &waterfall.axis, bottom);
    for (i, (from, to, rise)) in spans.iter().enumerate() {
        body.push_str(&rise_row(rise, (*from, *to), &ruler, ROW_HEIGHT * i as f64));
    }
    if let Some(total) = &waterfall.total {
        let whole = Rise {
            label: "total".to_owned(),
            figure: total.clone(),
            value: Some(sum),
            interval: None,
        };
        let top = ROW_HEIGHT * spans.len() as f64;
        body.push_str(&rise_row(&whole, (0.0, sum), &ruler, top));
    }
    Drawing {
        body,
        height: bottom + AXIS_HEIGHT,
    }
}

fn rise_row(rise: &Rise, (from, to): (f64, f64), ruler: &Ruler, top: f64) -> String {
    let y = top + 20.0;
    let tip = format!("{}: {}", rise.label, rise.figure);
    let mut out = format!(
        "<g class=\"rise\"{}>{}",
        data_attributes(None, &tip),
        row_head(&rise.label, &rise.figure, top)
    );
    if let (Some(left), Some(right), Some(_)) = (ruler.place(from), ruler.place(to), rise.value) {
        let class = if to < from { "bar falls" } else { "bar" };
        out.push_str(&format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\"/>",
            left.min(right),
            (right - left).abs().max(1.0)
        ));
    }
    let ends = rise
        .interval
        .and_then(|(low, high)| Some((ruler.place(from + low)?, ruler.place(from + high)?)));
    if let Some((low, high)) = ends {
        let middle = y + BAR_HEIGHT / 2.0;
        out.push_str(&format!(
            "<path d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}v6M{high:.1} {:.1}v6\"/>",
            middle - 3.0,
            middle - 3.0
        ));
    }
    out.push_str("</g>\n");
    out
}
