//! `meshtax dataplanes`.

use std::net::Ipv4Addr;
use std::path::Path;

use meshtax_artifacts::{Binary, ProgramError, keep_program};
use meshtax_dataplane::{
    APP_PORT, AppPort, EMULATED_NAMESPACE, Pod, PodNode, Site, SiteService, blueprint,
};
use meshtax_model::catalogue::{self, DATA_PLANES, DataPlane, Program};
use meshtax_model::experiment::{Options, ProgramChoice, Workers};
use serde_json::json;

use crate::args::{DataplanesAction, DataplanesArgs, ProgramArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::progress::Progress;
use crate::runs::programs;
use crate::terminal;

/// The longest name, and a space.
const NAME_COLUMN: usize = 26;

pub(crate) fn dataplanes(args: &DataplanesArgs) -> Outcome {
    match &args.action {
        None => list(args),
        Some(DataplanesAction::Get { name, from, image }) => {
            get(name, from.as_deref(), image.as_deref(), &args.programs)
        }
        Some(DataplanesAction::Show { name }) => show(name),
    }
}

fn list(args: &DataplanesArgs) -> Outcome {
    let mut found = Vec::new();
    for program in Program::FOREIGN.iter().copied() {
        let choice = ProgramChoice::default_of(program);
        let found_here = meshtax_artifacts::find(&choice, args.programs.given(program));
        found.extend(found_here.map_err(|e| Failure::new(MISSING, e))?);
    }
    if args.json {
        let planes: Vec<_> = DATA_PLANES
            .iter()
            .map(|plane| as_json(plane, &found))
            .collect();
        terminal::print(&format!(
            "{:#}\n",
            json!({"format_version": meshtax_model::FORMAT_VERSION, "data_planes": planes})
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

/// The programs that a data plane needs, each with its binary if it was found.
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
            None => format!("missing: {}", ProgramError::Missing(program)),
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
                "origin": b.origin.to_string(), "path": b.path,
            }),
            None => json!({
                "name": program.name(), "missing": true, "fix": ProgramError::Missing(program).to_string(),
            }),
        })
        .collect();
    json!({
        "name": plane.name, "levels": plane.levels, "summary": plane.summary,
        "note": plane.note, "programs": programs,
    })
}

/// `NAME`, or `NAME@VERSION`.
fn get(named: &str, from: Option<&Path>, image: Option<&str>, args: &ProgramArgs) -> Outcome {
    let (name, version) = match named.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (named, None),
    };
    if version.is_some() && (from.is_some() || image.is_some()) {
        let message = format!(
            "{named} is a version of the official image, and --from and --image name another build"
        );
        let fix = format!("leave out the version (`get {name}`), or the option");
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    let build = version.map(meshtax_spec::build).transpose();
    let build = build.map_err(|e| Failure::with_fix(USAGE, e.problem, e.fix))?;
    let Some(program) = only_program(name)? else {
        terminal::say(&format!("{name} is built in: there is nothing to download"));
        return Ok(SUCCESS);
    };
    let binary = bring(&ProgramChoice { program, build }, from, image, args)?;
    terminal::print(&format!(
        "{} {} ({}): {}\n",
        program.name(),
        binary.version,
        binary.origin,
        binary.path.display()
    ));
    Ok(SUCCESS)
}

/// The program of this name, or the only one that the data plane of this name needs; `None` if that is built in.
fn only_program(name: &str) -> Result<Option<Program>, Failure> {
    if let Some(program) = Program::FOREIGN.iter().copied().find(|p| p.name() == name) {
        return Ok(Some(program));
    }
    let plane = find(name)?;
    let mut programs = plane.foreign_programs();
    let first = programs.next();
    if programs.next().is_some() {
        let names: Vec<_> = plane.foreign_programs().map(Program::name).collect();
        let message = format!("{name} needs several programs: {}", names.join(", "));
        let fix = "get each by its own name";
        return Err(Failure::with_fix(USAGE, message, fix));
    }
    Ok(first)
}

fn bring(
    wanted: &ProgramChoice,
    from: Option<&Path>,
    image: Option<&str>,
    args: &ProgramArgs,
) -> Result<Binary, Failure> {
    let brought = match (from, image) {
        (Some(path), _) => keep_program(wanted.program, path),
        (None, Some(_)) if args.offline => {
            let message = "--offline forbids pulling the image";
            let fix = "leave out --offline, or give a binary with --from PATH";
            return Err(Failure::with_fix(MISSING, message, fix));
        }
        (None, Some(image)) => {
            programs::pull(wanted, &args.registries(Some(image)), &Progress::new())
        }
        (None, None) => programs::obtain(wanted, args, &Progress::new())?,
    };
    brought.map_err(|e| Failure::new(MISSING, e))
}

fn find(name: &str) -> Result<&'static DataPlane, Failure> {
    catalogue::find(name).ok_or_else(|| {
        let known: Vec<_> = DATA_PLANES.iter().map(|p| p.name).collect();
        Failure::unknown_name("data plane", name, &known)
    })
}

/// The blueprints of a data plane, for pods with example addresses.
fn show(name: &str) -> Outcome {
    let plane = find(name)?;
    let pod = |third, service_account: &str, node| Pod {
        name: service_account.into(),
        address: Ipv4Addr::new(10, 77, third, 10),
        service_account: service_account.into(),
        directory: format!("/{service_account}"),
        node,
    };
    let server = pod(2, "server", PodNode::Server(0));
    let site = Site {
        namespace: EMULATED_NAMESPACE.into(),
        clients: vec![pod(1, "client", PodNode::Client)],
        services: vec![SiteService {
            name: server.name.clone(),
            address: server.address,
            pods: vec![server],
            ports: vec![AppPort::http1(APP_PORT)],
            calls: Vec::new(),
            entry_point: true,
        }],
        waypoint: pod(3, "waypoint", PodNode::Server(0)),
        gateway: None,
        intruder: None,
        workers: Workers::Equal(1),
        cores: 2,
        options: Options::default(),
        runtime: Default::default(),
    };
    let levels = if plane.levels.is_empty() {
        vec![None]
    } else {
        plane.levels.iter().copied().map(Some).collect()
    };
    let blueprints: Vec<_> = levels
        .into_iter()
        .map(|level| json!({"level": level, "blueprint": blueprint(plane, &site, level, None)}))
        .collect();
    terminal::print(&format!(
        "{:#}\n",
        json!({"data_plane": name, "blueprints": blueprints})
    ));
    Ok(SUCCESS)
}
