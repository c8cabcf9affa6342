//! What a study published, apart from what was measured here in its place.
//!
//! Both are of the same load by name only: other machines, other applications, other years. So they have lanes and marks
//! of their own, and nothing joins them.

use meshtax_model::analysis::{Interval, Point};
use meshtax_model::experiment::Variant as Ours;
use meshtax_published::{Column, Metric, ResultSet, Row, Unit, Variant};

use crate::format::{decimals_of_three, grouped, interval_text, plural, three_digits};
use crate::view::chart::{
    Chapter, Chart, Choice, Figure, Lane, Lanes, LoadGroup, Origin, Pair, Sheet,
};
use crate::view::charts::words::{in_words as chart_in_words, name, raw};
use crate::view::published::head;
use crate::view::source::Source;
use crate::view::study::loads::{
    self, Found, StudyLoad, ends, extent, found, further, ours, value,
};

/// `None`: the runs follow no study, or nothing of it was measured here. The runs are those of one spec.
pub(crate) fn figure(sources: &[Source<'_>]) -> Option<Figure> {
    let study = loads::of(sources)?;
    let places = loads::study_loads(sources, study);
    let mut data = Sheet::new(&[
        "load", "metric", "unit", "variant", "origin", "value", "low", "high", "said",
    ]);
    let mut columns: Vec<(usize, &Column)> = study.columns.iter().enumerate().collect();
    columns.retain(|(_, column)| is_drawn(column));
    columns.sort_by_key(|(_, column)| looked_for(column.metric));
    let choices: Vec<Choice> = columns
        .into_iter()
        .filter_map(|(at, column)| {
            let picture = Picture { study, at, column };
            let lanes = picture.lanes(&places)?;
            picture.write(&lanes, &mut data);
            let chart = Chart::Lanes(lanes);
            Some(Choice {
                label: what(column),
                alt: format!("{}. {}", what(column), chart_in_words(&chart)),
                chart,
            })
        })
        .collect();
    (!choices.is_empty()).then(|| Figure {
        id: "published",
        chapter: Chapter::Published,
        title: format!("Measured and published: {}", study.title),
        caption: caption(sources, study, &places),
        choices,
        data,
    })
}

/// Levels of what was published that can be measured here as well.
fn is_drawn(column: &Column) -> bool {
    let has_like = column.of.is_none() || column.group.is_some();
    has_like && column.over.is_none() && column.metric != Metric::Duration
}

/// Percentiles of latency first, then the rest of it.
fn looked_for(metric: Metric) -> u8 {
    match metric {
        metric if loads::quantile(metric).is_some() => 0,
        Metric::LatencyMean | Metric::LatencyMax => 1,
        _ => 2,
    }
}

/// `p99`, `nginx CPU`.
fn what(column: &Column) -> String {
    if column.metric == Metric::Throughput {
        return "requests per second".to_owned();
    }
    let (name, unit) = (head(column), column.unit.symbol());
    name.strip_suffix(unit).unwrap_or(&name).trim().to_owned()
}

/// `0.0132 s`, `120.0/s`.
fn with_unit(figure: &str, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{figure}/s"),
        unit => format!("{figure} {}", unit.symbol()),
    }
}

/// One column of the study, as a picture.
struct Picture<'a> {
    study: &'a ResultSet,
    /// The column's place among the study's.
    at: usize,
    column: &'a Column,
}

