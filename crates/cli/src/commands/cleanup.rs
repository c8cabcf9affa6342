//! `meshtax cleanup`.

use meshtax_kube::{Cluster, ClusterError, Removed, remove_leftovers};

use crate::args::CleanupArgs;
use crate::exit::{Failure, LEFTOVERS, MISSING, Outcome, SUCCESS};
use crate::terminal;

pub(crate) fn cleanup(args: &CleanupArgs) -> Outcome {
    let failed = |e: ClusterError| Failure::with_fix(MISSING, e.to_string(), e.fix());
    let cluster = Cluster::connect(&args.access.access()).map_err(failed)?;
    let run = args.run.as_deref();
    let Removed {
        namespaces,
        left,
        others,
    } = remove_leftovers(&cluster, run).map_err(failed)?;
    if namespaces.is_empty() && left.is_empty() {
        terminal::print(&match run {
            None => "nothing was left\n".to_owned(),
            Some(run) => nothing_of(run, &others),
        });
        return Ok(SUCCESS);
    }
    let lines: String = namespaces
        .iter()
        .map(|namespace| format!("removed namespace {namespace}\n"))
        .collect();
    terminal::print(&lines);
    match left.is_empty() {
        true => Ok(SUCCESS),
        false => Err(Failure::with_fix(
            LEFTOVERS,
            format!("namespaces are still there: {}", left.join(", ")),
            "a finalizer may hold them: `kubectl get namespace NAME -o yaml` names it",
        )),
    }
}

fn nothing_of(run: &str, others: &[String]) -> String {
    match others {
        [] => format!("run {run} has left nothing on the cluster, nor has any other\n"),
        others => {
            let others = others.join(", ");
            format!("run {run} has left nothing on the cluster; these runs have: {others}\n")
        }
    }
}
