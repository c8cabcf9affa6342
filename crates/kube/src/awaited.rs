//! Waits until pods run.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition,
};

use crate::cluster::Cluster;
use crate::error::{Awaited, ClusterError};
use crate::pods::{RunningPod, path, reach, statuses};

/// How long the steps of a pod's start may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// All of it, once there is a node: an image may have to be pulled.
    start: Duration,
    /// The scheduler's: resources that other pods hold may become free.
    schedule: Duration,
    /// Until the pods that are in the way have ended: their grace period is 30 s unless they have one of their own.
    preemption: Duration,
    /// Until a node has been added: a machine boots, and joins the cluster.
    new_node: Duration,
}

const LIMITS: Limits = Limits {
    start: Duration::from_secs(120),
    schedule: Duration::from_secs(15),
    preemption: Duration::from_secs(120),
    new_node: Duration::from_secs(600),
};

impl Limits {
    fn on_no_node(&self, awaited: Awaited) -> Duration {
        match awaited {
            Awaited::Nothing => self.schedule,
            Awaited::Preemption => self.preemption,
            Awaited::NewNode => self.new_node,
        }
    }
}

/// Waits until `count` pods with these labels run, and reaches their agents.
pub(crate) fn await_running(
    cluster: &Cluster,
    namespace: &str,
    labels: &str,
    count: usize,
    token: &str,
) -> Result<Vec<RunningPod>, ClusterError> {
    let pods = await_pods(cluster, (namespace, labels), count, LIMITS)?;
    let running = pods.iter().map(|pod| reach(cluster, namespace, pod, token));
    running.collect()
}

