//! Reports of runs on a cluster: what it granted, what it reported, what monitoring recorded.

use std::collections::BTreeMap;

use meshtax_model::analysis::{Analysis, Caveat};
use meshtax_model::cluster::{ClusterEvent, ContainerGrant, PodGrant, Severity};
use meshtax_model::experiment::{Placement, VariantId};
use meshtax_model::monitoring::{Monitoring, MonitoringQuery, MonitoringSeries};
use meshtax_model::pods::{Passed, PodRole, PodSettings, PullSecret, QualityOfService, Quantities};

use crate::fixtures;

fn settings() -> PodSettings {
    let one_core = Quantities {
        cpu_millis: Some(1000),
        memory_bytes: Some(512 << 20),
    };
    let toleration = [("key".to_owned(), Passed::Text("bench".to_owned()))];
    PodSettings {
        requests: BTreeMap::new(),
        limits: PodRole::ALL.map(|role| (role, one_core)).into(),
        qos: Some(QualityOfService::Guaranteed),
        node_selector: [("pool".to_owned(), "bench".to_owned())].into(),
        affinity: None,
        tolerations: Some(Passed::List(vec![Passed::Map(toleration.into())])),
        topology_spread: None,
        priority_class: Some("bench-high".to_owned()),
        image_pull_secrets: vec![PullSecret {
            namespace: "default".to_owned(),
            name: "registry".to_owned(),
        }],
    }
}

fn grant(pod: &str, containers: &[(&str, Option<&[u32]>)]) -> PodGrant {
    let container = |(name, cpus): &(&str, Option<&[u32]>)| ContainerGrant {
        name: (*name).to_owned(),
        cpus: cpus.map(<[u32]>::to_vec),
    };
    PodGrant {
        variant: VariantId("limit-mtls".to_owned()),
        pod: pod.to_owned(),
        node: "node1".to_owned(),
        qos: "Guaranteed".to_owned(),
        containers: containers.iter().map(container).collect(),
    }
}

fn monitoring(from_unix_ms: u64) -> Monitoring {
    let query = |name: &str, unit: &str, series, problem: Option<&str>| MonitoringQuery {
        name: name.to_owned(),
        query: "sum(up)".to_owned(),
        unit: unit.to_owned(),
        series,
        omitted_series: 0,
        problem: problem.map(str::to_owned),
    };
    let series = |labels: &[(&str, &str)], values: &[f64]| {
        let labels = labels.iter();
        let times = (from_unix_ms..).step_by(15_000);
        MonitoringSeries {
            labels: labels
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            values: times.zip(values.iter().copied()).collect(),
        }
    };
    Monitoring {
        url: "http://prometheus.example:9090/".to_owned(),
        from_unix_ms,
        until_unix_ms: from_unix_ms + 118_000,
        step_ms: 15_000,
        queries: vec![
            query(
                "nodes CPU",
                "cores",
                vec![series(&[("instance", "node1")], &[0.5, 1.5])],
                None,
            ),
            query("proxies memory", "bytes", vec![series(&[], &[3.2e7])], None),
            query("control plane CPU", "cores", Vec::new(), None),
            query("own", "", Vec::new(), Some("bad_data: parse error")),
        ],
    }
}

/// A run on one node of a cluster, with settings of its pods.
pub(crate) fn cluster() -> Analysis {
    let mut analysis = fixtures::quick();
    let began = analysis.run.started_unix_ms;
    analysis.experiment.placement = Placement::OneNode;
    analysis.experiment.kubernetes = Some(settings());
    analysis.environment.engine = "kubernetes".to_owned();
    analysis.environment.kubernetes = Some("v1.34.4".to_owned());
    analysis.environment.pods = vec![
        grant("client", &[("agent", Some(&[2])), ("proxy", Some(&[3]))]),
        grant(
            "server",
            &[
                ("agent", Some(&[0, 1])),
                ("app", Some(&[0, 1])),
                ("proxy", None),
            ],
        ),
    ];
    let event = |after_ms, severity, variant: Option<&str>, reason: &str, count| ClusterEvent {
        at_unix_ms: began + after_ms,
        severity,
        variant: variant.map(|id| VariantId(id.to_owned())),
        object: "Pod/server/proxy".to_owned(),
        reason: reason.to_owned(),
        message: "what Kubernetes says".to_owned(),
        count,
    };
    analysis.events = vec![
        event(2_000, Severity::Normal, None, "Pulling", 1),
        event(
            61_000,
            Severity::Warning,
            Some("limit-mtls"),
            "OOMKilled",
            1,
        ),
        event(95_000, Severity::Warning, Some("limit-mtls"), "BackOff", 4),
    ];
    analysis.caveats.push(Caveat::ClusterWarnings {
        reasons: vec!["BackOff".to_owned(), "OOMKilled".to_owned()],
        events: 2,
    });
    analysis.monitoring = Some(monitoring(began));
    analysis
}

#[test]
fn page_has_what_the_cluster_granted_and_reported_with_times() {
    let page = meshtax_report::html(&cluster());
    for text in [
        "What the cluster granted",
        "Guaranteed",
        "Events on the cluster",
        "OOMKilled",
        "1 min 01 s",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let terminal = meshtax_report::TerminalOptions {
        width: 200,
        color: false,
    };
    let summary = meshtax_report::terminal(&cluster(), terminal);
    assert!(
        summary.contains("2 warnings about the run's pods (BackOff, OOMKilled)"),
        "{summary}"
    );
    assert!(
        summary.contains("client and services on one node"),
        "{summary}"
    );
}

#[test]
fn monitoring_is_context_with_its_source_and_its_gaps() {
    let page = meshtax_report::html(&cluster());
    for text in [
        "What monitoring recorded",
        "by prometheus.example:9090 over",
        "no figure of this report uses it",
        "nothing matched",
        "bad_data: parse error",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn series_that_are_not_stored_are_counted() {
    let mut analysis = cluster();
    let monitoring = analysis.monitoring.as_mut().expect("monitoring");
    monitoring.queries[0].omitted_series = 312;
    let page = meshtax_report::html(&analysis);
    assert!(page.contains("312 more series, which are not stored"));
    assert!(!meshtax_report::html(&cluster()).contains("more series"));
}

#[test]
fn settings_without_a_cluster_are_noted() {
    let mut analysis = cluster();
    analysis.environment.kubernetes = None;
    assert!(meshtax_report::markdown(&analysis).contains("had no effect here"));
    assert!(!meshtax_report::markdown(&cluster()).contains("had no effect here"));
}
