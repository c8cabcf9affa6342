//! Analyses that were never measured: figures of a plausible size, to look at reports with.

use std::collections::BTreeMap;

use meshtax_fixtures::environment::nodes;
use meshtax_model::FORMAT_VERSION;
use meshtax_model::analysis::{
    AddedCpu, Analysis, Arm, Attribution, AttributionPart, AttributionStep, Caveat, Comparison,
    ComponentCpu, ComponentMemory, CpuAccount, CurvePoint, Effect, Elsewhere, Estimate,
    ExclusionReason, GroundTruth, InstanceSpread, Interval, InvalidReason, Level, LinkPerRequest,
    LoadOutcome, Metric, Moment, NoLevel, NodeMemory, NoiseFacts, NoiseFloor, NotEstimable,
    Overload, Point, RoleMoment, RoleSeries, RoundLog, RunFacts, Shortfall, Speed, ThroughputLoss,
    Unresolved, Upkeep, VariantAnalysis, Verdict, WithElsewhere,
};
use meshtax_model::environment::{
    Artifact, Build, CpuSplit, Environment, Host, NodeRole, OwnBuild,
};
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::evidence::{
    Evidence, Features, Handshake, ProbeId, ProbeResult, Start, WireEvidence,
};
use meshtax_model::experiment::{
    Arrivals, Design, Experiment, LoadPoint, LoadPointId, Placement, PolicyLevel, Regime, Role,
    Variant, VariantId, Workers, Workload,
};
use meshtax_model::failure::{RunFailure, VariantFailureReason};
use meshtax_model::trial::ComponentRole;

const MIB: u64 = 1 << 20;

/// All of them, by name.
pub(crate) fn all() -> Vec<(&'static str, Analysis)> {
    vec![
        ("quick", quick()),
        ("interrupted", interrupted()),
        ("empty", empty()),
        ("sabotaged", sabotaged()),
        ("not_estimable", not_estimable()),
        ("overloaded", overloaded()),
        ("noisy", noisy()),
        ("calibrate", calibrate()),
        ("steady_only", steady_only()),
        ("rates", rates()),
        ("cluster", crate::clusters::cluster()),
        ("studied", crate::studies::livewyer()),
    ]
}

/// Figures of one variant, in µs, requests per second and ms per 1,000 requests.
struct Figures {
    id: &'static str,
    data_plane: &'static str,
    level: Option<PolicyLevel>,
    role: Role,
    p50_us: f64,
    p99_us: f64,
    per_s: f64,
    /// Client and server proxy, steady and saturated.
    steady_cpu: Option<(f64, f64)>,
    saturated_cpu: Option<(f64, f64)>,
    /// Anonymous, file, PSS.
    memory_mib: (u64, u64, u64),
}

const BASELINE: Figures = Figures {
    id: "none",
    data_plane: "none",
    level: None,
    role: Role::Baseline,
    p50_us: 50.3,
    p99_us: 148.0,
    per_s: 84_210.0,
    steady_cpu: None,
    saturated_cpu: None,
    memory_mib: (0, 0, 0),
};

fn figures() -> Vec<Figures> {
    vec![
        BASELINE,
        Figures {
            id: "none-again",
            role: Role::Control,
            p50_us: 50.6,
            p99_us: 151.0,
            per_s: 83_890.0,
            ..BASELINE
        },
        Figures {
            id: "limit-mtls",
            data_plane: "limit-mtls",
            level: Some(PolicyLevel::Mtls),
            role: Role::Candidate,
            p50_us: 131.0,
            p99_us: 302.0,
            per_s: 31_400.0,
            steady_cpu: Some((31.2, 33.9)),
            saturated_cpu: Some((9.4, 9.9)),
            memory_mib: (2, 3, 3),
        },
        Figures {
            id: "envoy-sidecar-mtls",
            data_plane: "envoy-sidecar",
            level: Some(PolicyLevel::Mtls),
            role: Role::Candidate,
            p50_us: 545.0,
            p99_us: 1_294.0,
            per_s: 6_620.0,
            steady_cpu: Some((193.0, 180.0)),
            saturated_cpu: Some((78.0, 80.0)),
            memory_mib: (14, 52, 41),
        },
        Figures {
            id: "envoy-sidecar-l7",
            data_plane: "envoy-sidecar",
            level: Some(PolicyLevel::L7),
            role: Role::Candidate,
            p50_us: 580.0,
            p99_us: 2_046.0,
            per_s: 6_480.0,
            steady_cpu: Some((197.0, 202.0)),
            saturated_cpu: Some((80.0, 88.0)),
            memory_mib: (15, 52, 42),
        },
    ]
}