impl Picture<'_> {
    /// `None` unless there is something of both kinds.
    fn lanes(&self, places: &[StudyLoad<'_>]) -> Option<Lanes> {
        let loads: Vec<LoadGroup> = places.iter().filter_map(|place| self.load(place)).collect();
        let lanes = || loads.iter().flat_map(|l| &l.pairs).flat_map(|p| &p.lanes);
        let has = |origin| lanes().any(|lane| lane.origin == origin && lane.value.is_some());
        if !has(Origin::Measured) || !has(Origin::Published) {
            return None;
        }
        let spread = match self.column.group {
            Some(_) => "minimum to maximum over its trials",
            None => "confidence interval over rounds",
        };
        Some(Lanes {
            axis: match self.column.unit {
                Unit::PerSecond => format!("{}, logarithmic", what(self.column)),
                unit => format!("{}, {}, logarithmic", what(self.column), unit.symbol()),
            },
            loads,
            measured: format!("measured here, {spread}"),
            published: format!(
                "published: {}; another machine and application version: absolute values are not comparable",
                cited(self.study)
            ),
        })
    }

    /// `None`: nothing was published there.
    fn load(&self, place: &StudyLoad<'_>) -> Option<LoadGroup> {
        let published: Vec<&Row> = place.rows.iter().copied().filter(|r| self.has(r)).collect();
        if published.is_empty() {
            return None;
        }
        let of_study = self.study.variants.iter().filter_map(|variant| {
            let rows = published.iter().filter(|row| row.variant == variant.id);
            let rows: Vec<&Row> = rows.copied().collect();
            let ours = ours(place.source, variant);
            (ours.is_some() || !rows.is_empty()).then(|| self.pair(place, ours, variant, &rows))
        });
        let further = further(place.source, self.study).map(|ours| Pair {
            variant: Some(place.source.place(&ours.id)),
            lanes: vec![self.measured(place, Some(ours), None)],
        });
        Some(LoadGroup {
            name: place.name(self.study),
            pairs: of_study.chain(further).collect(),
        })
    }

    fn has(&self, row: &Row) -> bool {
        matches!(row.figures.get(self.at), Some(Some(_)))
    }

    fn pair(
        &self,
        place: &StudyLoad<'_>,
        ours: Option<&Ours>,
        variant: &Variant,
        rows: &[&Row],
    ) -> Pair {
        let mut lanes = vec![self.measured(place, ours, Some(variant))];
        lanes.extend(rows.iter().filter_map(|row| self.published(row, variant)));
        Pair {
            variant: ours.map(|ours| place.source.place(&ours.id)),
            lanes,
        }
    }

    fn measured(
        &self,
        place: &StudyLoad<'_>,
        ours: Option<&Ours>,
        of_study: Option<&Variant>,
    ) -> Lane {
        let label = ours.map(name);
        let label = label.or(of_study.map(|variant| variant.name.clone()));
        let lane = Lane {
            origin: Origin::Measured,
            label: label.unwrap_or_default(),
            figure: String::new(),
            more: String::new(),
            value: None,
            interval: None,
        };
        match found(place, ours, of_study) {
            Found::At(at) => self.at_point(at, lane),
            Found::Not(reason) => Lane {
                figure: reason.to_owned(),
                ..lane
            },
        }
    }

    fn at_point(&self, at: &Point, lane: Lane) -> Lane {
        let unit = self.column.unit;
        let estimate = value(at, self.column).filter(|e| e.value.is_finite() && e.value >= 0.0);
        let Some(estimate) = estimate else {
            return Lane {
                figure: "not resolved".to_owned(),
                ..lane
            };
        };
        let value = unit.of_base(estimate.value);
        let spread = match extent(at, self.column) {
            Some(extent) => Some((extent.min, extent.max)),
            None => ends(estimate.interval),
        };
        let spread = spread.map(|(low, high)| (unit.of_base(low), unit.of_base(high)));
        let spread = spread.filter(|(low, high)| low.is_finite() && high.is_finite());
        let (figure, more) = self.in_words(value, spread);
        Lane {
            figure,
            more,
            value: Some(value),
            interval: spread,
            ..lane
        }
    }

    /// `13.2 ms` and `[12.9, 13.5]`.
    fn in_words(&self, value: f64, spread: Option<(f64, f64)>) -> (String, String) {
        let unit = self.column.unit;
        let Some((low, high)) = spread.filter(|(low, high)| low < high) else {
            return (with_unit(&three_digits(value), unit), String::new());
        };
        // As many decimals as needed to distinguish the ends, up to six.
        let by_width = (-((high - low) / 2.0).log10()).ceil().clamp(0.0, 6.0) as usize;
        let decimals = decimals_of_three(value).max(by_width);
        let value = with_unit(&grouped(value, decimals), unit);
        (value, interval_text(Interval { low, high }, decimals))
    }

    /// As it was published, to the digit.
    fn published(&self, row: &Row, variant: &Variant) -> Option<Lane> {
        let figure = row.figures.get(self.at)?.as_ref()?;
        let unit = self.column.unit;
        let remark = row.remark.as_ref();
        Some(Lane {
            origin: Origin::Published,
            label: variant.name.clone(),
            figure: with_unit(&figure.published, unit),
            more: remark.map_or(String::new(), |remark| format!("({remark})")),
            value: Some(unit.of_base(figure.value)),
            interval: None,
        })
    }

    fn write(&self, lanes: &Lanes, data: &mut Sheet) {
        for load in &lanes.loads {
            for lane in load.pairs.iter().flat_map(|pair| &pair.lanes) {
                let origin = match lane.origin {
                    Origin::Measured => "measured",
                    Origin::Published => "published",
                };
                data.row([
                    load.name.clone(),
                    what(self.column),
                    self.column.unit.symbol().to_owned(),
                    lane.label.clone(),
                    origin.to_owned(),
                    raw(lane.value),
                    raw(lane.interval.map(|(low, _)| low)),
                    raw(lane.interval.map(|(_, high)| high)),
                    lane.text(),
                ]);
            }
        }
    }
}

/// `LiveWyer, service mesh comparison, 2024`.
fn cited(study: &ResultSet) -> String {
    let date = study.date.as_deref().unwrap_or("no date");
    format!("{}, {date}", study.source)
}

/// How to read it, and what has no mark of one kind.
fn caption(sources: &[Source<'_>], study: &ResultSet, places: &[StudyLoad<'_>]) -> String {
    let mut texts = vec![
        "Filled marks were measured in this run, hollow ones published by others; caveats of the published \
         figures are below the study's table. A filled mark without whiskers has no interval: fewer than six \
         blocks, a mean, or a single request. The scale is logarithmic: equal distances are equal factors. \
         Compare marks of one kind only, never a filled with a hollow one."
            .to_owned(),
    ];
    let first = sources.first();
    let without = first.map_or_else(Vec::new, |source| {
        further(*source, study).map(name).collect::<Vec<String>>()
    });
    if !without.is_empty() {
        texts.push(format!("No published counterpart: {}.", without.join(", ")));
    }
    let (elsewhere, all) = loads::elsewhere(places, study);
    if elsewhere > 0 {
        texts.push(format!(
            "{elsewhere} of the study's {all} {} not measured in this run.",
            plural(elsewhere, "loads was", "loads were")
        ));
    }
    let unpublished: Vec<String> = places
        .iter()
        .filter(|place| place.rows.is_empty())
        .map(|place| place.name(study))
        .collect();
    if !unpublished.is_empty() {
        texts.push(format!(
            "Measured but not in the study: {}.",
            unpublished.join("; ")
        ));
    }
    texts.join(" ")
}
