//! The cost of ingress through a gateway: the same load from outside and from a pod of the mesh, in the same blocks.

use meshtax_model::analysis::{Arm, IngressCost, Metric};
use meshtax_model::experiment::LoadPoint;

use crate::effects::{as_ended, compare_cells, too_few};
use crate::trials::{Trials, too_many_invalid};

/// For every variant at every load point with ingress that the run also has from a pod.
pub(crate) fn ingress_costs(trials: &Trials<'_>) -> Vec<IngressCost> {
    let mut found = Vec::new();
    for point in trials.points() {
        let Some(from_pod) = same_from_pod(trials.points(), point) else {
            continue;
        };
        for variant in trials.variants() {
            let [outside, inside] = [point, from_pod].map(|p| trials.cell(&variant.id, &p.id));
            if outside.valid.is_empty() || inside.valid.is_empty() {
                continue;
            }
            let paired = compare_cells(Metric::CpuPerRequest, outside, &[inside])
                .filter(|_| too_many_invalid(&Arm::Variant, [outside, inside]).is_none())
                .filter(|paired| too_few(paired).is_none())
                .map(|paired| as_ended(trials, paired));
            found.push(IngressCost {
                variant: variant.id.clone(),
                load_point: point.id.clone(),
                from_pod: from_pod.id.clone(),
                difference: paired.map(|paired| paired.difference.estimate_plain()),
            });
        }
    }
    found
}

/// The load point that differs in ingress only. `None` also for a load point from a pod.
fn same_from_pod<'a>(points: &'a [LoadPoint], by_ingress: &LoadPoint) -> Option<&'a LoadPoint> {
    by_ingress.ingress?;
    points.iter().find(|point| {
        let of_other_way = LoadPoint {
            id: by_ingress.id.clone(),
            ingress: by_ingress.ingress,
            ..(*point).clone()
        };
        point.ingress.is_none() && of_other_way == *by_ingress
    })
}

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::{Ingress, Regime};

    use super::*;

    #[test]
    fn ingress_is_compared_with_the_load_point_that_differs_in_nothing_else() {
        let from_pod = LoadPoint::new("pod", Regime::Saturated);
        let more_connections = LoadPoint {
            connections: Some(7),
            ..LoadPoint::new("more", Regime::Saturated)
        };
        let outside = LoadPoint {
            ingress: Some(Ingress::Tls),
            ..LoadPoint::new("outside", Regime::Saturated)
        };
        let points = [more_connections, outside.clone(), from_pod.clone()];
        assert_eq!(same_from_pod(&points, &outside), Some(&from_pod));
        assert_eq!(same_from_pod(&points, &from_pod), None);
        assert_eq!(same_from_pod(&points[..2], &outside), None);
    }
}