/// The quick preset, run to its end on a machine with two cores.
pub(crate) fn quick() -> Analysis {
    let rows = figures();
    Analysis {
        format_version: FORMAT_VERSION,
        run: RunFacts {
            id: "quick-20261121-113000".to_owned(),
            meshtax_version: "0.1.0".to_owned(),
            started_unix_ms: 1_795_260_600_000,
            took_ns: 118_000_000_000,
            seed: 7,
            ending: Some(Ending::TimeUsed),
            resumptions: Vec::new(),
        },
        experiment: experiment(&rows),
        environment: environment(),
        confidence: 0.95,
        rounds: 6,
        blocks: 18,
        variants: rows.iter().map(variant).collect(),
        effects: rows.iter().skip(1).flat_map(effects).collect(),
        added_cpu: rows.iter().skip(1).flat_map(added_cpu).collect(),
        noise_floor: noise_floor(),
        round_log: (1..=6).map(round_log).collect(),
        events: Vec::new(),
        monitoring: None,
        comparisons: vec![comparison()],
        attribution: vec![attribution()],
        ingress: Vec::new(),
        decision: None,
        ground_truth: Vec::new(),
        noise: noise(),
        caveats: vec![Caveat::NoResourceSample { trials: 2 }],
    }
}

/// Two trials of the third round were disturbed.
fn round_log(round: u32) -> RoundLog {
    RoundLog {
        round,
        at_ns: u64::from(round) * 18_000_000_000 - 15_000_000_000,
        trials: 30,
        invalid: match round {
            3 => BTreeMap::from([(InvalidReason::Steal, 2)]),
            _ => BTreeMap::new(),
        },
        failed: Vec::new(),
    }
}

fn estimate(value: f64, low: f64, high: f64) -> Estimate {
    Estimate {
        value,
        interval: Some(Interval { low, high }),
    }
}

fn comparison() -> Comparison {
    Comparison {
        first: VariantId("envoy-sidecar-mtls".to_owned()),
        second: VariantId("envoy-sidecar-l7".to_owned()),
        load_point: steady(),
        metric: Metric::ResponseP50,
        relative: Some(estimate(0.03, -0.01, 0.07)),
        p_adjusted: Some(0.2),
        verdict: Verdict::Inconclusive,
        longer_to_tell: Some(1.8),
    }
}

fn attribution() -> Attribution {
    let step = |parts: &[AttributionPart], from: &str, to: &str, value: f64| AttributionStep {
        parts: parts.to_vec(),
        from: VariantId(from.to_owned()),
        to: VariantId(to.to_owned()),
        difference: Some(estimate(value, value - 4e3, value + 4e3)),
    };
    Attribution {
        data_plane: "envoy-sidecar".to_owned(),
        load_point: steady(),
        metric: Metric::ResponseMean,
        steps: vec![
            step(
                &[
                    AttributionPart::Hop,
                    AttributionPart::Proxying,
                    AttributionPart::Encryption,
                ],
                "none",
                "envoy-sidecar-mtls",
                480e3,
            ),
            step(
                &[
                    AttributionPart::IdentityPolicy,
                    AttributionPart::RequestPolicy,
                ],
                "envoy-sidecar-mtls",
                "envoy-sidecar-l7",
                22e3,
            ),
        ],
    }
}

fn noise() -> NoiseFacts {
    NoiseFacts {
        steal_share: Some(0.004),
        throttled_share: None,
        memory_pressure_share: Some(0.0),
        others: Some(vec![("backup".to_owned(), 0.03)]),
        speed: Some(Speed {
            median_ns: 2.1e6,
            spread: 0.12,
            drift: 0.02,
        }),
        frequency_khz: None,
        instances: vec![InstanceSpread {
            load_point: steady(),
            metric: Metric::ResponseP50,
            between: 0.012,
            within: Some(0.03),
        }],
    }
}

fn experiment(rows: &[Figures]) -> Experiment {
    Experiment {
        name: "quick".to_owned(),
        study: None,
        series: None,
        placement: Placement::TwoNodes,
        kubernetes: None,
        topology: Default::default(),
        saturation: None,
        workload: Workload {
            response_bytes: 1024,
            connections: 32,
            clients: 1,
        },
        workers: Workers::Equal(1),
        variants: rows
            .iter()
            .map(|f| Variant::new(VariantId(f.id.to_owned()), f.data_plane, f.level, f.role))
            .collect(),
        load_points: vec![
            LoadPoint::new(
                "steady",
                Regime::Steady {
                    rate_per_s: 1000.0,
                    arrivals: Arrivals::Poisson,
                },
            ),
            LoadPoint::new("saturated", Regime::Saturated),
        ],
        margins: Default::default(),
        design: Design {
            min_rounds: 6,
            blocks_per_round: 3,
            trial_ns: 500_000_000,
            warmup_ns: 100_000_000,
            time_limit_ns: 120_000_000_000,
            requests_per_trial: None,
            precision: None,
        },
    }
}

