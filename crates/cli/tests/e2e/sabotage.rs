//! Variants that are broken on purpose: the right probe detects each, and the others are still measured.

use std::path::PathBuf;

use serde_json::Value;

use crate::outcome::{
    assert_excluded_by, assert_failure_is_stored, assert_not_excluded, assert_taken, variant_of,
};
use crate::specs::{SATURATED, run_arguments, spec, variant};
use crate::support::{
    ISTIO_PROXY, LINKERD_PROXY, PATIENCE, Running, Scratch, ZTUNNEL, alone, beside_others, envoy,
    given, meshtax, records,
};

/// A way to break a variant, and the probes that must fail, each with values that its observation contains.
type Broken = (
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

const IMPOSTOR: &str = "spiffe://cluster.local/ns/default/sa/impostor";

/// Nothing reaches the application at all.
const PERMITTED: &[(&str, &[&str])] = &[("permitted-request", &[])];
const NO_ENCRYPTION: Broken = ("no-encryption", &[("canary", &[]), ("handshake", &[])]);
/// The client's proxy rejects such a server, so no request succeeds.
const WRONG_SERVER: Broken = (
    "wrong-server-identity",
    &[("permitted-request", &[]), ("server-identity", &[IMPOSTOR])],
);
const WRONG_CLIENT: Broken = ("wrong-client-identity", &[("client-identity", &[IMPOSTOR])]);
/// The policy names the client, so the permitted request is rejected as well.
const WRONG_CLIENT_OF_POLICY: Broken = (
    "wrong-client-identity",
    &[("permitted-request", &[]), ("client-identity", &[])],
);
const NO_HTTP_POLICY: Broken = (
    "no-policy",
    &[
        ("forbidden-method", &["POST", "HTTP"]),
        ("forbidden-path", &["/forbidden", "HTTP"]),
    ],
);
const NO_CLIENT_REDIRECT: Broken = ("no-client-redirect", PERMITTED);
/// The client's proxy sends TLS to the application itself.
const NO_SERVER_REDIRECT: Broken = (
    "no-server-redirect",
    &[("permitted-request", &[]), ("server-identity", &[])],
);
const OUTSIDER_ACCEPTED: &[(&str, &[&str])] = &[("plaintext-outsider", &["HTTP 200"])];
const NO_REDIRECT: Broken = (
    "no-redirect",
    &[
        ("plaintext-outsider", &["HTTP 200"]),
        ("canary", &[]),
        ("handshake", &[]),
    ],
);
const NO_PROXY: Broken = ("no-proxy", PERMITTED);

/// Each sabotage must fail the probe that sees its cause, not only readiness.
/// Variants that never become ready come first, so that the other proxies start meanwhile.
const OF_MTLS: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    NO_SERVER_REDIRECT,
    WRONG_SERVER,
    NO_ENCRYPTION,
    WRONG_CLIENT,
    NO_REDIRECT,
];

/// Nothing is encrypted, so only the proxies' own sockets show that they are in the path.
const OF_PLAINTEXT: &[Broken] = &[
    NO_PROXY,
    ("no-client-redirect", &[("in-the-path", &["15001"])]),
    ("no-server-redirect", &[("in-the-path", &["15006"])]),
    ("no-redirect", &[("in-the-path", &["15001", "15006"])]),
];

const OF_L4: &[Broken] = &[
    WRONG_CLIENT_OF_POLICY,
    NO_ENCRYPTION,
    NO_REDIRECT,
    (
        "no-policy",
        &[(
            "forbidden-identity",
            &["spiffe://cluster.local/ns/default/sa/intruder", "HTTP 200"],
        )],
    ),
];

const OF_L7: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    NO_SERVER_REDIRECT,
    WRONG_SERVER,
    WRONG_CLIENT_OF_POLICY,
    NO_ENCRYPTION,
    NO_REDIRECT,
    NO_HTTP_POLICY,
];

