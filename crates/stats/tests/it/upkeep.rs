//! What variants take before their first request and between requests.

use meshtax_model::analysis::Estimate;
use meshtax_model::environment::Artifact;
use meshtax_model::experiment::{PolicyLevel, VariantId};
use meshtax_model::scaling::{Grows, Over};
use meshtax_model::trial::{ComponentRole, ComponentUsage, IdleProxies};
use meshtax_stats::scaling::{Growth, Scaled, ScalingTarget, scaling};

use crate::common::{Cost, Run, run};

const CANDIDATE: &str = "mesh";

/// Six rounds in which the mesh starts 100 ms after the baselines, which take 20 ms more in each round, and its proxies
/// use a hundredth of a core while others are measured.
fn recorded(push_ms: u64) -> Run {
    const MS: u64 = 1_000_000;
    let mesh = Cost {
        name: CANDIDATE,
        level: PolicyLevel::Mtls,
        delay_ns: 20_000.0,
        cpu_ns: 10_000.0,
    };
    let mut run = run(3, 6, 1, 0.01, &[mesh]);
    for seen in &mut run.evidence {
        let base = 20 * MS * u64::from(seen.round);
        let is_mesh = seen.variant.0 == CANDIDATE;
        seen.start.served_ns = Some(base + if is_mesh { 100 * MS } else { 0 });
        seen.start.pushed_ns = is_mesh.then_some(push_ms * MS);
    }
    let measured: Vec<String> = run
        .trials
        .iter()
        .map(|t| t.trial.variant.0.clone())
        .collect();
    for (sample, measured) in run.samples.iter_mut().zip(measured) {
        if measured != CANDIDATE {
            sample.idle_proxies = vec![IdleProxies {
                variant: VariantId(CANDIDATE.to_owned()),
                cpu_ns: sample.wall_ns() / 100,
            }];
        }
    }
    run
}

#[test]
fn start_up_is_compared_with_the_baselines_of_its_round() {
    let analysis = recorded(40).analyse();
    let found = |name: &str| {
        let mut all = analysis.variants.iter();
        all.find(|v| v.variant.0 == name)
            .expect("the variant")
            .upkeep
    };
    let mesh = found(CANDIDATE);
    let value = |estimate: Option<Estimate>| estimate.expect("an estimate").value;
    assert!((value(mesh.start_ns) - 170e6).abs() < 1.0, "{mesh:?}");
    assert!((value(mesh.added_start_ns) - 100e6).abs() < 1.0, "{mesh:?}");
    assert!((value(mesh.push_ns) - 40e6).abs() < 1.0, "{mesh:?}");
    assert!((value(mesh.idle_cores) - 0.01).abs() < 1e-6, "{mesh:?}");
    let wide = |estimate: Option<Estimate>| {
        let interval = estimate.and_then(|e| e.interval).expect("six rounds");
        interval.high - interval.low
    };
    // Rounds differ, and what is added in them does not.
    assert!(
        wide(mesh.start_ns) > 50e6 && wide(mesh.added_start_ns) < 1.0,
        "{mesh:?}"
    );
    let none = found("none");
    assert!(
        none.start_ns.is_some() && none.added_start_ns.is_none(),
        "{none:?}"
    );
    assert_eq!((none.idle_cores, none.push_ns), (None, None));
}

#[test]
fn unproven_or_unrecorded_starts_have_no_figure() {
    let mut run = recorded(40);
    for seen in &mut run.evidence {
        if seen.variant.0 == CANDIDATE {
            seen.probes[0].passed = false;
        }
    }
    run.samples.iter_mut().for_each(|s| s.idle_proxies.clear());
    let analysis = run.analyse();
    let mut all = analysis.variants.iter();
    let mesh = all
        .find(|v| v.variant.0 == CANDIDATE)
        .expect("the variant")
        .upkeep;
    assert!(mesh.is_empty(), "{mesh:?}");
}

#[test]
fn push_time_follows_a_law_over_extra_endpoints() {
    let runs: Vec<_> = [(1, 10), (100, 30), (1000, 210)]
        .map(|(at, push_ms)| (at, recorded(push_ms).analyse()))
        .into();
    let scaled: Vec<Scaled<'_>> = runs
        .iter()
        .map(|(at, analysis)| Scaled { at: *at, analysis })
        .collect();
    let laws = scaling(&Growth {
        over: Over::Endpoints,
        runs: &scaled,
        asked: Some(ScalingTarget::Number(500)),
        check: None,
    });
    let law = |grows| {
        laws.laws
            .iter()
            .find(|law| law.grows == grows)
            .expect("a law")
    };
    let push = law(Grows::PushTime);
    assert_eq!(push.points, [(1, 10e6), (100, 30e6), (1000, 210e6)]);
    let each = push.line.as_ref().expect("a line").each.value;
    assert!((each - 0.2e6).abs() < 1e3, "{each}");
    assert!(law(Grows::AddedStart).line.is_some());
}