fn environment() -> Environment {
    Environment {
        engine: "local".to_owned(),
        machines: vec![Host {
            kernel: "6.18.5".to_owned(),
            cpu_model: "AMD EPYC 9B14".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            clock_source: "kvm-clock".to_owned(),
            virtual_machine: true,
            cpu_split: CpuSplit::Sampled,
            boot_id: Some("5b1e0c8e-6d5c-4c4e-9d5f-7e1f6f6a3d11".to_owned()),
        }],
        nodes: nodes(&[0], &[1], &[1]),
        kubernetes: None,
        cluster_run: None,
        rootless: true,
        meshtax: Some(OwnBuild {
            sha256: "0f".repeat(32),
            image: None,
        }),
        pods: Vec::new(),
        artifacts: vec![
            Artifact {
                data_plane: "limit-mtls".to_owned(),
                program: "meshtax".to_owned(),
                variants: vec![VariantId("limit-mtls".to_owned())],
                version: "0.1.0".to_owned(),
                sha256: "00".repeat(32),
                origin: "built in".to_owned(),
                workers: Some(1),
                build: Build {
                    profile: Some("release".to_owned()),
                    crypto: Some("ring".to_owned()),
                    ..Build::default()
                },
                note: None,
            },
            Artifact {
                data_plane: "envoy-sidecar".to_owned(),
                program: "envoy".to_owned(),
                variants: vec![
                    VariantId("envoy-sidecar-mtls".to_owned()),
                    VariantId("envoy-sidecar-l7".to_owned()),
                ],
                version: "1.40.0".to_owned(),
                sha256: "ab".repeat(32),
                origin: "cache".to_owned(),
                workers: Some(1),
                build: Build {
                    profile: Some("release".to_owned()),
                    lto: None,
                    allocator: Some("tcmalloc".to_owned()),
                    crypto: Some("BoringSSL".to_owned()),
                    compiler: Some("clang 18.1.8".to_owned()),
                },
                note: Some(
                    "upstream Envoy, without Istio's own filters: Istio's image may cost more"
                        .to_owned(),
                ),
            },
        ],
    }
}

fn steady() -> LoadPointId {
    LoadPointId("steady".to_owned())
}

fn saturated() -> LoadPointId {
    LoadPointId("saturated".to_owned())
}

fn variant(f: &Figures) -> VariantAnalysis {
    let memory = |role| ComponentMemory {
        role,
        anonymous_bytes: f.memory_mib.0 * MIB + MIB / 4,
        file_bytes: f.memory_mib.1 * MIB,
        pss_bytes: f.memory_mib.2 * MIB,
        peak_bytes: (f.memory_mib.0 + f.memory_mib.1 + 1) * MIB,
        settled_bytes: f.memory_mib.0 * MIB + MIB / 2,
        growth_bytes_per_s: Some(2_048.0),
    };
    VariantAnalysis {
        variant: VariantId(f.id.to_owned()),
        excluded: None,
        evidence: Some(evidence(f.id, f.level)),
        rounds_proven: 6,
        rounds_tried: 6,
        points: vec![steady_point(f), saturated_point(f)],
        memory: if f.role == Role::Candidate {
            vec![
                memory(ComponentRole::ClientProxy),
                memory(ComponentRole::ServerProxy),
            ]
        } else {
            Vec::new()
        },
        nodes: vec![NodeMemory {
            node: 1,
            role: NodeRole::Server,
            anonymous_bytes: 9 * MIB,
            file_bytes: 40 * MIB,
            proxy_file_bytes: Some(30 * MIB),
        }],
        timeline: (0..6)
            .flat_map(|at| [moment(f, at, steady()), moment(f, at, saturated())])
            .collect(),
        upkeep: Upkeep::default(),
    }
}

/// A trial of each round; the third does not count.
fn moment(f: &Figures, at: u32, load_point: LoadPointId) -> Moment {
    let is_steady = load_point == steady();
    let of_role = |role, cores: f64| RoleMoment {
        role,
        cores: cores + f64::from(at) * 0.002,
        anonymous_bytes: Some((f.memory_mib.0 + 1) * MIB + u64::from(at) * 4096),
    };
    let mut roles = vec![of_role(ComponentRole::App, 0.1)];
    if f.role == Role::Candidate {
        roles.push(of_role(ComponentRole::ClientProxy, 0.2));
        roles.push(of_role(ComponentRole::ServerProxy, 0.21));
    }
    Moment {
        at_ns: u64::from(at) * 19_000_000_000 + 2_000_000_000,
        load_point,
        valid: at != 2,
        response_p50_ns: is_steady.then_some(f.p50_us * 1e3 + f64::from(at) * 300.0),
        roles,
    }
}

/// From the p0 to the p99, rising through both figures of the variant.
fn curve(f: &Figures) -> Vec<CurvePoint> {
    (0..=24_u32)
        .map(|step| {
            let nines = f64::from(step) / 12.0;
            let share = nines / 2.0;
            let us = f.p50_us * (1.0 - share) + f.p99_us * share;
            CurvePoint {
                quantile: 1.0 - 0.1_f64.powf(nines),
                value_ns: us * 1e3,
                interval: None,
            }
        })
        .collect()
}