fn await_pods(
    cluster: &Cluster,
    (namespace, labels): (&str, &str),
    count: usize,
    limits: Limits,
) -> Result<Vec<Pod>, ClusterError> {
    const PAUSE: Duration = Duration::from_millis(150);
    let api = cluster.pods(namespace);
    let doing = format!("list pods in {namespace}");
    let now = Instant::now();
    let mut start = Start {
        cluster,
        namespace,
        count,
        limits,
        began: now,
        counts_from: now,
        asked: None,
    };
    loop {
        let pods = cluster.list(&api, &doing, labels)?;
        if let Some(running) = start.look_at(pods)? {
            return Ok(running);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The start of some pods.
struct Start<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    count: usize,
    limits: Limits,
    began: Instant,
    /// When the last of them was still waiting for a node that it may get.
    counts_from: Instant,
    /// When the events were last asked for what is under way, and what it was.
    asked: Option<(Instant, Awaited)>,
}

impl Start<'_> {
    /// The pods, once all of them run.
    fn look_at(&mut self, mut pods: Vec<Pod>) -> Result<Option<Vec<Pod>>, ClusterError> {
        // Those that are being removed have successors.
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        let (failed, pods): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(has_failed);
        if let Some(lost) = failed.iter().find(|pod| !is_replaced(pod)) {
            return Err(self.failure(lost));
        }
        self.check_scheduling(&pods)?;
        let mut pending = None;
        for pod in &pods {
            let state = not_running(pod, self.counts_from.elapsed());
            let state = state.map_err(|error| self.with_output(pod, error))?;
            pending = state.map(|state| (path(pod), state)).or(pending);
        }
        if pending.is_none() && pods.len() >= self.count {
            return Ok(Some(pods));
        }
        if self.counts_from.elapsed() <= self.limits.start {
            return Ok(None);
        }
        let (pod, state) = pending.unwrap_or_else(|| self.too_few(&pods, &failed));
        Err(ClusterError::NotReady {
            pod,
            state,
            waited: self.limits.start,
        })
    }

    fn too_few(&self, pods: &[Pod], failed: &[Pod]) -> (String, String) {
        let exist = format!("{} of {} pods exist", pods.len(), self.count);
        match failed.last() {
            None => (format!("{}/?", self.namespace), exist),
            Some(last) => {
                let (reason, message) = reason(last);
                (
                    path(last),
                    format!("{exist}, and it failed: {reason} {message}"),
                )
            }
        }
    }

    /// Fails if a pod is on no node, and nothing is under way that would give it one, or not in time.
    fn check_scheduling(&mut self, pods: &[Pod]) -> Result<(), ClusterError> {
        let on_none = |pod: &Pod| Some((path(pod), unschedulable(pod)?, pod.clone()));
        let Some((name, message, pod)) = pods.iter().find_map(on_none) else {
            return Ok(());
        };
        let waited = self.began.elapsed();
        if waited <= self.limits.schedule {
            return Ok(());
        }
        let awaited = self.awaited(&pod);
        if waited > self.limits.on_no_node(awaited) {
            return Err(ClusterError::Unschedulable {
                pod: name,
                message,
                waited,
                awaited,
            });
        }
        self.counts_from = Instant::now();
        Ok(())
    }

    /// What may give a pod its place.
    fn awaited(&mut self, pod: &Pod) -> Awaited {
        /// Events are read again after this.
        const FRESH: Duration = Duration::from_secs(3);
        if is_nominated(pod) {
            return Awaited::Preemption;
        }
        match self.asked {
            Some((at, awaited)) if at.elapsed() < FRESH => awaited,
            _ => {
                // Without events, only the scheduler says.
                let events = self.cluster.events(self.namespace).unwrap_or_default();
                let awaited = match is_node_on_its_way(pod, &events) {
                    true => Awaited::NewNode,
                    false => Awaited::Nothing,
                };
                self.asked = Some((Instant::now(), awaited));
                awaited
            }
        }
    }

    fn failure(&self, pod: &Pod) -> ClusterError {
        let (reason, message) = reason(pod);
        let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        ClusterError::PodFailed {
            pod: path(pod),
            reason,
            message,
            last_output: first.map_or_else(Vec::new, |of| self.last_output(pod, &of.name)),
        }
    }

    fn with_output(&self, pod: &Pod, error: ClusterError) -> ClusterError {
        match error {
            ClusterError::Ended {
                pod: path,
                container,
                state,
                ..
            } => ClusterError::Ended {
                last_output: self.last_output(pod, &container),
                pod: path,
                container,
                state,
            },
            other => other,
        }
    }

    fn last_output(&self, pod: &Pod, container: &str) -> Vec<String> {
        const LINES: usize = 5;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let mut log = self.cluster.log(self.namespace, name, container);
        log.split_off(log.len().saturating_sub(LINES))
    }
}

/// Whether the pod as a whole has failed. If a container ended, that container is the reason.
fn has_failed(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Failed") && (!reason(pod).0.is_empty() || statuses(pod).is_empty())
}

/// Whether a controller creates another pod for it.
fn is_replaced(pod: &Pod) -> bool {
    const REPLACING: [&str; 4] = [
        "DaemonSet",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    ];
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && REPLACING.contains(&owner.kind.as_str()))
}

/// The kubelet's reason and message of a pod.
fn reason(pod: &Pod) -> (String, String) {
    let status = pod.status.clone().unwrap_or_default();
    let (reason, message) = (status.reason, status.message);
    (reason.unwrap_or_default(), message.unwrap_or_default())
}

