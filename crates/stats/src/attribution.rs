//! The components of a data plane's overhead: paired differences between neighbouring steps.

use meshtax_model::analysis::{Attribution, AttributionPart, AttributionStep, Metric};
use meshtax_model::catalogue;
use meshtax_model::experiment::{LoadPoint, PolicyLevel, Role, Variant};

use crate::effects::compare_variants;
use crate::trials::Trials;

/// For every data plane that was measured, at every load point: mean latency where it is meaningful,
/// and CPU.
pub(crate) fn attributions(trials: &Trials<'_>) -> Vec<Attribution> {
    let mut found = Vec::new();
    for data_plane in data_planes(trials) {
        let ladder = ladder(trials, data_plane);
        if ladder.is_empty() {
            continue;
        }
        // A mesh's own gateway replaces a sidecar and one more proxy: the steps there are not
        // those of a pair.
        for point in trials.points().iter().filter(|p| p.ingress.is_none()) {
            for metric in metrics(point) {
                let steps = steps(trials, &ladder, point, *metric);
                if steps.iter().any(|step| step.difference.is_some()) {
                    found.push(Attribution {
                        data_plane: data_plane.to_owned(),
                        load_point: point.id.clone(),
                        metric: *metric,
                        steps,
                    });
                }
            }
        }
    }
    found
}

fn metrics(point: &LoadPoint) -> &'static [Metric] {
    if point.is_steady() {
        &[Metric::ResponseMean, Metric::CpuPerRequest]
    } else {
        &[Metric::CpuPerRequest]
    }
}

/// The steps of the candidates, each once, in the experiment's order.
fn data_planes<'a>(trials: &Trials<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for variant in candidates(trials) {
        if variant.level.is_some() && !names.contains(&variant.data_plane.as_str()) {
            names.push(&variant.data_plane);
        }
    }
    names
}

fn candidates<'t, 'a: 't>(trials: &'t Trials<'a>) -> impl Iterator<Item = &'a Variant> + 't {
    let all = trials.by_role(Role::Candidate);
    all.filter(|v| v.is_plain() && trials.excluded(&v.id).is_none())
}

/// What a variant adds to the previous one.
struct Rung<'a> {
    variant: &'a Variant,
    parts: Vec<AttributionPart>,
}

/// From no mesh (excluded) up. Where a step is missing, its components are assigned to the next: they
/// cannot be separated.
fn ladder<'a>(trials: &Trials<'a>, data_plane: &str) -> Vec<Rung<'a>> {
    let of = |name: &str, level: PolicyLevel| {
        candidates(trials).find(|v| v.data_plane == name && v.level == Some(level))
    };
    let hop = candidates(trials).find(|v| {
        let plaintext = v.level == Some(PolicyLevel::Plaintext);
        plaintext && catalogue::is_floor(&v.data_plane)
    });
    let rungs = [
        (AttributionPart::Hop, hop),
        (
            AttributionPart::Proxying,
            of(data_plane, PolicyLevel::Plaintext),
        ),
        (
            AttributionPart::Encryption,
            of(data_plane, PolicyLevel::Mtls),
        ),
        (
            AttributionPart::IdentityPolicy,
            of(data_plane, PolicyLevel::L4),
        ),
        (
            AttributionPart::RequestPolicy,
            of(data_plane, PolicyLevel::L7),
        ),
    ];
    let mut open = Vec::new();
    let mut ladder = Vec::new();
    // A floor is the hop itself: it parses nothing.
    let is_floor = catalogue::is_floor(data_plane);
    for (part, variant) in rungs {
        if is_floor && part == AttributionPart::Proxying {
            continue;
        }
        open.push(part);
        if let Some(variant) = variant {
            let parts = std::mem::take(&mut open);
            ladder.push(Rung { variant, parts });
        }
    }
    // The additional hop alone is not specific to this data plane.
    if ladder
        .iter()
        .all(|rung| rung.variant.data_plane != data_plane)
    {
        ladder.clear();
    }
    ladder
}

fn steps(
    trials: &Trials<'_>,
    ladder: &[Rung<'_>],
    point: &LoadPoint,
    metric: Metric,
) -> Vec<AttributionStep> {
    let baselines: Vec<&Variant> = [Role::Baseline, Role::Control]
        .into_iter()
        .flat_map(|role| trials.by_role(role))
        .collect();
    let mut below = baselines;
    let mut steps = Vec::new();
    for rung in ladder {
        if trials.data.experiment.gap(rung.variant, point).is_some() {
            continue;
        }
        let Some(from) = below.first() else { continue };
        let compared = compare_variants(trials, rung.variant, &below, point, metric);
        steps.push(AttributionStep {
            parts: rung.parts.clone(),
            from: from.id.clone(),
            to: rung.variant.id.clone(),
            difference: compared
                .ok()
                .map(|paired| paired.difference.estimate_plain()),
        });
        below = vec![rung.variant];
    }
    steps
}