/// What a variant at three times its capacity does.
pub(crate) fn overload() -> Overload {
    Overload {
        trials: 17,
        of: 18,
        proxies_ended: 0,
        offered_per_s: 16_000.0,
        achieved_per_s: 5_312.4,
        errors: 0.0004,
        bad_status: 0.0,
        unanswered: 0.62,
    }
}

fn overwhelm(point: &mut Point) {
    point.short = BTreeMap::from([(Shortfall::Unanswered, 17)]);
    point.outcome = LoadOutcome::Overloaded(overload());
    for level in &mut point.levels {
        level.lower_bound = level.metric.quantile().is_some();
    }
}

/// One variant did not carry the steady load; another lost requests in a few trials.
pub(crate) fn overloaded() -> Analysis {
    let mut analysis = quick();
    for effect in &mut analysis.effects {
        let is_of_latency = effect.metric.quantile().is_some();
        match effect.variant.0.as_str() {
            "envoy-sidecar-l7" if effect.load_point == steady() => {
                effect.verdict = Verdict::Overloaded(overload());
                effect.lower_bound = is_of_latency;
            }
            "envoy-sidecar-mtls" => effect.lower_bound = is_of_latency,
            _ => {}
        }
    }
    for found in &mut analysis.variants {
        let variant = found.variant.clone();
        let point = &mut found.points[0];
        match variant.0.as_str() {
            "envoy-sidecar-l7" => {
                overwhelm(point);
                analysis.caveats.push(Caveat::Overloaded {
                    variant,
                    load_point: steady(),
                    overload: overload(),
                });
            }
            "envoy-sidecar-mtls" => {
                point.short = BTreeMap::from([(Shortfall::BadStatus, 1)]);
                for level in &mut point.levels {
                    level.lower_bound = level.metric.quantile().is_some();
                }
                analysis.caveats.push(Caveat::ShortTrials {
                    variant,
                    load_point: steady(),
                    trials: 1,
                    of: 18,
                    shortfalls: vec![Shortfall::BadStatus],
                });
            }
            _ => {}
        }
    }
    analysis
}

/// Several rates, of which the highest is too much for Envoy.
pub(crate) fn rates() -> Analysis {
    let mut analysis = quick();
    let steady = analysis.experiment.load_points[0].clone();
    for rate_per_s in [4_000.0, 16_000.0] {
        let mut point = steady.clone();
        point.id = LoadPointId(format!("steady-{rate_per_s}"));
        point.load = Regime::Steady {
            rate_per_s,
            arrivals: Arrivals::Poisson,
        };
        for found in &mut analysis.variants {
            let mut at = found.points[0].clone();
            at.load_point = point.id.clone();
            if rate_per_s > 10_000.0 && found.variant.0.starts_with("envoy") {
                overwhelm(&mut at);
            }
            found.points.push(at);
        }
        analysis.experiment.load_points.push(point);
    }
    analysis
}

fn level(metric: Metric, value: f64) -> Level {
    Level {
        metric,
        value: Some(value),
        interval: None,
        lower_bound: false,
        reason: None,
    }
}

fn few_above(metric: Metric, trials: u32) -> Unresolved {
    Unresolved {
        metric,
        trials,
        requests: u64::from(trials) + 4,
        needed: 10,
    }
}

fn unresolved(metric: Metric, trials: u32) -> NoLevel {
    NoLevel::Unresolved(few_above(metric, trials))
}

fn steady_point(f: &Figures) -> Point {
    let cpu = f
        .steady_cpu
        .map_or(30_000.0, |(c, s)| 34_000.0 + (c + s) * 1e3);
    Point {
        load_point: steady(),
        valid: 18,
        invalid: BTreeMap::new(),
        short: BTreeMap::new(),
        outcome: LoadOutcome::Carried,
        requests: 9_000,
        offered_per_s: 1000.0,
        achieved_per_s: 999.4,
        levels: vec![
            level(Metric::ResponseP50, f.p50_us * 1e3),
            level(Metric::ResponseP90, f.p50_us * 1.6e3),
            level(Metric::ResponseP99, f.p99_us * 1e3),
            Level {
                metric: Metric::ResponseP999,
                value: None,
                interval: None,
                lower_bound: false,
                reason: Some(unresolved(Metric::ResponseP999, 5)),
            },
            level(Metric::Throughput, 999.4),
            level(Metric::CpuPerRequest, cpu),
        ],
        curve: curve(f),
        percentiles: Vec::new(),
        first_byte: Vec::new(),
        longest_ns: None,
        usage: Vec::new(),
        send_lag_p99_ns: Some(4_200),
        proxy_connections: (f.role == Role::Candidate).then_some(32),
        series_ends_ns: vec![100_000_000, 200_000_000],
        series: vec![RoleSeries {
            role: ComponentRole::App,
            cores: vec![0.31, 0.29],
            anonymous_bytes: vec![3 * MIB, 3 * MIB],
        }],
        spread: None,
        injected_ns: None,
        cpu: Some(account(f.steady_cpu, 9_000, None)),
    }
}

