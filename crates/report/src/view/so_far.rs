//! Interim results of a run in progress, in a line per candidate.

use meshtax_model::analysis::{Analysis, Metric};
use meshtax_model::experiment::{LoadPoint, Role, VariantId};

use crate::format;
use crate::view::labels::unit;
use crate::view::source::{Source, at_load};

/// `envoy-sidecar-l7: p50 +421 µs [404, 438] at 1,000 requests/s; CPU per request ...`.
pub(crate) fn so_far(analysis: &Analysis) -> Vec<String> {
    let source = Source { analysis };
    let wanted = [
        (source.first_steady(), Metric::ResponseP50),
        (
            source.first_saturated().or(source.first_steady()),
            Metric::CpuPerRequest,
        ),
    ];
    let line = |id: &VariantId| {
        let known: Vec<String> = wanted
            .iter()
            .filter_map(|(point, metric)| clause(source, id, (*point)?, *metric))
            .collect();
        (!known.is_empty()).then(|| format!("{id}: {}", known.join("; ")))
    };
    source
        .measured()
        .filter(|(asked, _)| asked.role == Role::Candidate)
        .filter_map(|(asked, _)| line(&asked.id))
        .collect()
}

fn clause(
    source: Source<'_>,
    variant: &VariantId,
    point: &LoadPoint,
    metric: Metric,
) -> Option<String> {
    let effect = source.effect(variant, &point.id, metric)?;
    let difference = effect.difference.filter(|e| e.value.is_finite())?;
    let unit = unit(metric);
    let (value, interval) = format::estimate(difference, unit);
    let interval = interval.unwrap_or_else(|| "(no interval yet)".to_owned());
    Some(format!(
        "{} {value} {} {interval} {}",
        match metric {
            Metric::CpuPerRequest => "CPU",
            metric => metric.name(),
        },
        unit.name,
        at_load(point)
    ))
}
