//! `meshtax cleanup`.

use meshtax_kube::{Cluster, ClusterError, Removed, remove_leftovers};

use crate::args::CleanupArgs;
use crate::exit::{Failure, LEFTOVERS, MISSING, Outcome, SUCCESS};
use crate::terminal;

pub(crate) fn cleanup(args: &CleanupArgs) -> Outcome {
    let failed = |e: ClusterError| Failure::with_fix(MISSING, e.to_string(), e.fix());
    let cluster = Cluster::connect(&args.access.access()).map_err(failed)?;
    let Removed { namespaces, left } =
        remove_leftovers(&cluster, args.run.as_deref()).map_err(failed)?;
    if namespaces.is_empty() && left.is_empty() {
        terminal::print("nothing was left\n");
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