fn saturated_point(f: &Figures) -> Point {
    let requests = (f.per_s * 9.0) as u64;
    let cpu = f
        .saturated_cpu
        .map_or(11_000.0, |(c, s)| 12_000.0 + (c + s) * 1e3);
    Point {
        load_point: saturated(),
        valid: 18,
        invalid: BTreeMap::new(),
        short: BTreeMap::new(),
        outcome: LoadOutcome::Carried,
        requests,
        offered_per_s: f.per_s,
        achieved_per_s: f.per_s,
        levels: vec![
            level(Metric::ResponseP50, 32.0 / f.per_s * 1e9),
            level(Metric::Throughput, f.per_s),
            level(Metric::CpuPerRequest, cpu),
        ],
        curve: Vec::new(),
        percentiles: Vec::new(),
        first_byte: Vec::new(),
        longest_ns: None,
        usage: Vec::new(),
        send_lag_p99_ns: None,
        proxy_connections: (f.role == Role::Candidate).then_some(32),
        series_ends_ns: vec![100_000_000, 200_000_000],
        series: vec![RoleSeries {
            role: ComponentRole::App,
            cores: vec![0.31, 0.29],
            anonymous_bytes: vec![3 * MIB, 3 * MIB],
        }],
        spread: None,
        injected_ns: None,
        cpu: Some(account(f.saturated_cpu, requests, Some(310_000_000))),
    }
}

fn account(proxies: Option<(f64, f64)>, requests: u64, unattributed_ns: Option<u64>) -> CpuAccount {
    let component = |role, ms_per_1k: f64| ComponentCpu {
        role,
        cpu_per_request_ns: ms_per_1k * 1e3,
        system_per_request_ns: Some(ms_per_1k * 600.0),
        switches_per_request: Some(0.7),
        share_of_busy: Some(0.2),
        throttled: None,
    };
    let mut components = vec![
        component(ComponentRole::Generator, 12.0),
        component(ComponentRole::App, 11.3),
        component(ComponentRole::Idle, 0.4),
        component(ComponentRole::Harness, 0.2),
    ];
    if let Some((client, server)) = proxies {
        components.push(component(ComponentRole::ClientProxy, client));
        components.push(component(ComponentRole::ServerProxy, server));
    }
    CpuAccount {
        busy_ns: 17_600_000_000,
        attributed_ns: 17_290_000_000,
        unattributed_ns,
        resolution_ns: 120_000_000,
        steal_ns: 0,
        interrupts_ns: 140_000_000,
        kernel_threads_ns: Some(30_000_000),
        bpf_ns: None,
        links: vec![LinkPerRequest {
            role: ComponentRole::App,
            received_bytes: 212.0,
            sent_bytes: 1_320.0,
        }],
        requests,
        components,
    }
}

fn passed(probe: ProbeId, seen: &str) -> ProbeResult {
    ProbeResult {
        probe,
        passed: true,
        seen: seen.to_owned(),
    }
}

fn evidence(id: &str, level: Option<PolicyLevel>) -> Evidence {
    let mut probes = vec![
        passed(ProbeId::PermittedRequest, "200 through the whole path"),
        passed(ProbeId::OnTheWire, "41 frames to the server, 38 back"),
    ];
    let encrypted = level.is_some();
    if encrypted {
        probes.push(passed(ProbeId::Canary, "not readable in either direction"));
        probes.push(passed(ProbeId::Handshake, "TLS 1.3 on port 15006"));
        probes.push(passed(
            ProbeId::ServerIdentity,
            "spiffe://cluster.local/ns/default/sa/server",
        ));
        probes.push(passed(
            ProbeId::ClientIdentity,
            "spiffe://cluster.local/ns/default/sa/client",
        ));
        probes.push(passed(ProbeId::ForeignCa, "refused in the handshake"));
        probes.push(passed(ProbeId::PlaintextOutsider, "connection reset"));
    } else {
        probes.push(passed(ProbeId::Canary, "readable in both directions"));
    }
    if level == Some(PolicyLevel::L7) {
        probes.push(passed(ProbeId::ForbiddenIdentity, "403"));
        probes.push(passed(ProbeId::ForbiddenMethod, "403 for DELETE"));
        probes.push(passed(ProbeId::ForbiddenPath, "403 for /admin"));
    }
    Evidence {
        variant: VariantId(id.to_owned()),
        round: 6,
        probes,
        wire: WireEvidence {
            frames_to_server: 41,
            frames_to_client: 38,
            bytes_to_server: 9_120,
            bytes_to_client: 44_800,
            ports: vec![if encrypted { 15006 } else { 8080 }],
            canary_to_server: !encrypted,
            canary_to_client: !encrypted,
            http_to_server: !encrypted,
            http_to_client: !encrypted,
            handshakes: if encrypted {
                vec![Handshake {
                    version: "TLS 1.3".to_owned(),
                    cipher: "TLS_AES_128_GCM_SHA256".to_owned(),
                    key_exchange_group: "X25519".to_owned(),
                }]
            } else {
                Vec::new()
            },
            connections: 4,
            dropped: 0,
        },
        features: encrypted.then(|| Features {
            added_headers: vec!["x-forwarded-proto".to_owned(), "x-request-id".to_owned()],
            keeps_client_address: false,
            counts_requests: Some(true),
            tries_again: Some(false),
            balances: None,
        }),
        start: Start::default(),
    }
}

