//! What the cluster granted the pods of a run, and what it reported of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use meshtax_agent::remote::AgentClient;
use meshtax_model::cluster::{ClusterEvent, ClusterRecord, ContainerGrant, PodGrant, Severity};
use meshtax_model::experiment::VariantId;

use crate::pods::{RunningPod, endings};

/// Reasons that belong to the life of every pod.
const ROUTINE: [&str; 7] = [
    "Scheduled",
    "Pulled",
    "Created",
    "Started",
    "Killing",
    "SuccessfulCreate",
    "SuccessfulDelete",
];

/// What is on record already, and what is to be recorded next.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    granted: Vec<PodGrant>,
    /// How often each event was seen when it was recorded, by its id.
    counts: BTreeMap<String, i32>,
    new: Vec<ClusterRecord>,
}

impl Chronicle {
    /// What was not recorded yet.
    pub(crate) fn take(&mut self) -> Vec<ClusterRecord> {
        std::mem::take(&mut self.new)
    }

    /// Records what the pods of a variant were granted, unless it is the same as in an earlier round. `agent_of`: the agent
    /// of a pod's node.
    pub(crate) fn granted<'a>(
        &mut self,
        variant: &VariantId,
        pods: impl Iterator<Item = &'a RunningPod>,
        agent_of: impl Fn(&str) -> Option<&'a AgentClient>,
    ) {
        for pod in pods {
            let ids = pod.containers.iter().map(|container| container.id.clone());
            let asked = agent_of(&pod.node).map(|agent| agent.cpus(ids.collect()));
            // A figure of the report only: the trials show whether the agent is lost.
            let mut cpus = asked.and_then(Result::ok).unwrap_or_default();
            cpus.resize(pod.containers.len(), None);
            let named = pod.containers.iter().zip(cpus);
            let mut containers: Vec<ContainerGrant> = named
                .map(|(container, cpus)| ContainerGrant {
                    name: container.name.clone(),
                    cpus,
                })
                .collect();
            containers.sort_by(|a, b| a.name.cmp(&b.name));
            let grant = PodGrant {
                variant: variant.clone(),
                pod: pod.name.clone(),
                node: pod.node.clone(),
                qos: pod.qos.clone(),
                containers,
            };
            if !self.granted.contains(&grant) {
                self.granted.push(grant.clone());
                self.new.push(ClusterRecord::Granted(grant));
            }
        }
    }

    /// Records the events of a namespace that are new, or were seen again. `variant`: whose it is, if it is one's.
    pub(crate) fn events(&mut self, variant: Option<&VariantId>, events: &[Event]) {
        for event in events.iter().filter(|event| is_recorded(event, events)) {
            let count = count(event);
            let id = event.metadata.uid.clone().unwrap_or_default();
            let before = self.counts.insert(id, count);
            if before.is_none_or(|before| before < count) {
                self.new
                    .push(ClusterRecord::Event(record(variant, event, count)));
            }
        }
    }

    /// Records how containers of these pods have ended, before the pods are removed.
    pub(crate) fn endings(&mut self, variant: &VariantId, pods: &[Pod]) {
        for pod in pods {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            let name = of(&pod.metadata.name);
            for (container, ended) in endings(pod) {
                let at = ended.finished_at.as_ref().map(|time| time.0);
                let id = format!("{}/{container}/{at:?}", of(&pod.metadata.uid));
                if self.counts.insert(id, 1).is_some() {
                    continue;
                }
                let code = ended.exit_code;
                let more = ended.message.map(|text| format!(": {text}"));
                self.new.push(ClusterRecord::Event(ClusterEvent {
                    at_unix_ms: unix_ms(at),
                    severity: match code {
                        0 => Severity::Normal,
                        _ => Severity::Warning,
                    },
                    variant: Some(variant.clone()),
                    object: format!("Pod/{name}/{container}"),
                    reason: ended.reason.unwrap_or_else(|| "Ended".to_owned()),
                    message: shortened(format!("exit code {code}{}", more.unwrap_or_default())),
                    count: 1,
                }));
            }
        }
    }
}

/// Whether an event is worth recording: the routine creation and deletion of pods is not, nor is an image that was already present.
fn is_recorded(event: &Event, all: &[Event]) -> bool {
    let reason = event.reason.as_deref().unwrap_or_default();
    let is_warning = severity(event) == Severity::Warning;
    let was_pulled = || {
        let of_same = |other: &&Event| other.involved_object == event.involved_object;
        let mut same = all.iter().filter(of_same);
        reason == "Pulled" && same.any(|other| other.reason.as_deref() == Some("Pulling"))
    };
    is_warning || !ROUTINE.contains(&reason) || was_pulled()
}

