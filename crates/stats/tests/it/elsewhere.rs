//! CPU that is moved out of the path wins no comparison and passes no gate.

use meshtax_model::advice::Priority;
use meshtax_model::analysis::{
    AddedCpu, DecisionReason, Elsewhere, Ground, Metric, Suggestion, Verdict, Withheld,
};
use meshtax_model::comparison::{
    Allowed, GateCheck, GateReport, GateVerdict, InconclusiveCheck, Limit,
};
use meshtax_model::experiment::{PolicyLevel, VariantId};
use meshtax_model::trial::{ComponentRole, ComponentUsage};
use meshtax_stats::advise::decide;
use meshtax_stats::between::{Options, Runs};
use meshtax_stats::gate::{gate_runs, gate_sides};

use crate::between::{data, one};
use crate::common::{Cost, Run, effect, run};

const FREE: Cost = Cost {
    name: "mesh",
    level: PolicyLevel::Mtls,
    delay_ns: 0.0,
    cpu_ns: 0.0,
};

fn cost(name: &'static str, cpu_ns: f64) -> Cost {
    Cost {
        name,
        cpu_ns,
        ..FREE
    }
}

#[test]
fn order_by_cpu_is_open_where_cpu_elsewhere_reverses_it() {
    let cells = |run: &Run| {
        let analysis = run.analyse();
        let decision = decide(&analysis, &[]).expect("two choices");
        let rows = &decision.groups[0].rows;
        let row = rows
            .iter()
            .find(|row| row.requirement == Some(Priority::Cost));
        row.expect("the requirement").cells.clone()
    };
    let suggestions = |run: &Run| {
        let cells = cells(run);
        [cells[0].suggestion, cells[1].suggestion]
    };
    let mut run = run(3, 12, 1, 0.02, &[cost("less", 50e3), cost("more", 60e3)]);
    let decided = [Suggestion::Suggested, Suggestion::NotSuggested];
    assert_eq!(suggestions(&run), decided);
    // Less than the difference.
    run.add_unattributed("less", 3_000);
    assert_eq!(suggestions(&run), decided);
    run.add_unattributed("less", 27_000);
    assert_eq!(suggestions(&run), [Suggestion::Inconclusive; 2]);
    let DecisionReason::NotSeparated { from } = &cells(&run)[0].reason else {
        panic!("{:?}", cells(&run));
    };
    let Ground::Difference { withheld, .. } = from[0].ground else {
        panic!("{from:?}");
    };
    assert_eq!(withheld, Some(Withheld::CpuElsewhere));
}

fn cpu_limit(share: f64) -> [Limit; 1] {
    [Limit {
        text: "as typed".to_owned(),
        variant: None,
        metric: Metric::CpuPerRequest,
        allowed: Allowed::Relative(share),
        load_point: None,
    }]
}

fn all_are(gate: &GateReport, verdict: GateVerdict, reason: Option<InconclusiveCheck>) -> bool {
    let is_it = |check: &GateCheck| check.verdict == verdict && check.reason == reason;
    gate.checks.len() == 2 && gate.checks.iter().all(is_it)
}

#[test]
fn gate_on_cpu_is_inconclusive_where_cpu_elsewhere_decides_otherwise() {
    let pairs = [(
        Some(VariantId("a.mesh".to_owned())),
        VariantId("b.mesh".to_owned()),
    )];
    let gate = |moved_ns: i64, share: f64| {
        let costs = [cost("a.mesh", 4e3), cost("b.mesh", 4e3)];
        let mut run = run(5, 24, 1, 0.02, &costs);
        run.add_unattributed("b.mesh", moved_ns);
        gate_sides(&run.data(), &pairs, &cpu_limit(share)).unwrap()
    };
    let elsewhere = || Some(InconclusiveCheck::CpuElsewhere);
    assert!(all_are(&gate(0, 0.05), GateVerdict::Pass, None));
    assert!(all_are(&gate(0, -0.05), GateVerdict::Fail, None));
    // A fifth of its CPU.
    let grown = gate(4_800, 0.05);
    assert!(
        all_are(&grown, GateVerdict::Inconclusive, elsewhere()),
        "{grown:?}"
    );
    let shrunk = gate(-4_800, -0.05);
    assert!(
        all_are(&shrunk, GateVerdict::Inconclusive, elsewhere()),
        "{shrunk:?}"
    );
}

