//! From values to places, and the marks along an axis.

use super::canvas::{LEFT, RIGHT, shortened};
use crate::format::{grouped, trimmed};
use crate::markup::escaped;
use crate::view::chart::Scale;

const TICKS: f64 = 6.0;
/// Beyond this many powers of ten, a chart is not informative.
const DECADES_MAX: f64 = 60.0;

/// An axis over values, from one place to another.
pub(super) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

/// A mark on an axis.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

impl Ruler {
    /// Over all values, those that the scale has no place for left out.
    pub(super) fn over(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
    ) -> Self {
        let places: Vec<f64> = values.filter_map(|value| along(scale, value)).collect();
        let mut low = places.iter().copied().fold(f64::INFINITY, f64::min);
        let mut high = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if scale != Scale::Log {
            // A length that does not begin at zero misleads.
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        let span = high - low;
        if !span.is_finite() || span <= 0.0 {
            let middle = if low.is_finite() { low } else { 0.0 };
            (low, high) = (middle, middle + 1.0);
        } else if scale == Scale::Linear {
            let margin = span * 0.03;
            if low < 0.0 {
                low -= margin;
            }
            high += margin;
        } else if scale == Scale::Log {
            (low, high) = (
                low - span * 0.03,
                (high + span * 0.03).min(low + DECADES_MAX),
            );
        }
        Self {
            scale,
            low,
            high,
            from,
            to,
        }
    }

    /// `None`: the scale has no place for it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let share = (along(self.scale, value)? - self.low) / (self.high - self.low);
        let place = self.from + share.clamp(0.0, 1.0) * (self.to - self.from);
        place.is_finite().then_some(place)
    }

    pub(super) fn ticks(&self) -> Vec<Tick> {
        let marks = match self.scale {
            Scale::Linear => self.even(),
            Scale::Log => self.powers(),
            Scale::Nines => self.nines(),
        };
        let place = |(value, label)| {
            Some(Tick {
                at: self.place(value)?,
                label,
            })
        };
        marks.into_iter().filter_map(place).collect()
    }

    fn even(&self) -> Vec<(f64, String)> {
        let step = nice_step((self.high - self.low) / TICKS);
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        if !(last - first).is_finite() || last < first || last - first > 100.0 {
            return vec![(0.0, "0".to_owned())];
        }
        let decimals = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
        // At most a hundred, checked above.
        let count = (last - first) as u32;
        (0..=count)
            .map(|i| (first + f64::from(i)) * step)
            .map(|value| (value, grouped(value, decimals)))
            .collect()
    }

    fn powers(&self) -> Vec<(f64, String)> {
        // Few decades have room for 2 and 5 as well.
        let leads: &[f64] = match self.high - self.low {
            span if span <= 1.2 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            span if span <= 3.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = ((self.high - self.low) / 8.0).ceil().max(1.0) as usize;
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        (first..=last)
            .step_by(every)
            .flat_map(|power| leads.iter().map(move |lead| lead * 10_f64.powi(power)))
            .filter(|value| (self.low..=self.high).contains(&value.log10()))
            .map(|value| (value, trimmed_small(value)))
            .collect()
    }

    fn nines(&self) -> Vec<(f64, String)> {
        let all = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
        let names = [
            "0", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "p99.9999",
        ];
        all.into_iter()
            .zip(names)
            .filter(|(quantile, _)| along(self.scale, *quantile).is_some_and(|t| t <= self.high))
            .map(|(quantile, name)| (quantile, name.to_owned()))
            .collect()
    }
}

fn trimmed_small(value: f64) -> String {
    if value >= 0.01 {
        trimmed(value)
    } else {
        format!("{value:.0e}")
    }
}

/// Where on the scale a value is; `None`: nowhere.
fn along(scale: Scale, value: f64) -> Option<f64> {
    let place = match scale {
        Scale::Linear => value,
        Scale::Log if value > 0.0 => value.log10(),
        Scale::Nines if (0.0..1.0).contains(&value) => -(1.0 - value).log10(),
        Scale::Log | Scale::Nines => return None,
    };
    place.is_finite().then_some(place)
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let lead = least / power;
    let nice = [1.0, 2.0, 5.0];
    let nice = nice.into_iter().find(|n| lead <= *n).unwrap_or(10.0);
    nice * power
}

/// The axis below the rows: a line at zero, its ticks, and its title.
pub(super) fn below(ruler: &Ruler, name: &str, y: f64) -> String {
    let mut out = String::new();
    if let Some(zero) = ruler.place(0.0) {
        out.push_str(&format!(
            "<line class=\"zero\" x1=\"{zero:.1}\" y1=\"0\" x2=\"{zero:.1}\" y2=\"{y:.1}\"/>\n"
        ));
    }
    out.push_str(&format!(
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\n"
    ));
    for tick in ruler.ticks() {
        let x = tick.at;
        let anchor = match x {
            x if x < LEFT + 20.0 => "start",
            x if x > RIGHT - 20.0 => "end",
            _ => "middle",
        };
        out.push_str(&format!(
            "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            y + 4.0,
            y + 16.0,
            escaped(&tick.label)
        ));
    }
    out.push_str(&format!(
        "<text class=\"axis-name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
        f64::midpoint(LEFT, RIGHT),
        y + 32.0,
        escaped(&shortened(name, 70))
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        let ruler = Ruler::over(scale, values.iter().copied(), (0.0, 100.0));
        ruler.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            labels(Scale::Linear, &[3.0, 98.0]),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(Scale::Log, &[0.5, 200.0]),
            ["0.5", "1", "2", "5", "10", "20", "50", "100", "200"]
        );
        assert_eq!(
            labels(Scale::Nines, &[0.5, 0.999]),
            ["0", "p50", "p90", "p99", "p99.9"]
        );
    }

    #[test]
    fn values_outside_the_axis_are_not_drawn() {
        let ruler = Ruler::over(Scale::Log, [1.0, 10.0].into_iter(), (0.0, 100.0));
        assert_eq!(ruler.place(0.0), None);
        assert_eq!(ruler.place(f64::NAN), None);
        let empty = Ruler::over(Scale::Linear, std::iter::empty(), (0.0, 100.0));
        assert!(empty.place(0.5).is_some());
        for extreme in [1e300, -1e300, f64::MIN_POSITIVE] {
            for scale in [Scale::Linear, Scale::Log, Scale::Nines] {
                assert!(labels(scale, &[extreme, 1.0]).len() <= 100);
            }
        }
    }
}
