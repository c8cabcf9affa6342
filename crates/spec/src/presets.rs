//! Specs that ship with meshtax.

/// A spec that ships with meshtax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name for `--preset`.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// The spec.
    pub yaml: &'static str,
}

/// The preset that compares two builds of a data plane.
pub const UPGRADE: &str = "upgrade";

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

static PRESETS: [Preset; 19] = [
    Preset {
        name: "quick",
        summary: "ztunnel, linkerd2-proxy and Envoy with mutual TLS, Envoy at l7, and a minimal proxy, against no mesh; 2 minutes",
        yaml: include_str!("../presets/quick.yaml"),
    },
    Preset {
        name: "ladder",
        summary: "the cost of each step: a hop, parsing, encryption, policy (minimal proxies and Envoy); 4 minutes",
        yaml: include_str!("../presets/ladder.yaml"),
    },
    Preset {
        name: "floor",
        summary: "what any user-space proxy costs at least, with and without mutual TLS; on a cluster as well; 4 minutes",
        yaml: include_str!("../presets/floor.yaml"),
    },
    Preset {
        name: "data-planes",
        summary: "ztunnel, linkerd2-proxy and Envoy at each of their policy levels; 6 minutes",
        yaml: include_str!("../presets/data-planes.yaml"),
    },
    Preset {
        name: UPGRADE,
        summary: "two builds of one data plane, of --from and --to, and whether the new one is slower; 3 minutes",
        yaml: include_str!("../presets/upgrade.yaml"),
    },
    Preset {
        name: "rates",
        summary: "latency against offered rate, and the rate at which each variant saturates; 3 minutes",
        yaml: include_str!("../presets/rates.yaml"),
    },
    Preset {
        name: "new-connections",
        summary: "the cost of a connection: persistent ones against a new one for each request; 2 minutes",
        yaml: include_str!("../presets/new-connections.yaml"),
    },
    Preset {
        name: "telemetry",
        summary: "the cost of access logs and traces in a sidecar; 3 minutes",
        yaml: include_str!("../presets/telemetry.yaml"),
    },
    Preset {
        name: "protocols",
        summary: "HTTP/1.1, HTTP/2, gRPC and TCP through each data plane; 4 minutes",
        yaml: include_str!("../presets/protocols.yaml"),
    },
    Preset {
        name: "payloads",
        summary: "responses of 0 bytes to 1 MiB: cost per request and per byte; 4 minutes",
        yaml: include_str!("../presets/payloads.yaml"),
    },
    Preset {
        name: "replicas",
        summary: "twenty replicas behind one service address: load balancing per request or per connection; 3 minutes",
        yaml: include_str!("../presets/replicas.yaml"),
    },
    Preset {
        name: "ingress",
        summary: "the cost of a gateway: the same requests from a pod, and through a gateway with and without TLS; 3 minutes",
        yaml: include_str!("../presets/ingress.yaml"),
    },
    Preset {
        name: "livewyer-pod",
        summary: "a published study's setup: bookinfo as slow as there, closed loops, a new connection for each request; 8 minutes",
        yaml: include_str!("../presets/livewyer-pod.yaml"),
    },
    Preset {
        name: "livewyer-ingress",
        summary: "the same study with clients outside the mesh: HTTPS to a gateway, a new TLS connection for each request; 8 minutes",
        yaml: include_str!("../presets/livewyer-ingress.yaml"),
    },
    Preset {
        name: "pods-vegeta",
        summary: "a published study's setup: 1, 10, 50 and 90 pods at 20 and 50 requests/s, one run each; 5 minutes",
        yaml: include_str!("../presets/pods-vegeta.yaml"),
    },
    Preset {
        name: "teastore-users",
        summary: "a published study's setup: a shop of seven services, 5 to 40 users of 5 requests/s each; 5 minutes",
        yaml: include_str!("../presets/teastore-users.yaml"),
    },
    Preset {
        name: "ambient-rates",
        summary: "a published study's setup: ambient at 160, 1,600 and 16,000 requests/s; 4 minutes",
        yaml: include_str!("../presets/ambient-rates.yaml"),
    },
    Preset {
        name: "noise",
        summary: "the baseline against itself: the smallest difference this machine resolves; 1 minute",
        yaml: include_str!("../presets/noise.yaml"),
    },
    Preset {
        name: "calibrate",
        summary: "known costs, to verify that they are recovered (see `meshtax calibrate`); 1 minute",
        yaml: include_str!("../presets/calibrate.yaml"),
    },
];

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::{Experiment, Ingress};
    use meshtax_model::saturation::Saturation;

    use super::*;
    use crate::design::Lengths;

    fn parsed(name: &str) -> Experiment {
        let preset = preset(name).unwrap();
        crate::parse(name, preset.yaml).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn every_preset_parses_and_has_its_own_name() {
        for preset in presets() {
            let all = crate::parse_all(preset.name, preset.yaml, Lengths::Short);
            let all = all.unwrap_or_else(|e| panic!("{e}"));
            for experiment in &all {
                assert!(experiment.name.starts_with(preset.name), "{}", preset.name);
            }
            assert!(all.len() > 1 || all[0].name == preset.name);
        }
    }

    #[test]
    fn faithful_lengths_are_those_of_the_study_and_fit_the_time_limit_once() {
        let faithful = |name: &str| {
            let preset = preset(name).unwrap();
            let all = crate::parse_all(name, preset.yaml, Lengths::Faithful);
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
        assert_eq!(livewyer.design.warmup_ns, SECOND);
        assert_eq!(faithful("pods-vegeta").len(), 4);
        assert_eq!(faithful("pods-vegeta")[3].design.trial_ns, 300 * SECOND);
        let teastore = &faithful("teastore-users")[0].design;
        assert_eq!(
            (teastore.warmup_ns, teastore.trial_ns),
            (180 * SECOND, 840 * SECOND)
        );
        let quick = preset("quick").unwrap();
        let rejected = crate::parse_all("quick", quick.yaml, Lengths::Faithful);
        let rejected = rejected.unwrap_err();
        assert!(rejected.message.contains("study's own"), "{rejected}");
        for (text, expected) in [
            ("faithful: {requests: 10, rounds: 2}\n", "in one round"),
            ("faithful: {trial: 2h}\n", "out of range"),
            ("faithful: {rounds: 5}\n", "the length of a trial"),
            ("faithful: {time: 5m}\n", "unknown key"),
        ] {
            let rejected = crate::parse("spec", text).unwrap_err();
            assert!(rejected.message.contains(expected), "{text}: {rejected}");
        }
    }

    /// A run for each number of pods, with an equal part of the time.
    #[test]
    fn each_of_several_topologies_is_an_experiment() {
        let preset = preset("pods-vegeta").unwrap();
        let all = crate::parse_all(preset.name, preset.yaml, Lengths::Short).unwrap();
        let pods: Vec<u32> = all.iter().map(|e| e.topology.pods()).collect();
        assert_eq!(pods, [1, 10, 50, 90]);
        assert_eq!(all[3].name, "pods-vegeta-replicas-90");
        let time_ns: u64 = all.iter().map(|e| e.design.time_limit_ns).sum();
        assert!(time_ns <= 300_000_000_000, "{time_ns}");
        let rejected = crate::parse(preset.name, preset.yaml).unwrap_err();
        assert!(rejected.message.contains("several runs"), "{rejected}");
        for (text, expected) in [
            ("topologies: [pair]\ntopology: pair\n", "already defines"),
            (
                "topologies: [pair]\nservice: {replicas: 2}\n",
                "already defines",
            ),
            ("topologies: [pair, pair]\n", "listed twice"),
            ("topologies: []\n", "empty list"),
            ("topologies: pair\n", "must be a list"),
            ("topologies: [pair, pear]\n", "unknown topology `pear`"),
        ] {
            let rejected = crate::parse_all("spec", text, Lengths::Short).unwrap_err();
            assert!(rejected.message.contains(expected), "{text}: {rejected}");
        }
    }

    #[test]
    fn the_quick_preset_is_unchanged() {
        insta::assert_debug_snapshot!(parsed("quick"));
    }

    #[test]
    fn the_livewyer_presets_saturate_where_the_study_did_and_use_its_connections() {
        for (name, ingress, rate_per_s) in [
            ("livewyer-pod", None, 157.4456),
            ("livewyer-ingress", Some(Ingress::Tls), 153.4179),
        ] {
            let preset = parsed(name);
            assert_eq!(preset.saturation, Some(Saturation::at(rate_per_s)));
            for point in &preset.load_points {
                assert_eq!(point.requests_per_connection, Some(1));
                assert_eq!(point.ingress, ingress);
            }
        }
    }

    #[test]
    fn the_noise_preset_has_only_the_baselines() {
        let noise = parsed("noise");
        let ids: Vec<&str> = noise.variants.iter().map(|v| v.id.0.as_str()).collect();
        assert_eq!(ids, ["none", "none-again"]);
        assert_eq!(noise.load_points.len(), 1);
        assert!(noise.load_points[0].is_steady());
    }
}