/// `half_width` as a share of the difference, or of the level for the control.
fn effect(
    f: &Figures,
    point: LoadPointId,
    metric: Metric,
    (value, base): (f64, f64),
    half_width: f64,
) -> Effect {
    let difference = value - base;
    let control = f.role == Role::Control;
    let half = half_width * if control { base } else { difference.abs() };
    let estimate = |value: f64, half: f64| Estimate {
        value,
        interval: Some(Interval {
            low: value - half,
            high: value + half,
        }),
    };
    let primary = matches!(
        (metric, point == steady()),
        (Metric::ResponseP50 | Metric::ResponseP99, true) | (Metric::CpuPerRequest, _)
    );
    Effect {
        variant: VariantId(f.id.to_owned()),
        load_point: point,
        metric,
        difference: Some(estimate(difference, half)),
        relative: Some(estimate(difference / base, half / base)),
        lower_bound: false,
        p_value: Some(if control { 0.61 } else { 0.000_02 }),
        p_adjusted: primary.then_some(if control { 1.0 } else { 0.000_24 }),
        primary: primary && !control,
        verdict: if control {
            Verdict::Inconclusive
        } else {
            Verdict::Different
        },
        longer_to_tell: None,
        rounds: 6,
        blocks: 18,
    }
}

fn effects(f: &Figures) -> Vec<Effect> {
    let us = |f: f64| f * 1e3;
    let (cpu_steady, cpu_saturated) = (
        f.steady_cpu
            .map_or(30_300.0, |(c, s)| 34_000.0 + (c + s) * 1e3),
        f.saturated_cpu
            .map_or(11_050.0, |(c, s)| 12_000.0 + (c + s) * 1e3),
    );
    vec![
        effect(
            f,
            steady(),
            Metric::ResponseP50,
            (us(f.p50_us), us(50.45)),
            0.031,
        ),
        effect(
            f,
            steady(),
            Metric::ResponseP99,
            (us(f.p99_us), us(149.5)),
            0.14,
        ),
        effect(
            f,
            steady(),
            Metric::CpuPerRequest,
            (cpu_steady, 30_150.0),
            0.022,
        ),
        effect(
            f,
            saturated(),
            Metric::Throughput,
            (f.per_s, 84_050.0),
            0.011,
        ),
        effect(
            f,
            saturated(),
            Metric::CpuPerRequest,
            (cpu_saturated, 11_025.0),
            0.013,
        ),
        effect(
            f,
            steady(),
            Metric::AnonymousMemory,
            (
                (f.memory_mib.0 * 2 + 4) as f64 * MIB as f64,
                4.0 * MIB as f64,
            ),
            0.002,
        ),
    ]
}

/// Of the limit proxy, unattributed CPU grows by more than a tenth of the effect at saturation.
fn added_cpu(f: &Figures) -> Vec<AddedCpu> {
    let of = |point: LoadPointId, unattributed: f64| {
        let around = |value: f64| estimate(value, value - 300.0, value + 300.0);
        let all = effects(f).into_iter();
        let mut cpu = all.filter(|e| e.metric == Metric::CpuPerRequest && e.load_point == point);
        let effect = cpu.next().expect("an effect on CPU");
        let added = effect.difference.expect("a difference");
        let is_moved = unattributed > 0.1 * added.value && f.role == Role::Candidate;
        let share = |own: f64| added.mapped(|added| added / (own + added));
        let losses =
            [(1e6, false), (11_025.0, true)].map(|(app_cpu_ns, is_measured)| ThroughputLoss {
                app_cpu_ns,
                is_measured,
                share: share(app_cpu_ns),
            });
        AddedCpu {
            variant: effect.variant,
            unattributed: Some(around(unattributed)),
            generator: Some(around(-400.0)),
            with_elsewhere: is_moved.then(|| WithElsewhere {
                parts: vec![Elsewhere::Unattributed],
                added: added.mapped(|added| added + unattributed),
            }),
            losses: match point == saturated() && f.role == Role::Candidate {
                true => losses.to_vec(),
                false => Vec::new(),
            },
            load_point: point,
        }
    };
    vec![of(steady(), 500.0), of(saturated(), 2_600.0)]
}

