//! `meshtax published` and `meshtax mesh facts`: published results and facts.

use meshtax_published::{Mesh, ResultSet, meshes, results};

use crate::args::{PublishedAction, PublishedArgs};
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::terminal;

/// Lists the published results, or shows one.
pub(crate) fn published(args: &PublishedArgs) -> Outcome {
    let text = match &args.action {
        None if args.json => meshtax_report::published_list_json(results()),
        None => meshtax_report::published_list_terminal(results(), terminal::options()),
        Some(PublishedAction::Show { name }) => {
            let set = find(name)?;
            if args.json {
                meshtax_report::published_json(set)
            } else {
                meshtax_report::published_terminal(set, terminal::options())
            }
        }
    };
    terminal::print(&text);
    Ok(SUCCESS)
}

/// Facts of all meshes, or of one.
pub(crate) fn facts(name: Option<&str>, json: bool) -> Outcome {
    let text = match name {
        None if json => meshtax_report::meshes_json(meshes()),
        None => meshtax_report::meshes_terminal(meshes(), terminal::options()),
        Some(name) => {
            let mesh = find_mesh(name)?;
            if json {
                meshtax_report::mesh_json(meshes(), mesh)
            } else {
                meshtax_report::mesh_terminal(meshes(), mesh, terminal::options())
            }
        }
    };
    terminal::print(&text);
    Ok(SUCCESS)
}

/// The published result of this name.
pub(crate) fn find(name: &str) -> Result<&'static ResultSet, Failure> {
    meshtax_published::find(name).ok_or_else(|| {
        let known: Vec<&str> = results().iter().map(|set| set.name.as_str()).collect();
        Failure::unknown_name("published result", name, &known)
    })
}

fn find_mesh(name: &str) -> Result<&'static Mesh, Failure> {
    meshes().mesh(name).ok_or_else(|| {
        let known: Vec<&str> = meshes().meshes.iter().map(|m| m.id.as_str()).collect();
        Failure::unknown_name("mesh", name, &known)
    })
}