/// ztunnel. Pods without redirection are still reached over HBONE, on a port of its own; everybody else then
/// reaches them, too.
const OF_ZTUNNEL: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    WRONG_SERVER,
    WRONG_CLIENT,
    NO_ENCRYPTION,
    ("no-server-redirect", OUTSIDER_ACCEPTED),
    (
        "no-redirect",
        &[("in-the-path", &[]), ("canary", &[]), ("handshake", &[])],
    ),
];

/// ztunnel with a waypoint. The policy names the client, and the server permits the waypoint only.
const OF_WAYPOINT: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    ("wrong-server-identity", &[("waypoint-bypass", &[IMPOSTOR])]),
    WRONG_CLIENT_OF_POLICY,
    (
        "wrong-waypoint-identity",
        &[("permitted-request", &[]), ("server-identity", &[IMPOSTOR])],
    ),
    ("around-the-waypoint", &[("on-the-wire", &[])]),
    ("no-encryption", OUTSIDER_ACCEPTED),
    (
        "no-policy",
        &[
            ("forbidden-method", &["POST", "HTTP"]),
            ("forbidden-path", &["/forbidden", "HTTP"]),
            (
                "waypoint-bypass",
                &["spiffe://cluster.local/ns/default/sa/client"],
            ),
        ],
    ),
    ("no-redirect", &[("in-the-path", &[]), ("canary", &[])]),
];

const FORBIDDEN_ACCEPTED: &[(&str, &[&str])] = &[("forbidden-identity", &[])];

const OF_ZTUNNEL_L4: &[Broken] = &[WRONG_CLIENT_OF_POLICY, ("no-policy", FORBIDDEN_ACCEPTED)];

/// linkerd2-proxy. The lab cannot run one that does not encrypt: its own connections would go to the application's
/// port, could not be distinguished from those to be redirected, and would return to it.
const OF_LINKERD: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    ("no-encryption", PERMITTED),
    (
        "wrong-server-identity",
        &[("permitted-request", &[]), ("server-identity", &[])],
    ),
    (
        "wrong-client-identity",
        &[(
            "client-identity",
            &["impostor.default.serviceaccount.identity"],
        )],
    ),
    ("no-server-redirect", OUTSIDER_ACCEPTED),
    ("no-redirect", &[("in-the-path", &[]), ("canary", &[])]),
];

const OF_LINKERD_L4: &[Broken] = &[WRONG_CLIENT_OF_POLICY, ("no-policy", FORBIDDEN_ACCEPTED)];

const OF_LINKERD_L7: &[Broken] = &[NO_HTTP_POLICY];

/// One round, because a variant that fails in the first is not tried again: intervals are over its blocks.
const DESIGN: &str = "rounds: 1, blocks: 6, trial: 100ms, warmup: 20ms, time: 2m";

/// A run of one data plane and level: one variant per sabotage, and an intact one.
struct Case {
    data_plane: &'static str,
    level: &'static str,
    broken: &'static [Broken],
    out: PathBuf,
}

impl Case {
    fn id(kind: &str) -> String {
        format!("with-{kind}")
    }

    fn start(&self, scratch: &Scratch, programs: &[(&str, &PathBuf)]) -> Running {
        let kinds = self.broken.iter().map(|(kind, _)| *kind);
        let broken = kinds
            .clone()
            .map(|kind| variant(self.data_plane, self.level, &Self::id(kind)));
        let whole = variant(self.data_plane, self.level, "whole");
        let variants: Vec<String> = broken.chain([whole]).collect();
        let name = format!("{}-{}", self.data_plane, self.level);
        let path = scratch.write(&name, &spec(&name, &variants, SATURATED, DESIGN));
        // For the one round's slow start, and its blocks.
        let flags: Vec<String> = kinds
            .map(|kind| format!("--sabotage={}={kind}", Self::id(kind)))
            .collect();
        let mut arguments = run_arguments(&path, &self.out);
        arguments.extend(["--json", "--time", "30s"]);
        arguments.extend(flags.iter().map(String::as_str));
        let mut command = meshtax(scratch, &arguments);
        command.envs(programs.iter().copied());
        Running::start(command)
    }

