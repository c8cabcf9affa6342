//! The seeded plan: the order of trials and the seeds of their arrivals.
//!
//! The same seed gives the same plan on every machine and in every version: the random number
//! generator, its seeding and the shuffle are written here or pinned by name, and a snapshot test
//! guards them.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use meshtax_model::experiment::{Experiment, LoadPoint, Variant, VariantId};
use meshtax_model::plan::{Block, PlannedTrial, TrialId};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng as _;

/// One block: every variant that is not excluded × every load point, once, in random order.
///
/// The order is drawn over all pairs and excluded variants are removed afterwards, so that
/// excluding a variant does not change the order of the others. The arrival seed depends on the
/// block and the load point only: every variant gets the same arrivals.
/// `round` and `block` count from 1.
#[must_use]
pub fn block(
    experiment: &Experiment,
    seed: u64,
    round: u32,
    block: u32,
    excluded: &BTreeSet<VariantId>,
) -> Block {
    let mut pairs: Vec<(&Variant, &LoadPoint)> = experiment
        .variants
        .iter()
        .flat_map(|v| experiment.load_points.iter().map(move |p| (v, p)))
        .collect();
    shuffle(&mut pairs, &mut generator(seed, round, block));
    let trials = pairs
        .into_iter()
        .filter(|(variant, _)| !excluded.contains(&variant.id))
        .filter(|(variant, point)| experiment.gap(variant, point).is_none())
        .zip(1..)
        .map(|((variant, point), position)| PlannedTrial {
            id: TrialId::new(round, block, position),
            round,
            block,
            variant: variant.id.clone(),
            load_point: point.id.clone(),
            arrival_seed: arrival_seed(seed, round, block, &point.id.0),
        })
        .collect();
    Block {
        round,
        block,
        trials,
    }
}

/// The seed of a block's arrivals at one load point: the same for every variant.
#[must_use]
pub fn arrival_seed(seed: u64, round: u32, block: u32, load_point: &str) -> u64 {
    let name = load_point
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    mix(block_seed(seed, round, block) ^ mix(name))
}

fn block_seed(seed: u64, round: u32, block: u32) -> u64 {
    mix(mix(seed) ^ (u64::from(round) << 32 | u64::from(block)))
}

fn generator(seed: u64, round: u32, block: u32) -> Pcg64 {
    let low = block_seed(seed, round, block);
    let state = u128::from(mix(low)) << 64 | u128::from(low);
    Pcg64::new(state, 0x006d_6573_6874_6178)
}

/// SplitMix64's finaliser: adjacent inputs give unrelated outputs.
fn mix(input: u64) -> u64 {
    let mut z = input.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A Fisher-Yates shuffle. Not the library's, which may change between versions.
fn shuffle<T>(items: &mut [T], random: &mut Pcg64) {
    for last in (1..items.len()).rev() {
        // The high half of a 128-bit product: its bias is below 2^-57 for these lengths.
        let product = u128::from(random.next_u64()) * (last as u128 + 1);
        items.swap(last, (product >> 64) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use meshtax_model::experiment::LoadPointId;
    use proptest::prelude::*;

    use super::*;

    /// Not a preset, which may change: five variants at two load points.
    const SPEC: &str = "
name: plan
variants:
  - {data-plane: limit-mtls, level: mtls}
  - {data-plane: envoy-sidecar, level: mtls}
  - {data-plane: envoy-sidecar, level: l7}
load:
  - steady: {rate: 1000, arrivals: poisson}
  - saturated: {}
";

    fn experiment() -> Experiment {
        meshtax_spec::parse("spec.yaml", SPEC).unwrap()
    }

    fn pairs(block: &Block) -> Vec<(VariantId, LoadPointId)> {
        block
            .trials
            .iter()
            .map(|t| (t.variant.clone(), t.load_point.clone()))
            .collect()
    }

    #[test]
    fn the_plan_of_a_seed_never_changes() {
        let mut text = String::new();
        for (round, number) in [(1, 1), (1, 2), (2, 1)] {
            for t in block(&experiment(), 42, round, number, &BTreeSet::new()).trials {
                let seed = t.arrival_seed;
                text.push_str(&format!(
                    "{} {} {} {seed:016x}\n",
                    t.id, t.variant, t.load_point
                ));
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn all_orders_are_equally_likely() {
        let mut experiment = experiment();
        experiment.variants.truncate(3);
        experiment.load_points.truncate(1);
        let mut seen: BTreeMap<Vec<VariantId>, u32> = BTreeMap::new();
        for round in 1..=6000 {
            let order = block(&experiment, 7, round, 1, &BTreeSet::new());
            let order = order.trials.into_iter().map(|t| t.variant).collect();
            *seen.entry(order).or_default() += 1;
        }
        assert_eq!(seen.len(), 6);
        // 1000 of each are expected; five standard deviations are 144.
        assert!(seen.values().all(|n| (856..=1144).contains(n)), "{seen:?}");
    }

    proptest! {
        #[test]
        fn every_pair_occurs_exactly_once(seed: u64, round in 1_u32..50, number in 1_u32..9) {
            let experiment = experiment();
            let plan = block(&experiment, seed, round, number, &BTreeSet::new());
            let unique: BTreeSet<_> = pairs(&plan).into_iter().collect();
            prop_assert_eq!(unique.len(), plan.trials.len());
            let all = experiment.variants.len() * experiment.load_points.len();
            prop_assert_eq!(unique.len(), all);
            prop_assert_eq!(&plan, &block(&experiment, seed, round, number, &BTreeSet::new()));
        }

        #[test]
        fn arrivals_are_the_same_for_every_variant(seed: u64, round in 1_u32..50) {
            let plan = block(&experiment(), seed, round, 1, &BTreeSet::new());
            let mut seeds: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
            for t in &plan.trials {
                seeds.entry(t.load_point.clone()).or_default().insert(t.arrival_seed);
            }
            prop_assert!(seeds.values().all(|s| s.len() == 1));
            let distinct: BTreeSet<_> = seeds.values().flatten().collect();
            prop_assert_eq!(distinct.len(), seeds.len());
        }

        #[test]
        fn excluding_a_variant_preserves_the_order_of_the_others(seed: u64, which in 0_usize..5) {
            let experiment = experiment();
            let gone = experiment.variants[which].id.clone();
            let all = block(&experiment, seed, 3, 2, &BTreeSet::new());
            let fewer = block(&experiment, seed, 3, 2, &BTreeSet::from([gone.clone()]));
            let mut kept = pairs(&all);
            kept.retain(|(variant, _)| *variant != gone);
            prop_assert_eq!(pairs(&fewer), kept);
            prop_assert_eq!(fewer.trials.last().map(|t| t.id.clone()),
                Some(TrialId::new(3, 2, 8)));
        }

        #[test]
        fn blocks_have_different_orders(seed: u64) {
            let experiment = experiment();
            let orders: BTreeSet<_> = (1..=4)
                .flat_map(|round| (1..=2).map(move |number| (round, number)))
                .map(|(r, b)| pairs(&block(&experiment, seed, r, b, &BTreeSet::new())))
                .collect();
            // Eight draws from 10! orders: a repeat means that the seeds are not mixed.
            prop_assert_eq!(orders.len(), 8);
        }
    }
}
