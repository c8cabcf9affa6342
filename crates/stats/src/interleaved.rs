//! Two sides that were measured in the same blocks of one run: their paired differences.

use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    Analysis, LoadOutcome, Metric, NotEstimable, VariantAnalysis, Verdict,
};
use meshtax_model::comparison::{
    Change, Differing, PairDetails, ProbeChange, RunComparison, Setting, SettingValue,
};
use meshtax_model::environment::Artifact;
use meshtax_model::evidence::{Evidence, ProbeId};
use meshtax_model::experiment::{Experiment, LoadPoint, Role, Variant, VariantId};

use crate::between::{Found, compared, worth_a_line};
use crate::effects::{against_baselines, compare_variants, is_primary, relative_floor, too_few};
use crate::elsewhere;
use crate::family::holm;
use crate::interval::{CONFIDENCE, Inference};
use crate::outcome::outcome;
use crate::points::level_in;
use crate::run_data::RunData;
use crate::trials::{Cell, Trials};
use crate::truncated::Truncated;
use crate::verdict::{self, Bounds};

/// Compares two sides of one run: every metric with its verdict, and what else differs between the variants of a pair. A
/// pair without a first variant is compared with the baselines.
#[must_use]
pub fn compare_sides(
    data: &RunData<'_>,
    analysis: &Analysis,
    pairs: &[(Option<VariantId>, VariantId)],
) -> RunComparison {
    let mut found = sides(data, pairs);
    found.retain(|found| worth_a_line(&found.change));
    judge(&mut found, analysis);
    let run = compared(data);
    RunComparison {
        format_version: FORMAT_VERSION,
        interleaved: true,
        base: vec![run.clone()],
        new: vec![run],
        confidence: CONFIDENCE,
        differing: pairs
            .iter()
            .filter_map(|(first, second)| Some(builds(data, first.as_ref()?, second)))
            .flatten()
            .collect(),
        notes: Vec::new(),
        changes: found.into_iter().map(|found| found.change).collect(),
        pairs: pairs
            .iter()
            .filter_map(|(first, second)| details(analysis, first.as_ref()?, second))
            .collect(),
    }
}

/// The builds of the programs that two variants run, also if they are the same file.
fn builds(data: &RunData<'_>, base: &VariantId, new: &VariantId) -> Vec<Differing> {
    let of = |id: &VariantId| {
        let all = data.environment.artifacts.iter();
        let its_own = all.filter(|artifact| artifact.variants.contains(id));
        its_own.collect::<Vec<&Artifact>>()
    };
    let value = |artifact: &Artifact| SettingValue::Program {
        version: artifact.version.clone(),
        sha256: artifact.sha256.clone(),
    };
    let (first, second) = (of(base), of(new));
    let same_program = |one: &Artifact| {
        let other = second.iter().find(|other| other.program == one.program)?;
        Some(Differing {
            setting: Setting::Program {
                data_plane: one.data_plane.clone(),
            },
            base: vec![value(one)],
            new: vec![value(other)],
        })
    };
    first.into_iter().filter_map(same_program).collect()
}

/// Holm over the primary changes; then the verdicts, with the margins and noise floors of effects.
fn judge(found: &mut [Found], analysis: &Analysis) {
    let is_judged = |change: &Change| change.primary && change.p_value.is_some();
    let family: Vec<f64> = found
        .iter()
        .filter(|found| is_judged(&found.change))
        .filter_map(|found| found.change.p_value)
        .collect();
    let mut adjusted = holm(&family).into_iter();
    for found in found {
        let change = &mut found.change;
        if is_judged(change) {
            change.p_value = adjusted.next();
        }
        let Some(fit) = &found.fit else {
            continue;
        };
        let margin = change.metric.margin(&analysis.experiment.margins);
        let floor = relative_floor(&analysis.noise_floor, &change.load_point, change.metric);
        change.verdict = match floor {
            None => Verdict::NotEstimable {
                reason: NotEstimable::NoNoiseFloor,
            },
            Some(floor) => {
                verdict::of(fit, change.p_value.unwrap_or(1.0), Bounds { floor, margin }).0
            }
        };
        if found.withholds(&found.change.verdict, margin) {
            found.change.verdict = Verdict::Inconclusive;
        }
    }
}

/// What differs between two variants in addition to their figures.
fn details(analysis: &Analysis, base: &VariantId, new: &VariantId) -> Option<PairDetails> {
    let of = |id: &VariantId| analysis.variants.iter().find(|v| v.variant == *id);
    let (first, second) = (of(base)?, of(new)?);
    Some(PairDetails {
        base_variant: base.clone(),
        new_variant: new.clone(),
        upkeep: [first.upkeep, second.upkeep],
        features: [first, second].map(|v| v.evidence.as_ref()?.features.clone()),
        handshakes: [first, second].map(|v| {
            let evidence = v.evidence.as_ref();
            evidence.map_or_else(Vec::new, |e| e.wire.handshakes.clone())
        }),
        probes: probe_changes(first, second),
    })
}

