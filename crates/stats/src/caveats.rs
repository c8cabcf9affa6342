//! Caveats that readers need to interpret the figures.

use std::collections::BTreeSet;

use meshtax_model::analysis::{
    Analysis, Caveat, CpuAccount, Effect, InvalidReason, LoadOutcome, Metric, VariantAnalysis,
    VariantTrials, Verdict,
};
use meshtax_model::catalogue;
use meshtax_model::cluster::Severity;
use meshtax_model::environment::NodeRole;
use meshtax_model::event::Ending;
use meshtax_model::experiment::{LoadPoint, LoadPointId, Role, Variant};
use meshtax_model::trial::ResourceSample;

use crate::account::{IN_PATH, account};
use crate::effects::{compare_variants, few_rounds, is_tail};
use crate::exclusions;
use crate::family::{ALPHA, holm};
use crate::growth::proxies_grow;
use crate::interval::UNITS_MIN;
use crate::noise;
use crate::outcome::is_lower_bound;
use crate::points::sampled;
use crate::tails::TRIALS_ABOVE_MIN;
use crate::trials::Trials;
use crate::validity::INVALID_SHARE_MAX;

/// Steal time of the hypervisor, as a share of the machine's time.
const STEAL_SHARE_MAX: f64 = 0.02;

/// Busy time that no component accounts for, as a share of it.
const UNATTRIBUTED_SHARE_MAX: f64 = 0.10;

/// Below the knee: the share of their cores that the two ends and their proxies may use at a steady
/// point. Above it a large part of the latency is contention between them.
const STEADY_BUSY_SHARE_MAX: f64 = 0.40;