fn noise_floor() -> Vec<NoiseFloor> {
    let floor = |load_point, metric, absolute: f64, relative: f64| NoiseFloor {
        load_point,
        metric,
        absolute: Some(absolute),
        relative: Some(relative),
    };
    vec![
        floor(steady(), Metric::ResponseP50, 1_720.0, 0.034),
        floor(steady(), Metric::ResponseP99, 22_400.0, 0.15),
        floor(steady(), Metric::CpuPerRequest, 813.0, 0.027),
        floor(saturated(), Metric::Throughput, 1_084.0, 0.0129),
        floor(saturated(), Metric::CpuPerRequest, 168.0, 0.0152),
    ]
}

/// Stopped in its second round: figures, but no intervals.
pub(crate) fn interrupted() -> Analysis {
    let mut analysis = quick();
    analysis.run.ending = Some(Ending::Interrupted);
    analysis.run.took_ns = 31_000_000_000;
    analysis.rounds = 2;
    analysis.blocks = 4;
    for effect in &mut analysis.effects {
        let both = [&mut effect.difference, &mut effect.relative];
        for estimate in both.into_iter().flatten() {
            estimate.interval = None;
        }
        effect.p_value = None;
        effect.p_adjusted = None;
        effect.rounds = 2;
        effect.blocks = 4;
        effect.verdict = Verdict::NotEstimable {
            reason: NotEstimable::FewBlocks { blocks: 4 },
        };
    }
    for floor in &mut analysis.noise_floor {
        floor.absolute = None;
        floor.relative = None;
    }
    for variant in &mut analysis.variants {
        variant.rounds_proven = 2;
        variant.rounds_tried = 2;
        for point in &mut variant.points {
            point.valid = 4;
            for level in &mut point.levels {
                if level.metric == Metric::ResponseP99 {
                    level.value = None;
                    level.reason = Some(unresolved(Metric::ResponseP99, 4));
                }
            }
        }
    }
    let resumptions = vec![Resumption {
        at_unix_ms: analysis.run.started_unix_ms + 3_600_000,
        after_round: 1,
        paused_ns: 3_570_000_000_000,
        restarted: true,
    }];
    analysis.run.resumptions = resumptions.clone();
    analysis.caveats = vec![
        Caveat::Resumed { resumptions },
        Caveat::FewRounds { rounds: 2 },
    ];
    analysis
}

/// Killed before the first trial.
pub(crate) fn empty() -> Analysis {
    let mut analysis = quick();
    analysis.run.ending = None;
    analysis.run.took_ns = 0;
    analysis.rounds = 0;
    analysis.blocks = 0;
    analysis.variants.clear();
    analysis.effects.clear();
    analysis.noise_floor.clear();
    analysis.comparisons.clear();
    analysis.attribution.clear();
    analysis.caveats.clear();
    analysis.environment.artifacts.clear();
    analysis
}

/// One variant is named `mtls` and does not encrypt: it is excluded.
pub(crate) fn sabotaged() -> Analysis {
    let mut analysis = quick();
    let id = VariantId("envoy-sidecar-mtls".to_owned());
    analysis.effects.retain(|e| e.variant != id);
    let broken = analysis.variants.iter_mut().find(|v| v.variant == id);
    let broken = broken.expect("the quick preset has it");

    broken.rounds_proven = 0;
    broken.rounds_tried = 1;
    broken.points.clear();
    broken.memory.clear();
    let evidence = broken.evidence.as_mut().expect("it has evidence");
    evidence.round = 1;
    evidence.probes.truncate(3);
    if let Some(canary) = evidence.probes.last_mut() {
        canary.passed = false;
        canary.seen = "the request's canary is readable on the wire, port 15006".to_owned();
    }
    evidence.wire.canary_to_server = true;
    evidence.wire.handshakes.clear();
    broken.excluded = Some(ExclusionReason::Failed {
        round: 1,
        failure: VariantFailureReason::NotProven {
            ended: Vec::new(),
            missing_proxies: Vec::new(),
            probes: evidence.failed_probes(),
        },
    });
    analysis
}

/// Too many invalid trials of one variant, and every other verdict once.
pub(crate) fn not_estimable() -> Analysis {
    let mut analysis = quick();
    for effect in &mut analysis.effects {
        match (effect.variant.0.as_str(), effect.metric) {
            ("envoy-sidecar-l7", _) => {
                effect.difference = None;
                effect.relative = None;
                effect.p_value = None;
                effect.p_adjusted = None;
                effect.verdict = Verdict::NotEstimable {
                    reason: NotEstimable::TooManyInvalid {
                        arm: Arm::Variant,
                        invalid: 7,
                        trials: 36,
                    },
                };
            }
            ("limit-mtls", Metric::ResponseP50) => effect.verdict = Verdict::Inconclusive,
            ("limit-mtls", Metric::ResponseP99) => {
                effect.difference = None;
                effect.relative = None;
                effect.verdict = Verdict::NotEstimable {
                    reason: NotEstimable::Unresolved {
                        arm: Arm::Variant,
                        unresolved: few_above(Metric::ResponseP99, 8),
                    },
                };
            }
            ("limit-mtls", Metric::Throughput) => effect.verdict = Verdict::Equivalent,
            _ => {}
        }
    }
    for variant in &mut analysis.variants {
        for point in &mut variant.points {
            if variant.variant.0 == "envoy-sidecar-l7" && point.load_point == steady() {
                point.valid = 11;
                point.invalid.insert(InvalidReason::LateBySteal, 5);
                point.invalid.insert(InvalidReason::GeneratorBound, 2);
                point.cpu = None;
            }
            for level in &mut point.levels {
                if variant.variant.0 == "limit-mtls" && level.metric == Metric::ResponseP99 {
                    level.value = None;
                    level.reason = Some(unresolved(Metric::ResponseP99, 8));
                }
            }
        }
    }
    analysis
}

