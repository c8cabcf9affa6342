//! One run per set of nodes: runs that measure on one node would measure each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::names::{MANAGED_BY, RUN};

/// The name of a run's Lease, in the namespace of its agents.
const NAME: &str = "nodes";
/// The annotation with the nodes, separated by commas.
const NODES: &str = "meshtax.io/nodes";
/// A run whose Lease was not renewed for this long has died.
const EXPIRES: Duration = Duration::from_secs(60);
const RENEW: Duration = Duration::from_secs(15);

/// A run's claim on its nodes. Renewed while it lives; removed with the run's namespace.
#[derive(Debug)]
pub(crate) struct NodeLease {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeLease {
    /// Claims these nodes. Of two runs that do so at the same time, the one whose claim is older gets them.
    pub(crate) fn claim(
        cluster: &Arc<Cluster>,
        namespace: &str,
        run: &str,
        nodes: &[String],
    ) -> Result<Self, ClusterError> {
        let apply = {
            let (cluster, namespace) = (Arc::clone(cluster), namespace.to_owned());
            let (run, nodes) = (run.to_owned(), nodes.to_vec());
            move || cluster.apply(&object(&namespace, &run, &nodes))
        };
        apply()?;
        if let Some(other) = holder(&claims(cluster)?, run, Timestamp::now()) {
            return Err(other.in_use());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let renewing = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                thread::park_timeout(RENEW);
                if !stopped.load(Ordering::Relaxed) {
                    // What fails now is tried again in time.
                    let _ = apply();
                }
            }
        });
        Ok(Self {
            stop,
            thread: Some(renewing),
        })
    }
}

impl Drop for NodeLease {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn claims(cluster: &Cluster) -> Result<Vec<Claim>, ClusterError> {
    let api: Api<Lease> = Api::all(cluster.client());
    let (key, value) = MANAGED_BY;
    let all = cluster.list(&api, "list leases", &format!("{key}={value},{RUN}"))?;
    Ok(all.iter().filter_map(Claim::of).collect())
}

/// Waits until the Lease of an interrupted run has expired or is gone. One that is renewed belongs to a live run.
pub(crate) fn await_expiry(cluster: &Cluster, run: &str) -> Result<(), ClusterError> {
    const POLL: Duration = Duration::from_secs(5);
    let mut first = None;
    loop {
        let claims = claims(cluster)?;
        let Some(claim) = alive(&claims, run, Timestamp::now()) else {
            return Ok(());
        };
        if claim.renewed > *first.get_or_insert(claim.renewed) {
            return Err(claim.in_use());
        }
        thread::sleep(POLL);
    }
}

pub(crate) fn object(namespace: &str, run: &str, nodes: &[String]) -> Value {
    let (key, value) = MANAGED_BY;
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "namespace": namespace, "name": NAME,
            "labels": {key: value, RUN: run},
            "annotations": {NODES: nodes.join(",")},
        },
        "spec": {
            "holderIdentity": run,
            "leaseDurationSeconds": EXPIRES.as_secs(),
            // Of `MicroTime`: six digits.
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    })
}

/// A run's claim, as another run sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    run: String,
    nodes: Vec<String>,
    created: Timestamp,
    renewed: Timestamp,
}

impl Claim {
    /// `None`: it is not whole.
    fn of(lease: &Lease) -> Option<Self> {
        let metadata = &lease.metadata;
        let of = |map: &Option<BTreeMap<String, String>>, key| map.as_ref()?.get(key).cloned();
        let nodes = of(&metadata.annotations, NODES)?;
        Some(Self {
            run: of(&metadata.labels, RUN)?,
            nodes: nodes.split(',').map(str::to_owned).collect(),
            created: metadata.creation_timestamp.as_ref()?.0,
            renewed: lease.spec.as_ref()?.renew_time.as_ref()?.0,
        })
    }

    fn in_use(&self) -> ClusterError {
        ClusterError::NodesInUse {
            nodes: self.nodes.join(", "),
            run: self.run.clone(),
        }
    }

    fn is_alive(&self, now: Timestamp) -> bool {
        now.duration_since(self.renewed).as_secs() < EXPIRES.as_secs() as i64
    }
}

/// A run's claim, unless it has expired.
fn alive<'a>(claims: &'a [Claim], run: &str, now: Timestamp) -> Option<&'a Claim> {
    let mut own = claims.iter().filter(|claim| claim.run == run);
    own.find(|claim| claim.is_alive(now))
}

/// Another run that holds one of this run's nodes.
fn holder<'a>(claims: &'a [Claim], run: &str, now: Timestamp) -> Option<&'a Claim> {
    let own = claims.iter().find(|claim| claim.run == run)?;
    let overlaps = |claim: &&Claim| claim.nodes.iter().any(|node| own.nodes.contains(node));
    // Creation is known to the second.
    let is_older = |claim: &&Claim| (claim.created, &claim.run) < (own.created, &own.run);
    let mut others = claims.iter().filter(|claim| claim.run != run);
    others.find(|claim| claim.is_alive(now) && overlaps(claim) && is_older(claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(run: &str, nodes: &[&str], created_s: i64, renewed_s: i64) -> Claim {
        Claim {
            run: run.into(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            created: Timestamp::from_second(created_s).unwrap(),
            renewed: Timestamp::from_second(renewed_s).unwrap(),
        }
    }

    #[test]
    fn older_live_claim_on_a_common_node_holds_it() {
        let now = Timestamp::from_second(1000).unwrap();
        let own = claim("own", &["a", "b"], 900, 990);
        let held_by =
            |other: Claim| holder(&[own.clone(), other], "own", now).map(|claim| claim.run.clone());
        assert_eq!(
            held_by(claim("x", &["b", "c"], 800, 990)).as_deref(),
            Some("x")
        );
        assert_eq!(
            held_by(claim("x", &["c", "d"], 800, 990)),
            None,
            "other nodes"
        );
        assert_eq!(held_by(claim("x", &["b"], 800, 900)), None, "it has died");
        assert_eq!(held_by(claim("x", &["b"], 950, 990)), None, "it came later");
        // In the same second, both sides decide alike.
        assert_eq!(
            held_by(claim("a-run", &["b"], 900, 990)).as_deref(),
            Some("a-run")
        );
        assert_eq!(held_by(claim("z-run", &["b"], 900, 990)), None);
    }

    #[test]
    fn claim_of_a_killed_run_expires() {
        let claims = [claim("killed", &["a"], 900, 990)];
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(alive(&claims, "killed", at(1000)), Some(&claims[0]));
        assert_eq!(alive(&claims, "killed", at(1050)), None);
        assert_eq!(alive(&claims, "another", at(1000)), None);
    }
}