/// All of them, the most general first.
pub(crate) fn caveats(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    type Rule = fn(&Trials<'_>, &Analysis) -> Vec<Caveat>;
    let rules: &[Rule] = &[
        ending,
        resumed,
        amount,
        failures,
        evidence,
        invalid,
        |trials, _| exclusions::imbalances(trials),
        not_carried,
        records,
        baselines_differ,
        cheaper_than_no_mesh,
        levels_out_of_order,
        below_floor,
        generator_bound,
        not_warm,
        growing_proxies,
        steady_too_busy,
        steal,
        noise,
        unattributed,
        cluster_warnings,
    ];
    rules
        .iter()
        .flat_map(|rule| rule(trials, analysis))
        .collect()
}

fn cluster_warnings(_: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let warnings = analysis.events.iter();
    let warnings = warnings.filter(|event| event.severity == Severity::Warning);
    let mut reasons: BTreeSet<&str> = BTreeSet::new();
    let mut events = 0_u32;
    for event in warnings {
        reasons.insert(&event.reason);
        events = events.saturating_add(event.count);
    }
    match reasons.is_empty() {
        true => Vec::new(),
        false => vec![Caveat::ClusterWarnings {
            reasons: reasons.into_iter().map(str::to_owned).collect(),
            events,
        }],
    }
}

fn ending(_: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let ending = &analysis.run.ending;
    match ending.as_ref().is_some_and(Ending::is_complete) {
        true => Vec::new(),
        false => vec![Caveat::Incomplete {
            ending: ending.clone(),
        }],
    }
}

fn resumed(_: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let resumptions = analysis.run.resumptions.clone();
    match resumptions.is_empty() {
        true => Vec::new(),
        false => vec![Caveat::Resumed { resumptions }],
    }
}

fn amount(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let (rounds, blocks) = (analysis.rounds, analysis.blocks);
    let mut caveats = Vec::new();
    if (rounds as usize) < UNITS_MIN {
        caveats.push(Caveat::FewRounds { rounds });
    }
    if (blocks as usize) < UNITS_MIN {
        caveats.push(Caveat::FewBlocks { blocks });
    } else if blocks < TRIALS_ABOVE_MIN && trials.points().iter().any(LoadPoint::is_steady) {
        caveats.push(Caveat::FewBlocksForP99 { blocks });
    }
    if rounds as usize >= UNITS_MIN {
        let mut few: Vec<&Effect> = analysis.effects.iter().filter(|e| few_rounds(e)).collect();
        few.dedup_by(|a, b| a.variant == b.variant && a.load_point == b.load_point);
        caveats.extend(few.iter().map(|effect| Caveat::FewPairedRounds {
            variant: effect.variant.clone(),
            load_point: effect.load_point.clone(),
            rounds: effect.rounds,
            of: rounds,
        }));
    }
    caveats
}

fn failures(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let of_variant = |found: &VariantAnalysis| {
        let variant = found.variant.clone();
        if let Some(reason) = &found.excluded {
            let reason = reason.clone();
            return Some(Caveat::Excluded { variant, reason });
        }
        let failures = || trials.failures_of(&found.variant);
        let last = failures().max_by_key(|failure| failure.round)?;
        let rounds: BTreeSet<u32> = failures().map(|failure| failure.round).collect();
        Some(Caveat::FailedInRounds {
            variant,
            rounds: count(rounds.len()),
            of: found.rounds_tried,
            last: last.reason.clone(),
        })
    };
    analysis.variants.iter().filter_map(of_variant).collect()
}

fn evidence(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let of_variant = |found: &VariantAnalysis| {
        let seen: Vec<u32> = trials
            .evidence_of(&found.variant)
            .map(|evidence| evidence.round)
            .collect();
        let mut unproven = trials.rounds_measured(&found.variant);
        unproven.retain(|round| !seen.contains(round));
        (!unproven.is_empty()).then(|| Caveat::NoEvidence {
            variant: found.variant.clone(),
            rounds: count(unproven.len()),
        })
    };
    analysis.variants.iter().filter_map(of_variant).collect()
}

fn invalid(_: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let of_variant = |found: &VariantAnalysis| {
        let points = || found.points.iter();
        let valid: u32 = points().map(|point| point.valid).sum();
        let invalid: u32 = points().flat_map(|point| point.invalid.values()).sum();
        let reasons: BTreeSet<InvalidReason> = points()
            .flat_map(|point| point.invalid.keys().copied())
            .collect();
        (invalid > 0).then(|| Caveat::InvalidTrials {
            variant: found.variant.clone(),
            invalid,
            of: valid.saturating_add(invalid),
            reasons: reasons.into_iter().collect(),
        })
    };
    analysis.variants.iter().filter_map(of_variant).collect()
}

/// Loads that were not carried. A load beyond the machine is reported once.
fn not_carried(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for (found, point) in analysis
        .variants
        .iter()
        .flat_map(|found| found.points.iter().map(move |point| (found, point)))
    {
        let (variant, load_point) = (found.variant.clone(), point.load_point.clone());
        let caveat = match point.outcome {
            LoadOutcome::Overloaded(overload) => Caveat::Overloaded {
                variant,
                load_point,
                overload,
            },
            LoadOutcome::BeyondMachine { trials, of } => Caveat::BeyondMachine {
                load_point,
                trials,
                of,
            },
            LoadOutcome::Carried | LoadOutcome::Uncertain { .. } if point.short.is_empty() => {
                continue;
            }
            LoadOutcome::Carried | LoadOutcome::Uncertain { .. } => Caveat::ShortTrials {
                variant,
                load_point,
                trials: point.short.values().sum(),
                of: count(
                    trials
                        .cell(&found.variant, &point.load_point)
                        .attempts()
                        .count(),
                ),
                shortfalls: point.short.keys().copied().collect(),
            },
        };
        if !caveats.contains(&caveat) {
            caveats.push(caveat);
        }
    }
    caveats
}

fn records(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if trials.unknown > 0 {
        caveats.push(Caveat::UnknownTrials {
            trials: trials.unknown,
        });
    }
    let unsampled = trials.all_valid().filter(|t| t.sample.is_none()).count();
    if unsampled > 0 {
        caveats.push(Caveat::NoResourceSample {
            trials: count(unsampled),
        });
    }
    caveats
}

fn baselines_differ(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let controls: Vec<_> = trials.by_role(Role::Control).map(|v| &v.id).collect();
    analysis
        .effects
        .iter()
        .filter(|e| controls.contains(&&e.variant) && e.verdict == Verdict::Different)
        // Memory hardly varies: a difference of one page is not meaningful noise.
        .filter(|e| e.metric != Metric::AnonymousMemory)
        .map(|effect| Caveat::BaselinesDiffer {
            metric: effect.metric,
            load_point: effect.load_point.clone(),
            change: change(effect),
        })
        .collect()
}

fn cheaper_than_no_mesh(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let is_mesh = |effect: &Effect| {
        trials
            .by_role(Role::Candidate)
            .any(|v| v.id == effect.variant && !catalogue::is_baseline(&v.data_plane))
    };
    analysis
        .effects
        .iter()
        .filter(|e| e.verdict == Verdict::Different && better(e) && is_mesh(e))
        .map(|effect| Caveat::CheaperThanNoMesh {
            variant: effect.variant.clone(),
            metric: effect.metric,
            load_point: effect.load_point.clone(),
            change: change(effect),
        })
        .collect()
}

fn change(effect: &Effect) -> f64 {
    effect.relative.map_or(0.0, |relative| relative.value)
}

fn better(effect: &Effect) -> bool {
    effect
        .relative
        .is_some_and(|r| (r.value < 0.0) == effect.metric.larger_is_worse() && r.value != 0.0)
}

/// A higher policy level that costs less than a lower one of the same data plane.
fn levels_out_of_order(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    out_of_order(trials, analysis, &level_pairs(trials), |pair| {
        Caveat::HigherLevelCheaper {
            higher: pair.higher.id.clone(),
            lower: pair.lower.id.clone(),
            metric: pair.metric,
            load_point: pair.load_point.clone(),
            change: pair.change,
        }
    })
}

/// A proxy that does more than the minimal one, and costs less.
fn below_floor(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    out_of_order(trials, analysis, &floor_pairs(trials), |pair| {
        Caveat::BelowFloor {
            floor: pair.lower.id.clone(),
            variant: pair.higher.id.clone(),
            metric: pair.metric,
            load_point: pair.load_point.clone(),
            change: pair.change,
        }
    })
}

/// A variant that costs less than one that does less.
struct OutOfOrder<'a> {
    lower: &'a Variant,
    higher: &'a Variant,
    metric: Metric,
    load_point: &'a LoadPointId,
    change: f64,
}