/// The two baselines differ, and one variant is faster than none.
pub(crate) fn noisy() -> Analysis {
    let mut analysis = quick();
    for effect in &mut analysis.effects {
        if effect.variant.0 == "none-again" && effect.metric == Metric::ResponseP50 {
            effect.verdict = Verdict::Different;
            effect.p_value = Some(0.003);
            effect.difference = Some(Estimate {
                value: 6_100.0,
                interval: Some(Interval {
                    low: 3_900.0,
                    high: 8_300.0,
                }),
            });
        }
        if effect.variant.0 == "limit-mtls" && effect.metric == Metric::ResponseP50 {
            effect.difference = Some(Estimate {
                value: -12_400.0,
                interval: Some(Interval {
                    low: -15_000.0,
                    high: -9_800.0,
                }),
            });
            effect.relative = Some(Estimate {
                value: -0.246,
                interval: None,
            });
        }
    }
    analysis.caveats = vec![
        Caveat::BaselinesDiffer {
            metric: Metric::ResponseP50,
            load_point: steady(),
            change: 0.021,
        },
        Caveat::CheaperThanNoMesh {
            variant: VariantId("limit-mtls".to_owned()),
            metric: Metric::ResponseP50,
            load_point: steady(),
            change: -0.246,
        },
    ];
    analysis
}

/// A known delay as the only candidate.
pub(crate) fn calibrate() -> Analysis {
    use meshtax_model::experiment::Inject;
    let mut analysis = quick();
    analysis.experiment.name = "calibrate".to_owned();
    analysis.caveats.clear();
    let keep = |id: &VariantId| id.0.starts_with("none") || id.0 == "limit-mtls";
    analysis.experiment.variants.retain(|v| keep(&v.id));
    analysis.variants.retain(|v| keep(&v.variant));
    analysis.effects.retain(|e| keep(&e.variant));
    for variant in &mut analysis.experiment.variants {
        if variant.role == Role::Candidate {
            "none".clone_into(&mut variant.data_plane);
            variant.level = None;
            variant.inject = Some(Inject::DelayShareOfP50(0.15));
        }
    }
    for variant in &mut analysis.variants {
        variant.memory.clear();
        variant.evidence = Some(evidence(&variant.variant.0, None));
        for point in &mut variant.points {
            point.injected_ns = (variant.variant.0 == "limit-mtls").then_some(7_545.0);
            point.proxy_connections = None;
            if let Some(cpu) = &mut point.cpu {
                let proxies = [ComponentRole::ClientProxy, ComponentRole::ServerProxy];
                cpu.components.retain(|c| !proxies.contains(&c.role));
            }
        }
    }
    let delay = VariantId("delay-15".to_owned());
    analysis.comparisons.clear();
    analysis.attribution.clear();
    analysis.ground_truth = vec![GroundTruth {
        variant: delay.clone(),
        load_point: steady(),
        metric: Metric::ResponseP50,
        truth: 7_545.0,
        found: estimate(8_100.0, 6_900.0, 9_300.0),
        of_level: false,
    }];
    for id in analysis
        .experiment
        .variants
        .iter_mut()
        .map(|v| &mut v.id)
        .chain(analysis.variants.iter_mut().map(|v| &mut v.variant))
        .chain(analysis.effects.iter_mut().map(|e| &mut e.variant))
    {
        if id.0 == "limit-mtls" {
            *id = delay.clone();
        }
    }
    analysis
}

/// One steady load point, in milliseconds, nothing saturated; only one family of comparisons.
pub(crate) fn steady_only() -> Analysis {
    let mut analysis = quick();
    analysis.experiment.load_points.pop();
    analysis.effects.retain(|e| e.load_point == steady());
    analysis.noise_floor.retain(|f| f.load_point == steady());
    analysis.environment.nodes = nodes(&[0, 1], &[2, 3], &[4, 5, 6, 7]);
    for variant in &mut analysis.variants {
        variant.points.truncate(1);
        for point in &mut variant.points {
            for level in &mut point.levels {
                level.value = level.value.map(|v| v * 40.0);
            }
        }
    }
    analysis.run.ending = Some(Ending::Failed {
        failure: RunFailure::EngineLost,
        detail: "the lab's init died".to_owned(),
    });
    analysis
}
