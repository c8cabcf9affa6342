//! Variants that are broken on purpose: the evidence catches each, by the probe that should, and
//! the others are measured all the same.

use std::path::PathBuf;

use serde_json::Value;

use crate::specs::{SATURATED, run_arguments, spec, variant};
use crate::support::{
    LINKERD_PROXY, PATIENCE, Running, Scratch, ZTUNNEL, alone, envoy, given, meshtax, records,
    taken_away,
};

/// A way to break a variant, and the probes that must fail. Without a list the probe that fails is
/// the permitted request: nothing comes through at all.
type Broken = (&'static str, &'static [&'static str]);

const PERMITTED: &[&str] = &["permitted request: "];
const NO_ENCRYPTION: Broken = (
    "no-encryption",
    &[
        "canary: request and answer readable on the wire",
        "handshake: no ServerHello",
    ],
);
/// The client's proxy refuses such a server, and so the path never answers.
const WRONG_SERVER: Broken = (
    "wrong-server-identity",
    &[
        "permitted request: ",
        "server identity: the server is spiffe://cluster.local/ns/default/sa/impostor",
    ],
);
const WRONG_CLIENT: Broken = (
    "wrong-client-identity",
    &["client identity: the server's side saw spiffe://cluster.local/ns/default/sa/impostor"],
);
const NO_POLICY: Broken = (
    "no-policy",
    &[
        "forbidden method: POST was let through: HTTP",
        "forbidden path: /forbidden was let through: HTTP",
    ],
);
const NO_CLIENT_REDIRECT: Broken = ("no-client-redirect", PERMITTED);
/// The client's proxy speaks TLS to the application itself.
const NO_SERVER_REDIRECT: Broken = (
    "no-server-redirect",
    &[
        "permitted request: ",
        "server identity: a direct mutual-TLS request",
    ],
);
const NO_REDIRECT: Broken = (
    "no-redirect",
    &[
        "plaintext outsider: plain HTTP from a pod without a mesh was let through: HTTP 200",
        "canary: request and answer readable on the wire",
        "handshake: no ServerHello",
    ],
);
const NO_PROXY: Broken = ("no-proxy", PERMITTED);

/// What each refusal needs: none is left to the readiness alone where a probe sees the cause.
/// Those that never become ready stand first: meanwhile the other proxies have started.
const OF_MTLS: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    NO_SERVER_REDIRECT,
    WRONG_SERVER,
    NO_ENCRYPTION,
    WRONG_CLIENT,
    NO_REDIRECT,
];

/// Nothing is encrypted, so only the proxies' own sockets tell that they are in the path.
const OF_PLAINTEXT: &[Broken] = &[
    NO_PROXY,
    (
        "no-client-redirect",
        &[
            "in the path: the client's proxy holds no connection at port 15001: traffic goes around it",
        ],
    ),
    (
        "no-server-redirect",
        &[
            "in the path: the server's proxy holds no connection at port 15006: traffic goes around it",
        ],
    ),
    (
        "no-redirect",
        &[
            "the client's proxy holds no connection",
            "the server's proxy holds no connection",
        ],
    ),
];

const OF_L4: &[Broken] = &[
    // The policy names the client, so that the permitted request is refused as well.
    (
        "wrong-client-identity",
        &["permitted request: ", "client identity: "],
    ),
    NO_ENCRYPTION,
    NO_REDIRECT,
    (
        "no-policy",
        &[
            "forbidden identity: spiffe://cluster.local/ns/default/sa/intruder was let through: HTTP 200",
        ],
    ),
];

const OF_L7: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    NO_SERVER_REDIRECT,
    WRONG_SERVER,
    // The policy names the client, so that the permitted request is refused as well.
    (
        "wrong-client-identity",
        &["permitted request: ", "client identity: "],
    ),
    NO_ENCRYPTION,
    NO_REDIRECT,
    NO_POLICY,
];

/// Of ztunnel. Pods without redirection are still reached over HBONE, which goes to a port of its own:
/// what shows then is that everybody else reaches them, too.
const OF_ZTUNNEL: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    WRONG_SERVER,
    WRONG_CLIENT,
    NO_ENCRYPTION,
    (
        "no-server-redirect",
        &["plaintext outsider: plain HTTP from a pod without a mesh was let through: HTTP 200"],
    ),
    (
        "no-redirect",
        &[
            "in the path: the client's proxy holds no connection",
            "canary: request and answer readable on the wire",
            "handshake: no ServerHello",
        ],
    ),
];

/// Of ztunnel with a waypoint. The policy names the client, and the server lets in the waypoint only.
const OF_WAYPOINT: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    (
        "wrong-server-identity",
        &["around the waypoint: the server is spiffe://cluster.local/ns/default/sa/impostor"],
    ),
    (
        "wrong-client-identity",
        &["permitted request: ", "client identity: "],
    ),
    (
        "wrong-waypoint-identity",
        &[
            "permitted request: ",
            "server identity: the server is spiffe://cluster.local/ns/default/sa/impostor",
        ],
    ),
    (
        "around-the-waypoint",
        &["connections went around the waypoint"],
    ),
    (
        "no-encryption",
        &["plaintext outsider: plain HTTP from a pod without a mesh was let through: HTTP 200"],
    ),
    (
        "no-policy",
        &[
            "forbidden method: POST was let through: HTTP",
            "forbidden path: /forbidden was let through: HTTP",
            "around the waypoint: spiffe://cluster.local/ns/default/sa/client, straight to the server was let",
        ],
    ),
    (
        "no-redirect",
        &[
            "in the path: the client's proxy holds no connection",
            "canary: request and answer readable on the wire",
        ],
    ),
];

