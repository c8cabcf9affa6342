//! What the builders of the view read: an analysis, and how its load points are named.

use meshtax_model::analysis::{Analysis, Effect, Metric, Point, VariantAnalysis};
use meshtax_model::catalogue;
use meshtax_model::experiment::{
    Experiment, Ingress, LoadPoint, LoadPointId, Protocol, Regime, Role, Variant, VariantId,
};

use crate::format;

/// An analysis with the look-ups that every part of the view needs.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) analysis: &'a Analysis,
}

impl<'a> Source<'a> {
    pub(crate) fn loads(self) -> Loads<'a> {
        Loads::of(&self.analysis.experiment)
    }

    pub(crate) fn points(self) -> impl Iterator<Item = &'a LoadPoint> {
        self.analysis.experiment.load_points.iter()
    }

    pub(crate) fn first_steady(self) -> Option<&'a LoadPoint> {
        self.points().find(|p| p.is_steady())
    }

    pub(crate) fn first_saturated(self) -> Option<&'a LoadPoint> {
        self.points().find(|p| !p.is_steady())
    }

    /// Measured variants, in the experiment's order, with their configuration.
    pub(crate) fn measured(self) -> impl Iterator<Item = (&'a Variant, &'a VariantAnalysis)> {
        self.variants().filter(|(_, v)| v.excluded.is_none())
    }

    pub(crate) fn variants(self) -> impl Iterator<Item = (&'a Variant, &'a VariantAnalysis)> {
        self.analysis
            .variants
            .iter()
            .filter_map(move |v| Some((self.analysis.experiment.variant(&v.variant)?, v)))
    }

    /// A variant's place in the experiment: by it, its color is the same in all pictures.
    pub(crate) fn place(self, id: &VariantId) -> usize {
        let mut variants = self.analysis.experiment.variants.iter();
        variants.position(|v| v.id == *id).unwrap_or_default()
    }

    pub(crate) fn effect(
        self,
        variant: &VariantId,
        point: &LoadPointId,
        metric: Metric,
    ) -> Option<&'a Effect> {
        self.analysis.effect(variant, point, metric)
    }

    /// `no mesh` for the data plane `none`, else the baseline's name.
    pub(crate) fn baseline_name(self) -> String {
        match self.analysis.experiment.by_role(Role::Baseline) {
            Some(v) if !catalogue::is_baseline(&v.data_plane) => v.id.0.clone(),
            _ => "no mesh".to_owned(),
        }
    }
}

/// How a document names load points: in words, or by their ids if it has no experiment.
#[derive(Clone, Copy)]
pub(crate) struct Loads<'a>(Option<&'a Experiment>);

impl<'a> Loads<'a> {
    pub(crate) const BY_ID: Self = Self(None);

    pub(crate) fn of(experiment: &'a Experiment) -> Self {
        Self(Some(experiment))
    }

    /// `at 1,000 requests/s`; of several load points that read the same, with its id.
    pub(crate) fn at(self, id: &LoadPointId) -> String {
        let points = self.0.map_or(&[][..], |experiment| &experiment.load_points);
        let Some(point) = points.iter().find(|point| point.id == *id) else {
            return format!("at {id}");
        };
        let at = at_load(point);
        match points.iter().filter(|other| at_load(other) == at).count() {
            1 => at,
            _ => format!("{at} ({id})"),
        }
    }
}

/// What was found for a variant at a load point.
pub(crate) fn point_of<'a>(variant: &'a VariantAnalysis, id: &LoadPointId) -> Option<&'a Point> {
    variant.points.iter().find(|p| p.load_point == *id)
}

/// `1,000 requests/s` or `saturated`, and how often a connection is used.
pub(crate) fn load_in_words(point: &LoadPoint) -> String {
    let load = match point.load {
        Regime::Steady { rate_per_s, .. } => format!("{} requests/s", format::trimmed(rate_per_s)),
        Regime::Saturated => "saturated".to_owned(),
    };
    load + &manner_in_words(point)
}

/// In a sentence: `at 1,000 requests/s` or `at saturation`.
pub(crate) fn at_load(point: &LoadPoint) -> String {
    match point.load {
        Regime::Steady { .. } => format!("at {}", load_in_words(point)),
        Regime::Saturated => format!("at saturation{}", manner_in_words(point)),
    }
}

/// Behind a load: what is other than usual about it.
pub(crate) fn manner_in_words(point: &LoadPoint) -> String {
    let mut words = reuse_in_words(point);
    if let Some(connections) = point.connections {
        let what = if point.by_users {
            "users"
        } else {
            "connections"
        };
        words.push_str(&format!(", {connections} {what}"));
    }
    if point.protocol != Protocol::Http1 {
        words.push_str(&format!(", {}", point.protocol));
    }
    if let Some(bytes) = point.response_bytes {
        words.push_str(&format!(
            ", responses of {}",
            format::bytes(u64::from(bytes))
        ));
    }
    words.push_str(match point.ingress {
        None => "",
        Some(Ingress::Plaintext) => ", ingress",
        Some(Ingress::Tls) => ", ingress over TLS",
    });
    if point.cold {
        words.push_str(", cold start");
    }
    words
}

/// How often a connection is used, where that is not without end.
fn reuse_in_words(point: &LoadPoint) -> String {
    match point.requests_per_connection {
        None => String::new(),
        Some(1) => ", a new connection for each request".to_owned(),
        Some(most) => format!(", a new connection after {most} requests"),
    }
}

/// `95 %`.
pub(crate) fn confidence_in_words(analysis: &Analysis) -> String {
    format!("{} %", format::trimmed(analysis.confidence * 100.0))
}