/// Of pairs of a variant and one that does more: where that one costs less. Judged by the interval of *their* paired
/// difference, adjusted over all pairs, beyond the noise floor: whether two intervals overlap proves nothing. What cannot
/// be estimated, of an overloaded variant for example, is not cheaper, and neither is a latency that is a lower bound.
fn out_of_order(
    trials: &Trials<'_>,
    analysis: &Analysis,
    pairs: &[(&Variant, &Variant)],
    caveat: impl Fn(&OutOfOrder<'_>) -> Caveat,
) -> Vec<Caveat> {
    let mut found = Vec::new();
    for (lower, higher) in pairs {
        for floor in &analysis.noise_floor {
            let point = trials.data.experiment.load_point(&floor.load_point);
            let (Some(noise), Some(point)) = (floor.relative, point) else {
                continue;
            };
            let cell = trials.cell(&higher.id, &point.id);
            if is_tail(floor.metric) || is_lower_bound(floor.metric, cell) {
                continue;
            }
            let paired = compare_variants(trials, higher, &[lower], point, floor.metric);
            let fit = paired.ok().map(|paired| paired.log_ratio);
            let Some((fit, p_value)) = fit.and_then(|fit| fit.p_value().map(|p| (fit, p))) else {
                continue;
            };
            let change = fit.estimate.exp_m1();
            let cheaper = (change < 0.0) == floor.metric.larger_is_worse();
            let pair = OutOfOrder {
                lower,
                higher,
                metric: floor.metric,
                load_point: &floor.load_point,
                change,
            };
            found.push((p_value, cheaper && change.abs() > noise, caveat(&pair)));
        }
    }
    let p_values: Vec<f64> = found.iter().map(|(p, ..)| *p).collect();
    found
        .into_iter()
        .zip(holm(&p_values))
        .filter(|((_, odd, _), adjusted)| *odd && *adjusted < ALPHA)
        .map(|((.., caveat), _)| caveat)
        .collect()
}

fn level_pairs<'a>(trials: &Trials<'a>) -> Vec<(&'a Variant, &'a Variant)> {
    plain_pairs(trials, |lower, higher| {
        let levels = lower.level.zip(higher.level);
        lower.data_plane == higher.data_plane && levels.is_some_and(|(low, high)| low < high)
    })
}