const FORBIDDEN_LET_IN: &[&str] = &["forbidden identity: "];

const OF_ZTUNNEL_L4: &[Broken] = &[
    (
        "wrong-client-identity",
        &["permitted request: ", "client identity: "],
    ),
    ("no-policy", FORBIDDEN_LET_IN),
];

/// Of linkerd2-proxy. One that does not encrypt cannot be had in the lab: its own connections, which go
/// to the application's port then, cannot be told from those to be redirected, and come back to it.
const OF_LINKERD: &[Broken] = &[
    NO_PROXY,
    NO_CLIENT_REDIRECT,
    ("no-encryption", PERMITTED),
    (
        "wrong-server-identity",
        &["permitted request: ", "server identity: "],
    ),
    (
        "wrong-client-identity",
        &["client identity: the server's side saw impostor.default.serviceaccount.identity"],
    ),
    (
        "no-server-redirect",
        &["plaintext outsider: plain HTTP from a pod without a mesh was let through: HTTP 200"],
    ),
    (
        "no-redirect",
        &[
            "in the path: the client's proxy holds no connection",
            "canary: request and answer readable on the wire",
        ],
    ),
];

const OF_LINKERD_L4: &[Broken] = &[
    (
        "wrong-client-identity",
        &["permitted request: ", "client identity: "],
    ),
    ("no-policy", FORBIDDEN_LET_IN),
];

const OF_LINKERD_L7: &[Broken] = &[(
    "no-policy",
    &[
        "forbidden method: POST was let through: HTTP",
        "forbidden path: /forbidden was let through: HTTP",
    ],
)];

/// One round, since a variant that failed in the first is not tried again: its blocks are what
/// the intervals rest on.
const DESIGN: &str = "rounds: 1, blocks: 6, trial: 100ms, warmup: 20ms, time: 2m";

/// A run of one data plane and level: broken in all these ways, and whole.
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
        // Measuring ends after the one round; only its slow start takes time.
        let flags: Vec<String> = kinds
            .map(|kind| format!("--sabotage={}={kind}", Self::id(kind)))
            .collect();
        let mut arguments = run_arguments(&path, &self.out);
        arguments.extend(["--json", "--time", "70s"]);
        arguments.extend(flags.iter().map(String::as_str));
        let mut command = meshtax(scratch, &arguments);
        command.envs(programs.iter().copied());
        Running::start(command)
    }

    fn check(&self, run: Running) {
        let finished = run.finish(PATIENCE);
        let analysis = finished.expect_success_or_company().json();
        let at = format!("{} {}", self.data_plane, self.level);
        for (kind, probes) in self.broken {
            let id = Self::id(kind);
            let left_out = of(&analysis, &id)["left_out"].as_str().unwrap_or_default();
            for probe in *probes {
                assert!(
                    left_out.contains(probe),
                    "{at} {kind}: no {probe:?} in: {left_out}"
                );
            }
            let announced = finished
                .stderr
                .contains(&format!("{id} cannot be measured"));
            assert!(announced, "{at} {kind}: {}", finished.stderr);
            assert_eq!(of(&analysis, &id)["rounds_proven"], 0, "{at} {kind}");
        }
        for id in ["none", "none-again", "whole"] {
            let variant = of(&analysis, id);
            assert_eq!(variant["left_out"], Value::Null, "{at} {id}");
            // The runs of this test share the cores, for which alone a trial may not count.
            let point = &variant["points"][0];
            let company = &point["invalid"]["another program used its cores"];
            let good = point["valid"].as_u64().unwrap_or(0)
                + company.as_u64().unwrap_or(0)
                + taken_away(point);
            assert!(good >= 6, "{at} {id}: {point:#}");
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
}

fn of<'a>(analysis: &'a Value, variant: &str) -> &'a Value {
    let variants = analysis["variants"].as_array().expect("variants");
    let found = variants.iter().find(|v| v["variant"] == variant);
    found.unwrap_or_else(|| panic!("no {variant} in {variants:#?}"))
}

/// The runs go on at once: most of the time they wait for what never becomes ready.
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
fn every_sabotage_is_caught_by_its_probe() {
    let _alone = alone();
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
fn every_sabotage_of_ztunnel_is_caught_by_its_probe() {
    let _alone = alone();
    let Some(path) = given(ZTUNNEL, "ztunnel, broken on purpose") else {
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
fn every_sabotage_of_a_waypoint_is_caught_by_its_probe() {
    let _alone = alone();
    let Some(path) = given(ZTUNNEL, "a waypoint between ztunnels, broken on purpose") else {
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
fn every_sabotage_of_linkerd_is_caught_by_its_probe() {
    let _alone = alone();
    let Some(path) = given(LINKERD_PROXY, "linkerd2-proxy, broken on purpose") else {
        return;
    };
    let cases = [
        ("linkerd", "mtls", OF_LINKERD),
        ("linkerd", "l4", OF_LINKERD_L4),
        ("linkerd", "l7", OF_LINKERD_L7),
    ];
    run_all(&cases, &[(LINKERD_PROXY, &path)]);
}

#[test]
fn a_sabotage_of_an_unknown_variant_or_kind_is_refused() {
    let _alone = alone();
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
