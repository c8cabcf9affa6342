//! Specs that ship with meshtax.

/// A spec that ships with meshtax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// What `--preset` takes.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// The spec, as a user could have written it.
    pub yaml: &'static str,
}

/// All presets, the default one first.
#[must_use]
pub fn presets() -> &'static [Preset] {
    &PRESETS
}

/// The preset of this name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|p| p.name == name)
}

static PRESETS: [Preset; 17] = [
    Preset {
        name: "quick",
        summary: "mutual TLS at its limit and an Envoy sidecar at mtls and l7, against no mesh; 2 minutes",
        yaml: include_str!("../presets/quick.yaml"),
    },
    Preset {
        name: "ladder",
        summary: "what each step costs: a hop, parsing, encryption, policy (minimal proxies and Envoy); 4 minutes",
        yaml: include_str!("../presets/ladder.yaml"),
    },
    Preset {
        name: "data-planes",
        summary: "ztunnel, linkerd2-proxy and Envoy at each level that they have; 6 minutes",
        yaml: include_str!("../presets/data-planes.yaml"),
    },
    Preset {
        name: "rates",
        summary: "latency over the offered rate, and where each variant ceases to keep up; 3 minutes",
        yaml: include_str!("../presets/rates.yaml"),
    },
    Preset {
        name: "new-connections",
        summary: "what a connection costs: kept ones against a new one for each request; 2 minutes",
        yaml: include_str!("../presets/new-connections.yaml"),
    },
    Preset {
        name: "telemetry",
        summary: "what access logs and traces cost a sidecar; 3 minutes",
        yaml: include_str!("../presets/telemetry.yaml"),
    },
    Preset {
        name: "protocols",
        summary: "HTTP/1.1, HTTP/2, gRPC and TCP through each data plane; 4 minutes",
        yaml: include_str!("../presets/protocols.yaml"),
    },
    Preset {
        name: "payloads",
        summary: "answers from nothing to a megabyte: cost by the request and by the byte; 4 minutes",
        yaml: include_str!("../presets/payloads.yaml"),
    },
    Preset {
        name: "replicas",
        summary: "twenty replicas behind one address: who balances requests, who connections; 3 minutes",
        yaml: include_str!("../presets/replicas.yaml"),
    },
    Preset {
        name: "ingress",
        summary: "the same requests from a pod and by a gateway, over TLS and not: what a gateway takes; 3 minutes",
        yaml: include_str!("../presets/ingress.yaml"),
    },
    Preset {
        name: "livewyer-pod",
        summary: "a study's set-up: bookinfo, closed loops, a new connection for each request; 4 minutes",
        yaml: include_str!("../presets/livewyer-pod.yaml"),
    },
    Preset {
        name: "livewyer-ingress",
        summary: "the same study's clients outside the mesh, by way of a gateway; 4 minutes",
        yaml: include_str!("../presets/livewyer-ingress.yaml"),
    },
    Preset {
        name: "pods-vegeta",
        summary: "a study's set-up: 1, 10, 50 and 90 pods at 20 and 50 requests/s, a run for each number; 5 minutes",
        yaml: include_str!("../presets/pods-vegeta.yaml"),
    },
    Preset {
        name: "teastore-users",
        summary: "a study's set-up: a shop of seven services, 5 to 40 users of 5 requests/s each; 5 minutes",
        yaml: include_str!("../presets/teastore-users.yaml"),
    },
    Preset {
        name: "ambient-rates",
        summary: "a study's set-up: ambient at 160, 1,600 and 16,000 requests/s; 4 minutes",
        yaml: include_str!("../presets/ambient-rates.yaml"),
    },
    Preset {
        name: "noise",
        summary: "the baseline against itself: what this machine can tell apart; 1 minute",
        yaml: include_str!("../presets/noise.yaml"),
    },
    Preset {
        name: "calibrate",
        summary: "known costs, to see that they are found again (`meshtax calibrate` says more of it); 1 minute",
        yaml: include_str!("../presets/calibrate.yaml"),
    },
];

#[cfg(test)]
pub(crate) mod tests {
    use meshtax_model::experiment::{Experiment, OptionKind, PolicyLevel};

    use super::*;
    use crate::{KnownDataPlane, Lengths};

    pub(crate) fn known() -> Vec<KnownDataPlane> {
        use PolicyLevel::{L4, L7, Mtls, Plaintext};
        vec![
            KnownDataPlane::new("none", []),
            KnownDataPlane::new("limit-l4", [Plaintext]),
            KnownDataPlane::new("limit-mtls", [Mtls]),
            KnownDataPlane::new("ztunnel", [Mtls, L4]).having_gateway(false),
            KnownDataPlane::new("ztunnel-dedicated", [Mtls, L4]),
            KnownDataPlane::new("ztunnel-waypoint", [L7]),
            KnownDataPlane::new("ztunnel-waypoint-sandwich", [L7]),
            KnownDataPlane::new("linkerd", [Mtls, L4, L7]),
            KnownDataPlane::new("envoy-sidecar", [Plaintext, Mtls, L4, L7]).with_options([
                OptionKind::Knows,
                OptionKind::Changes,
                OptionKind::AccessLog,
                OptionKind::Tracing,
            ]),
            KnownDataPlane::new("envoy-sidecar-tcp", [Plaintext, Mtls, L4]),
        ]
    }

