//! What a cluster granted and reported, as a report has it. Nothing is inferred from it.

use meshtax_model::cluster::{ClusterEvent, ClusterRecord, PodGrant};
use meshtax_model::environment::Environment;

use crate::run_data::RunData;

/// The environment, with what the cluster granted: each grant once, also where a run was resumed.
pub(crate) fn environment(data: &RunData<'_>) -> Environment {
    let mut environment = data.environment.clone();
    let granted = data.cluster.iter().filter_map(|record| match record {
        ClusterRecord::Granted(grant) => Some(grant),
        ClusterRecord::Event(_) => None,
    });
    for grant in granted {
        if !environment.pods.contains(grant) {
            environment.pods.push(grant.clone());
        }
    }
    let order = |grant: &PodGrant| {
        let mut variants = data.experiment.variants.iter();
        let place = variants.position(|variant| variant.id == grant.variant);
        (place, grant.pod.clone())
    };
    environment.pods.sort_by_key(order);
    environment
}

/// All events in the order of time. One that repeats is listed once, with its last time and its count until then.
pub(crate) fn events(records: &[ClusterRecord]) -> Vec<ClusterEvent> {
    let mut events: Vec<ClusterEvent> = Vec::new();
    for record in records {
        let ClusterRecord::Event(event) = record else {
            continue;
        };
        let is_same = |earlier: &&mut ClusterEvent| {
            earlier.variant == event.variant
                && earlier.object == event.object
                && earlier.reason == event.reason
                && earlier.message == event.message
                && earlier.count < event.count
        };
        match events.iter_mut().find(is_same) {
            Some(earlier) => *earlier = event.clone(),
            None => events.push(event.clone()),
        }
    }
    events.sort_by_key(|event| event.at_unix_ms);
    events
}

#[cfg(test)]
mod tests {
    use meshtax_model::cluster::Severity;

    use super::*;

    fn event(at_unix_ms: u64, reason: &str, count: u32) -> ClusterRecord {
        ClusterRecord::Event(ClusterEvent {
            at_unix_ms,
            severity: Severity::Warning,
            variant: None,
            object: "Pod/server".into(),
            reason: reason.into(),
            message: String::new(),
            count,
        })
    }

    #[test]
    fn event_that_repeats_is_listed_once_at_its_last_time() {
        let records = [
            event(5, "Unhealthy", 1),
            event(4, "BackOff", 1),
            event(9, "Unhealthy", 3),
            event(7, "BackOff", 1),
        ];
        let listed: Vec<_> = events(&records)
            .into_iter()
            .map(|event| (event.at_unix_ms, event.reason, event.count))
            .collect();
        let expected = [(4, "BackOff", 1), (7, "BackOff", 1), (9, "Unhealthy", 3)];
        assert_eq!(
            listed,
            expected.map(|(at, reason, count)| (at, reason.to_owned(), count))
        );
    }
}