/// What the pod waits for; `None`: all its containers run.
fn not_running(pod: &Pod, waited: Duration) -> Result<Option<String>, ClusterError> {
    /// The kubelet's reasons that do not pass by waiting. `ErrImagePull` may: it is tried again.
    const HOPELESS: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];
    /// Its reason while it pauses before another try: 10 s after the first.
    const BETWEEN_TRIES: &str = "ImagePullBackOff";
    const SECOND_TRY: Duration = Duration::from_secs(20);
    for container in statuses(pod) {
        let state = container.state.clone().unwrap_or_default();
        if let Some(terminated) = ended_for_good(pod, container) {
            let reason = terminated.reason.unwrap_or_default();
            let message = terminated.message.unwrap_or_default();
            let code = terminated.exit_code;
            let state = format!("{reason} (exit code {code}) {message}");
            return Err(ClusterError::Ended {
                pod: path(pod),
                container: container.name.clone(),
                state: state.trim_end().to_owned(),
                last_output: Vec::new(),
            });
        }
        if state.terminated.is_some() {
            return Ok(Some(format!("{} is started again", container.name)));
        }
        if let Some(waiting) = state.waiting {
            let reason = waiting.reason.unwrap_or_default();
            let message = waiting.message.unwrap_or_default();
            let is_given_up = reason == BETWEEN_TRIES && waited > SECOND_TRY;
            if is_given_up || HOPELESS.contains(&reason.as_str()) {
                return Err(ClusterError::Image {
                    pod: path(pod),
                    reason,
                    message,
                });
            }
            return Ok(Some(format!("{}: {reason} {message}", container.name)));
        }
    }
    let status = pod.status.clone().unwrap_or_default();
    let expected = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let has_address = status.pod_ip.is_some_and(|ip| !ip.is_empty());
    if statuses(pod).len() == expected && has_address {
        return Ok(None);
    }
    let conditions = status.conditions.unwrap_or_default().into_iter();
    let unmet = conditions.filter(|c| c.status != "True");
    let messages: Vec<String> = unmet.filter_map(|c| c.message).collect();
    Ok(Some(match messages.is_empty() {
        true => status.phase.unwrap_or_default(),
        false => messages.join("; "),
    }))
}

/// How a container ended that is not started again, or ends again and again.
fn ended_for_good(pod: &Pod, container: &ContainerStatus) -> Option<ContainerStateTerminated> {
    /// The kubelet's reason where a container ended soon after its last start.
    const REPEATEDLY: &str = "CrashLoopBackOff";
    let state = container.state.clone().unwrap_or_default();
    let policy = pod.spec.as_ref()?.restart_policy.as_deref();
    let waits_for = state.waiting.and_then(|waiting| waiting.reason);
    match state.terminated {
        Some(terminated) if policy == Some("Never") => Some(terminated),
        _ if waits_for.as_deref() == Some(REPEATEDLY) => container.last_state.clone()?.terminated,
        _ => None,
    }
}

/// Whether the scheduler has chosen a node on which it removes other pods for this one.
fn is_nominated(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let node = status.and_then(|status| status.nominated_node_name.as_deref());
    node.is_some_and(|node| !node.is_empty())
}

/// Whether an autoscaler is adding a node for this pod.
fn is_node_on_its_way(pod: &Pod, events: &[Event]) -> bool {
    /// The reasons of the cluster autoscaler and of Karpenter.
    const ADDING: [&str; 2] = ["TriggeredScaleUp", "Nominated"];
    let of_pod = events
        .iter()
        .filter(|event| event.involved_object.uid == pod.metadata.uid);
    let mut reasons = of_pod.filter_map(|event| event.reason.as_deref());
    pod.metadata.uid.is_some() && reasons.any(|reason| ADDING.contains(&reason))
}