    fn check(&self, run: Running) {
        let finished = run.finish(PATIENCE);
        let analysis = finished.expect_success_or_busy_cores().json();
        let at = format!("{} {}", self.data_plane, self.level);
        for (kind, probes) in self.broken {
            let id = Self::id(kind);
            let variant = variant_of(&analysis, &id);
            for (probe, values) in *probes {
                assert_excluded_by(variant, probe, values);
                self.check_wire(variant, probe);
            }
            assert_failure_is_stored(&self.out, &id);
            assert_eq!(variant["rounds_proven"], 0, "{at} {kind}");
        }
        for id in ["none", "none-again", "whole"] {
            let variant = variant_of(&analysis, id);
            assert_not_excluded(variant);
            // The runs of this test share the cores, which invalidates trials.
            assert_taken(&variant["points"][0], 6, &format!("{at} {id}"));
        }
        let measured = records(&self.out.join("trials.jsonl"));
        let ids = measured
            .iter()
            .filter_map(|t| t["trial"]["variant"].as_str());
        let broken: Vec<&str> = ids.filter(|id| id.starts_with("with-")).collect();
        assert!(
            broken.is_empty(),
            "{at}: measured although broken: {broken:?}"
        );
    }

    /// Failed canary and handshake probes must match what was captured.
    fn check_wire(&self, variant: &Value, probe: &str) {
        let wire = &variant["evidence"]["wire"];
        let at = format!("{} {}", self.data_plane, self.level);
        match probe {
            "canary" => {
                assert_eq!(wire["canary_to_server"], true, "{at}: {variant:#}");
                assert_eq!(wire["canary_to_client"], true, "{at}: {variant:#}");
            }
            "handshake" => {
                let handshakes = wire["handshakes"].as_array().map(Vec::len);
                assert_eq!(handshakes, Some(0), "{at}: {variant:#}");
            }
            _ => {}
        }
    }
}