    pub(crate) fn parsed(name: &str) -> Experiment {
        let preset = preset(name).unwrap();
        crate::parse(name, preset.yaml, &known()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn every_preset_parses_under_its_own_name() {
        for preset in presets() {
            let all = crate::parse_all(preset.name, preset.yaml, &known(), Lengths::Short);
            let all = all.unwrap_or_else(|e| panic!("{e}"));
            for experiment in &all {
                assert!(experiment.name.starts_with(preset.name), "{}", preset.name);
            }
            assert!(all.len() > 1 || all[0].name == preset.name);
        }
    }

    #[test]
    fn faithful_lengths_are_the_studies_and_fit_once() {
        let faithful = |name: &str| {
            let preset = preset(name).unwrap();
            let all = crate::parse_all(name, preset.yaml, &known(), Lengths::Faithful);
            all.unwrap_or_else(|e| panic!("{e}"))
        };
        const SECOND: u64 = 1_000_000_000;
        let ambient = &faithful("ambient-rates")[0];
        assert_eq!(
            (ambient.design.min_rounds, ambient.design.trial_ns),
            (5, 60 * SECOND)
        );
        let (block, limit) = (ambient.block_ns(), ambient.design.time_limit_ns);
        assert!((5 * block..6 * block).contains(&limit), "{block} {limit}");
        let livewyer = &faithful("livewyer-pod")[0];
        assert_eq!(livewyer.design.requests_per_trial, Some(300_000));
        assert_eq!(faithful("pods-vegeta").len(), 4);
        assert_eq!(faithful("pods-vegeta")[3].design.trial_ns, 300 * SECOND);
        let teastore = &faithful("teastore-users")[0].design;
        assert_eq!(
            (teastore.warmup_ns, teastore.trial_ns),
            (180 * SECOND, 840 * SECOND)
        );
        let quick = preset("quick").unwrap();
        let refused = crate::parse_all("quick", quick.yaml, &known(), Lengths::Faithful);
        let refused = refused.unwrap_err();
        assert!(refused.message.contains("study's own"), "{refused}");
        for (text, said) in [
            ("faithful: {requests: 10, rounds: 2}\n", "in one round"),
            ("faithful: {trial: 2h}\n", "out of range"),
            ("faithful: {rounds: 5}\n", "how long a trial is"),
            ("faithful: {time: 5m}\n", "unknown key"),
        ] {
            let refused = crate::parse("spec", text, &known()).unwrap_err();
            assert!(refused.message.contains(said), "{text}: {refused}");
        }
    }

    /// A run for each number of pods, with an equal part of the time.
    #[test]
    fn several_topologies_are_several_experiments() {
        let preset = preset("pods-vegeta").unwrap();
        let all = crate::parse_all(preset.name, preset.yaml, &known(), Lengths::Short).unwrap();
        let pods: Vec<u32> = all.iter().map(|e| e.service.replicas).collect();
        assert_eq!(pods, [1, 10, 50, 90]);
        assert_eq!(all[3].name, "pods-vegeta-replicas-90");
        let time_ns: u64 = all.iter().map(|e| e.design.time_limit_ns).sum();
        assert!(time_ns <= 300_000_000_000, "{time_ns}");
        let refused = crate::parse(preset.name, preset.yaml, &known()).unwrap_err();
        assert!(refused.message.contains("several runs"), "{refused}");
        for (text, said) in [
            ("topologies: [pair]\ntopology: pair\n", "says already"),
            (
                "topologies: [pair]\nservice: {replicas: 2}\n",
                "says already",
            ),
            ("topologies: [pair, pair]\n", "stands twice"),
            ("topologies: []\n", "empty list"),
            ("topologies: pair\n", "is a list"),
            ("topologies: [pair, pear]\n", "no topology is called `pear`"),
        ] {
            let refused = crate::parse_all("spec", text, &known(), Lengths::Short).unwrap_err();
            assert!(refused.message.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn quick_is_what_it_promises() {
        insta::assert_debug_snapshot!(parsed("quick"));
    }

    #[test]
    fn noise_is_the_baseline_against_itself() {
        let noise = parsed("noise");
        let ids: Vec<&str> = noise.variants.iter().map(|v| v.id.0.as_str()).collect();
        assert_eq!(ids, ["none", "none-again"]);
        assert_eq!(noise.load_points.len(), 1);
        assert!(noise.load_points[0].is_steady());
    }
}
