//! A variant's blueprint: its contract, and the emulation that fulfils it without a cluster.

use serde::{Deserialize, Serialize};

use crate::contract::{Contract, IngressTarget};
use crate::control::ControlService;
use crate::emulation::{Emulation, PodBlueprint, PodFile, Process, Redirect, RedirectExemption};
use crate::gateway::reverse_proxy;
use crate::mesh::ProxiedPod;
use crate::names::{PORT_INBOUND, PORT_OUTBOUND, PROXY_MARK};
use crate::probe_targets::direct_probes;
use crate::site::Site;

/// All of a variant that differs from other variants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Blueprint {
    /// What is promised, and how it is proven: for any engine.
    pub contract: Contract,
    /// What an engine without a cluster puts into the pods.
    pub emulation: Emulation,
}

impl Blueprint {
    /// No proxy in the path.
    #[must_use]
    pub fn direct(site: &Site) -> Self {
        Self {
            contract: Contract {
                probes: direct_probes(site),
                ingress: ingress(site),
                ..Contract::default()
            },
            emulation: Emulation {
                pods: reverse_proxy(site).into_iter().collect(),
                fault: None,
            },
        }
    }
}

/// The contract's ingress.
pub(crate) fn ingress(site: &Site) -> Option<IngressTarget> {
    site.gateway.as_ref().map(|_| IngressTarget::Gateway)
}

/// The part of a sidecar that differs between data planes.
#[derive(Default)]
pub(crate) struct Sidecar {
    pub(crate) files: Vec<PodFile>,
    pub(crate) control: Vec<ControlService>,
    pub(crate) processes: Vec<Process>,
}

/// A sidecar in every pod, with Istio's redirection.
pub(crate) fn sidecars(site: &Site, sidecar: impl Fn(&ProxiedPod<'_>) -> Sidecar) -> Emulation {
    every_pod(site, |proxied| {
        let Sidecar {
            files,
            control,
            processes,
        } = sidecar(proxied);
        PodBlueprint {
            pod: proxied.pod.name.clone(),
            files,
            redirect: Redirect {
                outbound_to: (!proxied.callees.is_empty()).then_some(PORT_OUTBOUND),
                inbound_to: proxied.callers.is_some().then_some(PORT_INBOUND),
                exemption: RedirectExemption::mark(PROXY_MARK),
                ..Redirect::default()
            },
            control,
            processes,
        }
    })
}

/// Every pod of the mesh: the clients', those of the services, and the gateway's, which is a plain reverse proxy with what
/// `pod` returns as its sidecar.
pub(crate) fn every_pod(site: &Site, pod: impl Fn(&ProxiedPod<'_>) -> PodBlueprint) -> Emulation {
    let in_mesh = site.proxied_clients().chain(site.proxied_services());
    let mut pods: Vec<PodBlueprint> = in_mesh.map(|proxied| pod(&proxied)).collect();
    let gateway = site.proxied_gateway().zip(reverse_proxy(site));
    pods.extend(gateway.map(|(proxied, plain)| plain.with_sidecar(pod(&proxied))));
    Emulation { pods, fault: None }
}