/// Runs concurrently: most of the time is spent waiting for variants that never become ready.
fn run_all(
    cases: &[(&'static str, &'static str, &'static [Broken])],
    programs: &[(&str, &PathBuf)],
) {
    let scratch = Scratch::new();
    let cases: Vec<Case> = cases
        .iter()
        .map(|(data_plane, level, broken)| Case {
            data_plane,
            level,
            broken,
            out: scratch.path(&format!("run-{data_plane}-{level}")),
        })
        .collect();
    let runs: Vec<Running> = cases
        .iter()
        .map(|case| case.start(&scratch, programs))
        .collect();
    for (case, run) in cases.iter().zip(runs) {
        case.check(run);
    }
}

#[test]
fn every_sabotage_is_detected_by_its_probe() {
    let _shared = beside_others();
    let mut cases = vec![
        ("limit-l4", "plaintext", OF_PLAINTEXT),
        ("limit-mtls", "mtls", OF_MTLS),
    ];
    if envoy().is_some() {
        cases.extend([
            ("envoy-sidecar", "plaintext", OF_PLAINTEXT),
            ("envoy-sidecar", "mtls", OF_MTLS),
            ("envoy-sidecar", "l4", OF_L4),
            ("envoy-sidecar", "l7", OF_L7),
            ("envoy-sidecar-tcp", "l4", OF_L4),
        ]);
    }
    run_all(&cases, &[]);
}

#[test]
fn every_sabotage_of_ztunnel_is_detected_by_its_probe() {
    let _shared = beside_others();
    let Some(path) = given(ZTUNNEL, "sabotage of ztunnel") else {
        return;
    };
    let cases = [
        ("ztunnel", "mtls", OF_ZTUNNEL),
        ("ztunnel", "l4", OF_ZTUNNEL_L4),
        ("ztunnel-dedicated", "mtls", OF_ZTUNNEL),
        ("ztunnel-dedicated", "l4", OF_ZTUNNEL_L4),
    ];
    run_all(&cases, &[(ZTUNNEL, &path)]);
}

#[test]
fn every_sabotage_of_a_waypoint_is_detected_by_its_probe() {
    // Three proxies in a row get ready in their time only with the cores to themselves.
    let _alone = alone();
    let Some(path) = given(ZTUNNEL, "sabotage of a waypoint") else {
        return;
    };
    if envoy().is_none() {
        return;
    }
    let cases = [
        ("ztunnel-waypoint", "l7", OF_WAYPOINT),
        ("ztunnel-waypoint-sandwich", "l7", OF_WAYPOINT),
    ];
    run_all(&cases, &[(ZTUNNEL, &path)]);
}

#[test]
fn every_sabotage_of_istios_own_envoy_is_detected_by_its_probe() {
    let _shared = beside_others();
    let Some(path) = given(ISTIO_PROXY, "sabotage of Istio's own Envoy") else {
        return;
    };
    let cases = [
        ("istio-sidecar", "plaintext", OF_PLAINTEXT),
        ("istio-sidecar", "mtls", OF_MTLS),
        ("istio-sidecar", "l4", OF_L4),
        ("istio-sidecar", "l7", OF_L7),
    ];
    run_all(&cases, &[(ISTIO_PROXY, &path)]);
}

#[test]
fn every_sabotage_of_linkerd_is_detected_by_its_probe() {
    let _shared = beside_others();
    let Some(path) = given(LINKERD_PROXY, "sabotage of linkerd2-proxy") else {
        return;
    };
    let cases = [
        ("linkerd", "mtls", OF_LINKERD),
        ("linkerd", "l4", OF_LINKERD_L4),
        ("linkerd", "l7", OF_LINKERD_L7),
    ];
    run_all(&cases, &[(LINKERD_PROXY, &path)]);
}

/// Ways to send only the load around the proxies.
const AROUND: [&str; 2] = ["load-around-proxies", "load-around-busy-proxies"];

/// Data planes and levels whose proxies are sent the load, and those that are not; one of each is not captured. Not beside
/// other tests: the busy processes run at the lowest priority, and must get CPU within a trial.
fn check_load_around(planes: &[(&str, &str)], programs: &[(&str, &PathBuf)]) {
    const LOAD: &str = "  - steady: {rate: 300}\n";
    const DESIGN: &str = "rounds: 1, blocks: 1, trial: 200ms, warmup: 50ms, time: 2s";
    let scratch = Scratch::new();
    let kinds = [AROUND[0], AROUND[1], "no-capture", "whole"];
    let all = || {
        planes
            .iter()
            .flat_map(|plane| kinds.iter().map(move |kind| (plane, *kind)))
    };
    let id = |(plane, level): &(&str, &str), kind| format!("{plane}-{level}-{kind}");
    let variants: Vec<String> = all()
        .map(|(plane, kind)| variant(plane.0, plane.1, &id(plane, kind)))
        .collect();
    let path = scratch.write("around.yaml", &spec("around", &variants, LOAD, DESIGN));
    let out = scratch.path("around");
    let flags: Vec<String> = all()
        .filter(|(_, kind)| *kind != "whole")
        .map(|(plane, kind)| format!("--sabotage={}={kind}", id(plane, kind)))
        .collect();
    let mut arguments = run_arguments(&path, &out);
    arguments.push("--json");
    arguments.extend(flags.iter().map(String::as_str));
    let mut command = meshtax(&scratch, &arguments);
    command.envs(programs.iter().copied());
    let finished = Running::start(command).finish(PATIENCE);
    finished.expect_completed();
    let (analysis, trials) = (finished.json(), records(&out.join("trials.jsonl")));
    for plane in planes {
        let uncaptured = variant_of(&analysis, &id(plane, "no-capture"));
        assert_excluded_by(uncaptured, "on-the-wire", &[]);
        let whole = id(plane, "whole");
        assert_not_excluded(variant_of(&analysis, &whole));
        assert_eq!(lost_evidence(&trials, &whole), [""; 0], "{whole}");
        // The minimal proxy counts nothing.
        let counts = !plane.0.starts_with("limit");
        for kind in AROUND {
            let id = id(plane, kind);
            let variant = variant_of(&analysis, &id);
            // Its probes pass.
            assert_not_excluded(variant);
            let point = &variant["points"][0];
            assert_eq!(point["valid"], 0, "{id}: {point:#}");
            assert!(
                point["invalid"]["evidence-lost"].as_u64() > Some(0),
                "{id}: {point:#}"
            );
            let lost = lost_evidence(&trials, &id);
            let counted = counts.then_some("bypassed-requests");
            for evidence in ["bypassed-connections"].into_iter().chain(counted) {
                assert!(lost.iter().any(|id| id == evidence), "{id}: {lost:?}");
            }
            // Busy proxies do not look idle.
            let is_idle = lost.iter().any(|id| id == "idle-proxy");
            assert!(kind == AROUND[0] || !is_idle, "{id}: {lost:?}");
        }
    }
}

/// The ids of the evidence that the trials of a variant contradict.
fn lost_evidence(trials: &[Value], id: &str) -> Vec<String> {
    let of_variant = trials.iter().filter(|t| t["trial"]["variant"] == id);
    let outcomes: Vec<&Value> = of_variant.map(|trial| &trial["outcome"]).collect();
    assert!(!outcomes.is_empty(), "no trial of {id}");
    let lost = outcomes
        .into_iter()
        .filter_map(|outcome| outcome["lost_evidence"].as_array());
    let ids = lost.flatten().filter_map(|lost| lost["id"].as_str());
    ids.map(str::to_owned).collect()
}

#[test]
fn load_that_bypasses_the_proxies_is_detected_in_its_trials() {
    let _alone = alone();
    let mut planes = vec![("limit-mtls", "mtls")];
    if envoy().is_some() {
        planes.extend([("envoy-sidecar", "mtls"), ("envoy-sidecar-tcp", "mtls")]);
    }
    check_load_around(&planes, &[]);
}

#[test]
fn load_that_bypasses_ztunnel_is_detected_in_its_trials() {
    let _alone = alone();
    let Some(path) = given(ZTUNNEL, "a load around ztunnel") else {
        return;
    };
    let mut planes = vec![("ztunnel", "mtls"), ("ztunnel-dedicated", "l4")];
    if envoy().is_some() {
        planes.push(("ztunnel-waypoint", "l7"));
    }
    check_load_around(&planes, &[(ZTUNNEL, &path)]);
}

#[test]
fn load_that_bypasses_istios_own_envoy_is_detected_in_its_trials() {
    let _alone = alone();
    let Some(path) = given(ISTIO_PROXY, "a load around Istio's own Envoy") else {
        return;
    };
    let planes = [("istio-sidecar", "mtls"), ("istio-sidecar", "l7")];
    check_load_around(&planes, &[(ISTIO_PROXY, &path)]);
}

#[test]
fn load_that_bypasses_linkerd_is_detected_in_its_trials() {
    let _alone = alone();
    let Some(path) = given(LINKERD_PROXY, "a load around linkerd2-proxy") else {
        return;
    };
    let planes = [("linkerd", "mtls"), ("linkerd", "l7")];
    check_load_around(&planes, &[(LINKERD_PROXY, &path)]);
}

#[test]
fn unknown_sabotage_is_rejected() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    for (sabotage, named) in [
        ("nobody=no-proxy", "no variant is called nobody"),
        ("limit-mtls=no-idea", "no-idea"),
        ("limit-mtls", "VARIANT=KIND"),
    ] {
        let finished = crate::support::finish(meshtax(&scratch, &["run", "--sabotage", sabotage]));
        finished.expect_code(2);
        assert!(finished.stderr.contains(named), "{}", finished.stderr);
    }
}