/// The scheduler's reason why the pod is on no node.
fn unschedulable(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let is_it = |c: &&PodCondition| {
        c.type_ == "PodScheduled" && c.reason.as_deref() == Some("Unschedulable")
    };
    conditions.iter().find(is_it)?.message.clone()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api::{Answer, FakeApi};
    use crate::pods::tests::pod;

    /// What a new pod waits for.
    fn waits_for(pod: &Pod) -> Result<Option<String>, ClusterError> {
        not_running(pod, Duration::ZERO)
    }

    #[test]
    fn running_pod_waits_for_nothing_and_ended_container_is_an_error() {
        assert_eq!(waits_for(&pod(|_| {})).unwrap(), None);
        let state = |state: Value| {
            pod(|p| {
                p["status"]["containerStatuses"][0]["state"] = state.clone();
            })
        };
        let creating = state(json!({"waiting": {"reason": "ContainerCreating"}}));
        let awaited = waits_for(&creating).unwrap().unwrap();
        assert!(awaited.contains("ContainerCreating"));
        let pulling = state(json!({"waiting": {"reason": "ImagePullBackOff", "message": "m"}}));
        assert!(waits_for(&pulling).unwrap().is_some(), "it is tried again");
        let error = not_running(&pulling, Duration::from_secs(21)).unwrap_err();
        assert!(matches!(error, ClusterError::Image { .. }));
        let ended = state(json!({"terminated": {"exitCode": 3, "reason": "Error"}}));
        let error = waits_for(&ended).unwrap_err().to_string();
        assert!(error.contains("n/server") && error.contains("exit code 3"));
    }

    #[test]
    fn container_that_is_started_again_is_waited_for_unless_it_ends_repeatedly() {
        let ended = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
        let restarting = |state: Value| {
            pod(|p| {
                p["spec"]["restartPolicy"] = json!("Always");
                p["status"]["containerStatuses"][0]["state"] = state.clone();
                p["status"]["containerStatuses"][0]["lastState"] = ended.clone();
            })
        };
        let awaited = waits_for(&restarting(ended.clone())).unwrap();
        assert!(awaited.is_some_and(|text| text.contains("agent")));
        assert_eq!(
            waits_for(&restarting(json!({"running": {}}))).unwrap(),
            None
        );
        let repeatedly = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}});
        let error = waits_for(&restarting(repeatedly)).unwrap_err().to_string();
        assert!(error.contains("exit code 137"), "{error}");
    }

    #[test]
    fn pod_without_a_node_has_the_schedulers_reason() {
        let pending = pod(|p| {
            p["status"]["containerStatuses"] = json!([]);
            p["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "cordoned",
            }]);
        });
        assert_eq!(unschedulable(&pending).as_deref(), Some("cordoned"));
        assert_eq!(waits_for(&pending).unwrap().as_deref(), Some("cordoned"));
        assert_eq!(unschedulable(&pod(|_| {})), None);
    }

    const SHORT: Limits = Limits {
        start: Duration::from_millis(700),
        schedule: Duration::from_millis(300),
        preemption: Duration::from_millis(1200),
        new_node: Duration::from_secs(60),
    };

    /// Waits for one pod, which is these in turn, the last one for ever. `events`: of the namespace. Returns also how often
    /// it was looked at.
    fn awaited(
        limits: Limits,
        turns: &[Value],
        events: &[Value],
    ) -> (usize, Result<Vec<Pod>, ClusterError>) {
        let (turns, events) = (turns.to_vec(), events.to_vec());
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let api = FakeApi::start(move |asked, _| {
            if asked.path.contains("/events") {
                return Answer::list(&events);
            }
            if asked.path.contains("/log") {
                return Answer::ok(json!("last words"));
            }
            let turn = counted.fetch_add(1, Ordering::Relaxed);
            match &turns[turn.min(turns.len() - 1)] {
                Value::Array(pods) => Answer::list(pods),
                pod => Answer::list(std::slice::from_ref(pod)),
            }
        });
        let pods = await_pods(&api.cluster(), ("n", ""), 1, limits);
        (looks.load(Ordering::Relaxed), pods)
    }

    fn object(change: impl Fn(&mut Value)) -> Value {
        json!(pod(change))
    }

    fn running() -> Value {
        object(|_| {})
    }

    /// A pod on no node.
    fn homeless(change: impl Fn(&mut Value)) -> Value {
        object(|p| {
            p["metadata"]["uid"] = json!("u-1");
            p["status"] = json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient cpu.",
            }]});
            change(p);
        })
    }

    fn evicted(change: impl Fn(&mut Value)) -> Value {
        object(|p| {
            p["status"] = json!({
                "phase": "Failed", "reason": "Evicted", "message": "The node was low on memory.",
            });
            change(p);
        })
    }

    #[test]
    fn failed_pod_is_an_error_at_once_with_reason_and_last_output() {
        let (looks, pods) = awaited(LIMITS, &[evicted(|_| {})], &[]);
        assert_eq!(looks, 1);
        match pods.unwrap_err() {
            ClusterError::PodFailed {
                pod,
                reason,
                message,
                last_output,
            } => {
                assert_eq!((pod.as_str(), reason.as_str()), ("n/server", "Evicted"));
                assert_eq!(message, "The node was low on memory.");
                assert!(last_output[0].contains("last words"), "{last_output:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn failed_pod_of_a_controller_is_replaced_and_its_successor_is_awaited() {
        let of_set = evicted(|p| {
            p["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "node-agent", "uid": "d",
                "controller": true,
            }]);
        });
        let both = json!([of_set, running()]);
        let (_, pods) = awaited(LIMITS, &[of_set.clone(), both], &[]);
        assert_eq!(pods.unwrap().len(), 1);
        // None comes: the error says what became of the last one.
        let (_, pods) = awaited(SHORT, &[of_set], &[]);
        let error = pods.unwrap_err();
        assert!(matches!(error, ClusterError::NotReady { .. }), "{error:?}");
        assert!(error.to_string().contains("Evicted"), "{error}");
    }

    #[test]
    fn ended_container_is_an_error_with_its_last_output() {
        let ended = object(|p| {
            p["status"]["phase"] = json!("Failed");
            p["status"]["containerStatuses"][0]["state"] =
                json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        });
        let (_, pods) = awaited(LIMITS, &[ended], &[]);
        let error = pods.unwrap_err();
        assert!(matches!(error, ClusterError::Ended { .. }), "{error:?}");
        for text in ["container agent", "exit code 3", "last words"] {
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn pod_on_no_node_is_an_error_with_the_schedulers_reason_if_nothing_is_under_way() {
        let other = json!({
            "metadata": {}, "involvedObject": {"uid": "u-2"}, "reason": "TriggeredScaleUp",
        });
        let (_, pods) = awaited(SHORT, &[homeless(|_| {})], &[other]);
        match pods.unwrap_err() {
            ClusterError::Unschedulable {
                message,
                awaited,
                waited,
                ..
            } => {
                assert_eq!(awaited, Awaited::Nothing);
                assert!(message.contains("Insufficient cpu"), "{message}");
                assert!(waited > SHORT.schedule, "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pod_with_a_nominated_node_is_awaited_until_the_limit_of_preemption() {
        let nominated = homeless(|p| p["status"]["nominatedNodeName"] = json!("node1"));
        // Longer than the scheduler has.
        let mut turns = vec![nominated.clone(); 4];
        turns.push(running());
        let patient = Limits {
            preemption: Duration::from_secs(60),
            ..SHORT
        };
        let (_, pods) = awaited(patient, &turns, &[]);
        assert!(pods.is_ok(), "{pods:?}");
        match awaited(SHORT, &[nominated], &[]).1.unwrap_err() {
            ClusterError::Unschedulable {
                awaited, waited, ..
            } => {
                assert_eq!(awaited, Awaited::Preemption);
                assert!(waited > SHORT.preemption, "{waited:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn pod_for_which_a_node_is_added_is_awaited_and_may_then_take_its_whole_time_to_start() {
        let adding = json!({
            "metadata": {}, "involvedObject": {"uid": "u-1"}, "reason": "TriggeredScaleUp",
        });
        let starting = object(|p| {
            p["status"]["containerStatuses"][0]["state"] =
                json!({"waiting": {"reason": "ContainerCreating"}});
        });
        let limits = Limits {
            start: Duration::from_secs(2),
            ..SHORT
        };
        // Longer on no node than a pod may take to start.
        let mut turns = vec![homeless(|_| {}); 16];
        turns.extend([starting, running()]);
        let (_, pods) = awaited(limits, &turns, &[adding]);
        assert!(pods.is_ok(), "{pods:?}");
    }

    #[test]
    fn events_of_autoscalers_show_that_a_node_is_on_its_way_to_this_pod() {
        let of = |uid: &str, reason: &str| {
            let event = json!({"metadata": {}, "involvedObject": {"uid": uid}, "reason": reason});
            vec![serde_json::from_value::<Event>(event).unwrap()]
        };
        let pod: Pod = serde_json::from_value(homeless(|_| {})).unwrap();
        for reason in ["TriggeredScaleUp", "Nominated"] {
            assert!(is_node_on_its_way(&pod, &of("u-1", reason)), "{reason}");
            assert!(!is_node_on_its_way(&pod, &of("u-2", reason)), "{reason}");
        }
        assert!(!is_node_on_its_way(&pod, &of("u-1", "NotTriggerScaleUp")));
    }
}