/// The server's proxy has 4 MiB and one more for each client; the clients' own are as large as they like.
#[test]
fn memory_over_clients_is_that_of_the_servers_proxy() {
    const MIB: u64 = 1_048_576;
    let of_clients = |clients: u32| {
        let mut run = recorded(40);
        for sample in &mut run.samples {
            let proxies = sample.components.iter_mut();
            let mut servers = proxies.filter(|c| c.role == ComponentRole::ServerProxy);
            let Some(server) = servers.next() else {
                continue;
            };
            let own = ComponentUsage {
                role: ComponentRole::ClientProxy,
                ..server.clone()
            };
            if let Some(memory) = &mut server.memory {
                memory.anonymous_bytes += u64::from(clients) * MIB;
            }
            sample.components.extend((0..clients).map(|_| own.clone()));
        }
        (clients, run.analyse())
    };
    let runs = [1, 2, 6].map(of_clients);
    let scaled: Vec<Scaled<'_>> = runs
        .iter()
        .map(|(at, analysis)| Scaled { at: *at, analysis })
        .collect();
    let laws = scaling(&Growth {
        over: Over::Clients,
        runs: &scaled,
        asked: Some(ScalingTarget::Number(4)),
        check: None,
    });
    let grows: Vec<Grows> = laws.laws.iter().map(|law| law.grows).collect();
    assert_eq!(grows, [Grows::ServerProxyMemory, Grows::ServerProxyCpu]);
    let points = [(1, 5 * MIB), (2, 6 * MIB), (6, 10 * MIB)].map(|(n, bytes)| (n, bytes as f64));
    assert_eq!(laws.laws[0].points, points);
    assert_eq!(laws.laws[1].points.len(), 3);
}

#[test]
fn laws_have_each_build_that_their_candidates_ran_once() {
    let artifact = |variant: &str, version: &str| Artifact {
        program: "linkerd2-proxy".to_owned(),
        variants: vec![VariantId(variant.to_owned())],
        version: version.to_owned(),
        ..Artifact::default()
    };
    let with_version = |version: &str| {
        let mut run = recorded(40);
        let baseline = artifact("none", "of the baseline");
        run.environment.artifacts = vec![baseline, artifact(CANDIDATE, version)];
        run.analyse()
    };
    let runs = ["2.300.0", "2.300.0", "2.301.0"].map(with_version);
    let check = with_version("2.302.0");
    let scaled: Vec<Scaled<'_>> = (1..)
        .zip(&runs)
        .map(|(at, analysis)| Scaled { at, analysis })
        .collect();
    let laws = scaling(&Growth {
        over: Over::Clients,
        runs: &scaled,
        asked: None,
        check: Some(&check),
    });
    let versions: Vec<&str> = laws.programs.iter().map(|p| p.version.as_str()).collect();
    assert_eq!(versions, ["2.300.0", "2.301.0", "2.302.0"]);
}

/// Eight proxies of 4 MiB, on any node, and on each node a copy of their program of 1 MiB.
#[test]
fn memory_over_nodes_counts_program_pages_per_node() {
    const MIB: f64 = 1_048_576.0;
    let on_nodes = |nodes: u32| {
        let mut run = recorded(40);
        let server = run.environment.nodes[1].clone();
        run.environment.nodes.truncate(1);
        run.environment
            .nodes
            .extend((0..nodes).map(|_| server.clone()));
        for sample in &mut run.samples {
            for component in &mut sample.components {
                component.node = 1;
            }
            let proxy = |c: &&ComponentUsage| c.role == ComponentRole::ServerProxy;
            let Some(first) = sample.components.iter().find(proxy).cloned() else {
                continue;
            };
            let further = (1..8).map(|replica| ComponentUsage {
                cpu_ns: 0,
                node: 1 + replica % nodes,
                ..first.clone()
            });
            sample.components.extend(further);
        }
        (nodes, run.analyse())
    };
    let runs = [1, 2, 4].map(on_nodes);
    let scaled: Vec<Scaled<'_>> = runs
        .iter()
        .map(|(at, analysis)| Scaled { at: *at, analysis })
        .collect();
    let growth = Growth {
        over: Over::Nodes,
        runs: &scaled,
        asked: None,
        check: None,
    };
    let laws = scaling(&growth).laws;
    let line = |grows| {
        let law = laws.iter().find(|law| law.grows == grows);
        let line = law.and_then(|law| law.line.clone()).expect("a line");
        (line.fixed.value / MIB, line.each.value / MIB)
    };
    let near = |(fixed, each): (f64, f64), expected: (f64, f64)| {
        let off = (fixed - expected.0).abs() + (each - expected.1).abs();
        assert!(off < 1e-6, "{fixed} and {each}, not {expected:?}");
    };
    near(line(Grows::ProxyMemory), (32.0, 0.0));
    near(line(Grows::NodesMemory), (32.0, 1.0));
    let found = runs[2].1.variants.iter().find(|v| v.variant.0 == CANDIDATE);
    let nodes: Vec<u32> = found
        .expect("the variant")
        .nodes
        .iter()
        .map(|n| n.node)
        .collect();
    assert_eq!(nodes, [1, 2, 3, 4]);
}