#[test]
fn gate_between_runs_is_inconclusive_where_cpu_moved_elsewhere() {
    let gate = |moved_ns: i64| {
        let (base, mut new) = ([one(1, 12, 1.2)], [one(2, 12, 1.2)]);
        new[0].add_unattributed("mesh", moved_ns);
        let (base, new) = (data(&base, "base"), data(&new, "new"));
        let runs = Runs {
            base: &base,
            new: &new,
        };
        gate_runs(runs, &Options::default(), &cpu_limit(0.15)).unwrap()
    };
    assert!(all_are(&gate(0), GateVerdict::Pass, None));
    let moved = gate(7_200);
    let reason = Some(InconclusiveCheck::CpuElsewhere);
    assert!(
        all_are(&moved, GateVerdict::Inconclusive, reason),
        "{moved:?}"
    );
}

/// On the CPU of a mesh that costs nothing, at the steady load of a quiet machine.
fn judged(run: &Run) -> (Verdict, AddedCpu) {
    let analysis = run.analyse();
    let effect = effect(&analysis, "mesh", "steady", Metric::CpuPerRequest);
    let added = analysis.added_cpu(&effect.variant, &effect.load_point);
    (effect.verdict.clone(), added.expect("CPU").clone())
}

#[test]
fn uncertain_cpu_elsewhere_leaves_open_whether_a_difference_is_relevant() {
    let mut run = run(5, 60, 1, 0.005, &[FREE]);
    let (verdict, added) = judged(&run);
    assert_eq!((verdict, added.with_elsewhere), (Verdict::Equivalent, None));
    // A tenth of the application's CPU on average, by rounds that differ by twice as much as all of it.
    for (planned, completed, sample) in run.sampled("mesh") {
        if planned.load_point.0 == "steady" {
            let idle_ns = &mut sample.machines[0].idle_ns;
            match planned.round % 2 {
                0 => *idle_ns -= 22_000 * completed,
                _ => *idle_ns += 18_000 * completed,
            }
        }
    }
    let (verdict, added) = judged(&run);
    let interval = added.unattributed.unwrap().interval.unwrap();
    assert!(interval.low < 0.0 && 0.0 < interval.high, "{added:?}");
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(added.with_elsewhere.is_some());
}

#[test]
fn parts_elsewhere_that_exceed_the_margin_together_are_relevant() {
    let mut run = run(5, 60, 1, 0.005, &[FREE]);
    // 1.5 % of the application's CPU each.
    for (_, completed, sample) in run.sampled("mesh") {
        sample.machines[0].idle_ns -= 600 * completed;
        sample.components[0].cpu_ns += 300 * completed;
    }
    let (verdict, added) = judged(&run);
    assert_eq!(verdict, Verdict::Inconclusive, "{added:?}");
    let parts = added.with_elsewhere.expect("a range").parts;
    assert_eq!(parts, [Elsewhere::Unattributed, Elsewhere::Generator]);
}

#[test]
fn control_plane_is_cpu_elsewhere() {
    let mut run = run(5, 60, 1, 0.005, &[FREE]);
    for (_, completed, sample) in run.sampled("mesh") {
        sample.machines[0].idle_ns -= 2_000 * completed;
        sample.components.push(ComponentUsage {
            cpu_ns: 2_000 * completed,
            ..ComponentUsage::new("mesh/istiod", ComponentRole::ControlPlane)
        });
    }
    let (verdict, added) = judged(&run);
    let found = added.control_plane.expect("it has one").value;
    assert!((found - 2_000.0).abs() < 1.0, "{added:?}");
    assert!(added.unattributed.unwrap().value.abs() < 1.0, "{added:?}");
    assert_eq!(verdict, Verdict::Inconclusive);
    let parts = added.with_elsewhere.expect("a range").parts;
    assert_eq!(parts, [Elsewhere::ControlPlane]);
}