/// Probes that do not have the same result on both sides.
fn probe_changes(first: &VariantAnalysis, second: &VariantAnalysis) -> Vec<ProbeChange> {
    let passed = |of: &VariantAnalysis, probe: ProbeId| {
        let evidence: Option<&Evidence> = of.evidence.as_ref();
        let mut results = evidence?.probes.iter();
        Some(results.find(|result| result.probe == probe)?.passed)
    };
    let mut changes: Vec<ProbeChange> = Vec::new();
    for side in [first, second] {
        for result in side.evidence.iter().flat_map(|evidence| &evidence.probes) {
            let probe = result.probe;
            let change = ProbeChange {
                probe,
                base: passed(first, probe),
                new: passed(second, probe),
            };
            if change.base != change.new && !changes.iter().any(|known| known.probe == probe) {
                changes.push(change);
            }
        }
    }
    changes
}

/// The name of a variant in its own spec: an interleaved run puts `a.` or `b.` before it.
pub(crate) fn bare(id: &VariantId) -> &str {
    let id = id.0.as_str();
    id.strip_prefix("a.")
        .or(id.strip_prefix("b."))
        .unwrap_or(id)
}

/// A pair to be judged, at a load point.
pub(crate) struct Pairing<'a> {
    pub(crate) against: Vec<&'a Variant>,
    pub(crate) second: &'a Variant,
    pub(crate) point: &'a LoadPoint,
}

pub(crate) fn pairings<'a>(
    experiment: &'a Experiment,
    pairs: &[(Option<VariantId>, VariantId)],
) -> Vec<Pairing<'a>> {
    let baselines: Vec<&Variant> = [Role::Baseline, Role::Control]
        .into_iter()
        .filter_map(|role| experiment.by_role(role))
        .collect();
    let mut found = Vec::new();
    for point in &experiment.load_points {
        for (first, second) in pairs {
            let Some(second) = experiment.variant(second) else {
                continue;
            };
            let against: Vec<&Variant> = match first {
                Some(id) => experiment.variant(id).into_iter().collect(),
                None => baselines.clone(),
            };
            let mut all = against.iter().copied().chain([second]);
            if !against.is_empty() && all.all(|v| experiment.gap(v, point).is_none()) {
                found.push(Pairing {
                    against,
                    second,
                    point,
                });
            }
        }
    }
    found
}

/// The changes of the pairs of one run, at every load point in every metric.
pub(crate) fn sides(data: &RunData<'_>, pairs: &[(Option<VariantId>, VariantId)]) -> Vec<Found> {
    let trials = Trials::new(data);
    let mut found = Vec::new();
    for pairing in pairings(data.experiment, pairs) {
        let metrics = Metric::of(pairing.point).iter();
        found.extend(metrics.map(|metric| side(&trials, &pairing, *metric)));
    }
    found
}

fn side(trials: &Trials<'_>, pairing: &Pairing<'_>, metric: Metric) -> Found {
    let Pairing {
        against,
        second,
        point,
    } = pairing;
    let excluded = against.iter().find_map(|v| {
        let reason = trials.excluded(&v.id)?;
        Some(NotEstimable::Excluded {
            variant: v.id.clone(),
            reason,
        })
    });
    let fit = excluded.map_or(Ok(()), Err).and_then(|()| {
        let paired = compare_variants(trials, second, against, point, metric)?;
        too_few(&paired).map_or(Ok(paired.log_ratio), Err)
    });
    let overhead = |variant: &Variant| {
        let paired = against_baselines(trials, variant, point, metric).ok()?;
        Some(paired.log_ratio.estimate_relative())
    };
    let first = against.first();
    let (fit, verdict) = match (fit, outcome(trials, second, point)) {
        (_, LoadOutcome::Overloaded(overload)) => (None, Verdict::Overloaded(overload)),
        (Ok(fit), _) => (Some(fit), Verdict::Inconclusive),
        (Err(reason), _) => (None, Verdict::NotEstimable { reason }),
    };
    let cell_of = |variant: &Variant| trials.cell(&variant.id, &point.id);
    let references: Vec<&Cell<'_>> = against.iter().map(|v| cell_of(v)).collect();
    let truncated = Truncated::of(metric, cell_of(second), &references);
    let level = first.and_then(|v| level_in(metric, trials.cell(&v.id, &point.id)));
    Found {
        change: Change {
            variant: bare(&second.id).to_owned(),
            base_variant: first.map_or_else(|| second.id.clone(), |v| v.id.clone()),
            new_variant: second.id.clone(),
            load_point: point.id.clone(),
            metric,
            base: first
                .filter(|v| v.role == Role::Candidate)
                .and_then(|v| overhead(v)),
            new: overhead(second),
            relative: fit.as_ref().map(Inference::estimate_relative),
            lower_bound: truncated.is_lower_bound(),
            between: None,
            base_runs: 1,
            new_runs: 1,
            p_value: fit.as_ref().and_then(Inference::p_value),
            primary: is_primary(point, metric),
            verdict,
        },
        fit,
        level,
        truncated,
        whole: elsewhere::whole(trials, metric, cell_of(second), &references),
        missing_run: None,
    }
}
