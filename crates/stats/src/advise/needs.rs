//! Whether a mesh is needed, and which variants meet the needs.

use meshtax_model::advice::{AdvisedVariant, Given, Gives, Need, NeedAnswer, Standing};
use meshtax_model::analysis::VariantAnalysis;
use meshtax_model::evidence::{Balances, Evidence};
use meshtax_model::experiment::{PolicyLevel, Variant, VariantId};

/// Which needs a variant meets.
pub(super) fn gives(variant: &Variant, found: Option<&VariantAnalysis>) -> Vec<Gives> {
    let found = found.filter(|found| found.excluded.is_none());
    let evidence = found.and_then(|found| found.evidence.as_ref());
    let all = Need::ALL.into_iter();
    all.map(|need| Gives {
        need,
        given: match need.level() {
            Some(level) => promised(variant, level, evidence),
            None => seen(need, evidence),
        },
    })
    .collect()
}

/// A level's guarantee counts where its probes passed, since they prove it.
fn promised(variant: &Variant, level: PolicyLevel, evidence: Option<&Evidence>) -> Given {
    match variant.level {
        Some(own) if own >= level => match evidence {
            Some(evidence) if evidence.passed() => Given::Yes,
            _ => Given::NotCovered,
        },
        _ => Given::No,
    }
}

fn seen(need: Need, evidence: Option<&Evidence>) -> Given {
    let features = evidence.and_then(|evidence| evidence.features.as_ref());
    let provided = features.and_then(|features| match need {
        Need::HttpMetrics => features.counts_requests,
        Need::Retries => features.tries_again,
        Need::RequestBalancing => features.balances.map(|b| b == Balances::Requests),
        Need::Mtls | Need::IdentityPolicy | Need::HttpPolicy | Need::Fips => None,
    });
    match provided {
        Some(true) => Given::Yes,
        Some(false) => Given::No,
        None => Given::NotCovered,
    }
}

fn given(variant: &AdvisedVariant, need: Need) -> bool {
    let gives = Gives {
        need,
        given: Given::Yes,
    };
    variant.gives.contains(&gives)
}

fn choices(variants: &[AdvisedVariant]) -> impl Iterator<Item = &AdvisedVariant> {
    let measured = variants.iter().filter(|v| v.excluded.is_none());
    measured.filter(|v| v.standing == Standing::Choice)
}

/// Every need, stated or not.
pub(super) fn answers(variants: &[AdvisedVariant], asked: &[Need]) -> Vec<NeedAnswer> {
    let all = Need::ALL.into_iter();
    all.map(|need| {
        let by = || choices(variants).filter(move |variant| given(variant, need));
        NeedAnswer {
            need,
            asked: asked.contains(&need),
            level: need.level().or_else(|| by().filter_map(|v| v.level).min()),
            given_by: by().map(|variant| variant.variant.clone()).collect(),
        }
    })
    .collect()
}

/// For each data plane, the lowest level that meets all needs. Validated cryptography is not measured by a
/// run, and is left to the published facts.
pub(super) fn sufficient(variants: &[AdvisedVariant], asked: &[Need]) -> Vec<VariantId> {
    let needs: Vec<Need> = asked.iter().copied().filter(|n| *n != Need::Fips).collect();
    if needs.is_empty() {
        return Vec::new();
    }
    let enough = |variant: &&AdvisedVariant| needs.iter().all(|need| given(variant, *need));
    let mut lowest: Vec<&AdvisedVariant> = Vec::new();
    for variant in choices(variants).filter(enough) {
        let same = lowest
            .iter_mut()
            .find(|v| v.data_plane == variant.data_plane);
        match same {
            Some(held) if variant.level < held.level => *held = variant,
            Some(_) => {}
            None => lowest.push(variant),
        }
    }
    lowest.into_iter().map(|v| v.variant.clone()).collect()
}