/// A floor, and a variant that promises as much at least.
fn floor_pairs<'a>(trials: &Trials<'a>) -> Vec<(&'a Variant, &'a Variant)> {
    plain_pairs(trials, |lower, higher| {
        let [lower_is_floor, higher_is_floor] =
            [lower, higher].map(|variant| catalogue::is_floor(&variant.data_plane));
        let levels = lower.level.zip(higher.level);
        lower_is_floor && !higher_is_floor && levels.is_some_and(|(low, high)| low <= high)
    })
}

fn plain_pairs<'a>(
    trials: &Trials<'a>,
    is_pair: impl Fn(&Variant, &Variant) -> bool,
) -> Vec<(&'a Variant, &'a Variant)> {
    let plain = || {
        let candidates = trials.by_role(Role::Candidate);
        candidates.filter(|variant| variant.is_plain())
    };
    let pairs = plain().flat_map(|lower| plain().map(move |higher| (lower, higher)));
    pairs
        .filter(|(lower, higher)| is_pair(lower, higher))
        .collect()
}

/// In a closed loop a generator that is the limit hides cost, in a known direction.
fn generator_bound(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for point in trials.points().iter().filter(|p| !p.is_steady()) {
        let bound = |variant: &Variant| {
            let cell = trials.cell(&variant.id, &point.id);
            let audits = cell.valid.iter().map(|t| &t.load.audit);
            count(audits.filter(|a| a.generator_bound.is_some()).count())
        };
        let of_role = |role| trials.by_role(role).map(bound).sum::<u32>();
        let baselines = of_role(Role::Baseline) + of_role(Role::Control);
        if baselines > 0 {
            caveats.push(Caveat::GeneratorBoundBaselines {
                load_point: point.id.clone(),
                trials: baselines,
            });
        }
        let variants: Vec<VariantTrials> = trials
            .by_role(Role::Candidate)
            .filter(|variant| bound(variant) > 0)
            .map(|variant| VariantTrials {
                variant: variant.id.clone(),
                trials: bound(variant),
            })
            .collect();
        if !variants.is_empty() {
            caveats.push(Caveat::GeneratorBoundCandidates {
                load_point: point.id.clone(),
                variants,
                baselines_too: baselines > 0,
            });
        }
    }
    caveats
}

/// Where connections are the load, or the start of the proxies is, they are to be opened.
fn not_warm(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let is_warm = |p: &&LoadPoint| p.requests_per_connection.is_none() && !p.cold;
    let points = trials.points().iter().filter(is_warm);
    let of_point = |point: &LoadPoint| {
        let of_variant = |variant: &Variant| {
            let cell = trials.cell(&variant.id, &point.id);
            let counted = cell
                .valid
                .iter()
                .filter_map(|t| t.proxy_connections?.opened());
            let opened: Vec<u32> = counted.collect();
            let most = opened.iter().copied().max().filter(|most| *most > 0)?;
            Some(Caveat::NotWarm {
                variant: variant.id.clone(),
                load_point: point.id.clone(),
                trials: count(opened.iter().filter(|opened| **opened > 0).count()),
                of: count(opened.len()),
                most,
            })
        };
        let candidates = trials.by_role(Role::Candidate);
        candidates.filter_map(of_variant).collect::<Vec<_>>()
    };
    points.flat_map(of_point).collect()
}