fn severity(event: &Event) -> Severity {
    match event.type_.as_deref() {
        Some("Warning") => Severity::Warning,
        _ => Severity::Normal,
    }
}

fn count(event: &Event) -> i32 {
    let of_series = event.series.as_ref().and_then(|series| series.count);
    of_series.or(event.count).unwrap_or(1)
}

fn record(variant: Option<&VariantId>, event: &Event, count: i32) -> ClusterEvent {
    let series = event.series.as_ref();
    let of_series = series.and_then(|series| series.last_observed_time.as_ref());
    let times = [
        of_series.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0),
    ];
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let about = &event.involved_object;
    let mut object = format!("{}/{}", of(&about.kind), of(&about.name));
    if let Some(container) = about.field_path.as_deref().and_then(container) {
        object.push_str(&format!("/{container}"));
    }
    ClusterEvent {
        at_unix_ms: unix_ms(times.into_iter().flatten().next()),
        severity: severity(event),
        variant: variant.cloned(),
        object,
        reason: of(&event.reason),
        message: shortened(of(&event.message)),
        count: u32::try_from(count).unwrap_or(1).max(1),
    }
}

/// Of `spec.containers{NAME}`.
fn container(path: &str) -> Option<&str> {
    path.split_once('{')?.1.strip_suffix('}')
}

/// 0: it has no time.
fn unix_ms(time: Option<Timestamp>) -> u64 {
    let ms = time.map_or(0, Timestamp::as_millisecond);
    u64::try_from(ms).unwrap_or(0)
}

/// Events may quote whole logs.
fn shortened(text: String) -> String {
    const MOST: usize = 500;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(reason: &str, severity: &str, count: i32) -> Event {
        serde_json::from_value(json!({
            "metadata": {"uid": reason, "name": reason},
            "involvedObject": {"kind": "Pod", "name": "server", "uid": "u", "fieldPath": "spec.containers{app}"},
            "reason": reason, "type": severity, "message": "m", "count": count,
            "lastTimestamp": "2026-01-01T00:00:01Z",
        }))
        .unwrap()
    }

    fn recorded(chronicle: &mut Chronicle) -> Vec<(String, u32)> {
        let events = chronicle.take().into_iter().map(|record| match record {
            ClusterRecord::Event(event) => (event.reason, event.count),
            other => panic!("{other:?}"),
        });
        events.collect()
    }

    #[test]
    fn events_are_recorded_once_and_again_when_they_repeat() {
        let mut chronicle = Chronicle::default();
        let variant = VariantId("v".into());
        let all = [
            event("Unhealthy", "Warning", 1),
            event("Started", "Normal", 1),
        ];
        chronicle.events(Some(&variant), &all);
        let [ClusterRecord::Event(first)] = &chronicle.take()[..] else {
            panic!("one event");
        };
        assert_eq!(first.object, "Pod/server/app");
        assert_eq!(first.at_unix_ms, 1_767_225_601_000);
        assert_eq!(
            (first.severity, first.variant.as_ref()),
            (Severity::Warning, Some(&variant))
        );
        chronicle.events(Some(&variant), &all);
        assert!(chronicle.take().is_empty());
        chronicle.events(Some(&variant), &[event("Unhealthy", "Warning", 4)]);
        assert_eq!(recorded(&mut chronicle), [("Unhealthy".to_owned(), 4)]);
    }

    #[test]
    fn pulled_images_are_told_only_where_they_were_not_there() {
        let mut chronicle = Chronicle::default();
        chronicle.events(None, &[event("Pulled", "Normal", 1)]);
        assert!(chronicle.take().is_empty());
        let pulled = [event("Pulling", "Normal", 1), event("Pulled", "Normal", 2)];
        chronicle.events(None, &pulled);
        let reasons: Vec<String> = recorded(&mut chronicle).into_iter().map(|r| r.0).collect();
        assert_eq!(reasons, ["Pulling", "Pulled"]);
    }

    #[test]
    fn container_that_ran_out_of_memory_is_recorded_with_its_time_once() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "server", "uid": "u"},
            "spec": {"containers": []},
            "status": {"containerStatuses": [{
                "name": "proxy", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
                "state": {"terminated": {
                    "exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:01Z",
                }},
            }]},
        }))
        .unwrap();
        let mut chronicle = Chronicle::default();
        let variant = VariantId("v".into());
        chronicle.endings(&variant, std::slice::from_ref(&pod));
        assert_eq!(recorded(&mut chronicle), [("OOMKilled".to_owned(), 1)]);
        chronicle.endings(&variant, &[pod]);
        assert!(chronicle.take().is_empty());
    }
}