/// A single trial with growth is no pattern.
fn growing_proxies(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let of_point = |variant: &Variant, point: &LoadPoint| {
        let carried = trials.cell(&variant.id, &point.id).valid.iter();
        let carried = carried.filter(|trial| trial.short.is_none());
        let samples: Vec<&ResourceSample> = carried.filter_map(|trial| trial.sample).collect();
        let growing = samples.iter().filter(|sample| proxies_grow(sample)).count();
        let is_pattern = growing > 1 && growing as f64 > INVALID_SHARE_MAX * samples.len() as f64;
        is_pattern.then(|| Caveat::GrowingProxies {
            variant: variant.id.clone(),
            load_point: point.id.clone(),
            trials: count(growing),
            of: count(samples.len()),
        })
    };
    let points = trials.points().iter();
    let candidates = |point| {
        let candidates = trials.by_role(Role::Candidate);
        candidates.filter_map(move |variant| of_point(variant, point))
    };
    points.flat_map(candidates).collect()
}

/// The steady rate should leave the slowest variant's cores mostly idle.
fn steady_too_busy(trials: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    let mut cores = analysis.environment.tested_cores(NodeRole::Client);
    cores.extend(analysis.environment.tested_cores(NodeRole::Server));
    let mut caveats = Vec::new();
    for variant in &analysis.variants {
        for point in &variant.points {
            let steady = trials
                .points()
                .iter()
                .any(|p| p.id == point.load_point && p.is_steady());
            let Some(cpu) = point.cpu.as_ref().filter(|_| steady && !cores.is_empty()) else {
                continue;
            };
            let per_request_ns: f64 = cpu
                .components
                .iter()
                .filter(|c| IN_PATH.contains(&c.role))
                .map(|c| c.cpu_per_request_ns)
                .sum();
            let share = per_request_ns * point.achieved_per_s / 1e9 / cores.len() as f64;
            if share > STEADY_BUSY_SHARE_MAX {
                caveats.push(Caveat::BusyAtSteady {
                    variant: variant.variant.clone(),
                    load_point: point.load_point.clone(),
                    busy_share: share,
                });
            }
        }
    }
    caveats
}

fn steal(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let all: Vec<_> = trials
        .all_valid()
        .filter_map(|trial| Some((trial.sample?, trial.load.completed)))
        .collect();
    let Some(account) = account(&all) else {
        return Vec::new();
    };
    let share = account.shown.steal_ns as f64 / account.capacity_ns.max(1) as f64;
    if share <= STEAL_SHARE_MAX {
        return Vec::new();
    }
    vec![Caveat::Steal { share }]
}

fn noise(_: &Trials<'_>, analysis: &Analysis) -> Vec<Caveat> {
    noise::caveats(&analysis.noise, &analysis.environment.machines)
}

/// Kernels without steal accounting charge the stolen time to the running process.
fn is_by_steal(account: &CpuAccount) -> bool {
    let beyond = i128::from(account.attributed_ns) - i128::from(account.busy_ns);
    beyond <= i128::from(account.steal_ns) + i128::from(account.resolution_ns)
}

fn unattributed(trials: &Trials<'_>, _: &Analysis) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    for variant in trials.variants() {
        for point in trials.points() {
            let cell = trials.cell(&variant.id, &point.id);
            let Some(account) = account(&sampled(cell)) else {
                continue;
            };
            let (variant, load_point) = (variant.id.clone(), point.id.clone());
            if account.exceeded {
                caveats.push(Caveat::CpuAboveBusy {
                    variant: variant.clone(),
                    load_point: load_point.clone(),
                    by_steal: is_by_steal(&account.shown),
                });
            }
            let rest = account.shown.unattributed_ns.unwrap_or(0) as f64;
            let share = rest / account.shown.busy_ns.max(1) as f64;
            if !point.is_steady() && share > UNATTRIBUTED_SHARE_MAX {
                caveats.push(Caveat::Unattributed {
                    variant,
                    load_point,
                    share,
                });
            }
        }
    }
    caveats
}

fn count(things: usize) -> u32 {
    u32::try_from(things).unwrap_or(u32::MAX)
}
