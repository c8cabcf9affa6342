//! Ways to break a variant on purpose, so that tests can see the evidence catch it.

use std::collections::BTreeMap;

use meshtax_model::catalogue::{DataPlane, ProxyPlacement};
use meshtax_model::experiment::{Options, PolicyLevel};
use serde::{Deserialize, Serialize};

use crate::blueprint::{Blueprint, every_pod};
use crate::contract::IngressTarget;
use crate::emulation::{Emulation, Fault, Redirect};
use crate::site::Site;
use crate::ztunnel::on_node;
use crate::ztunnel_state::Mesh;

/// One way to break a variant. Its probes stay those of the promised level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sabotage {
    /// The proxies are there and encrypt nothing.
    NoEncryption,
    /// The server's proxy has the identity of another workload.
    WrongServerIdentity,
    /// The client's proxy has the identity of another workload.
    WrongClientIdentity,
    /// Mutual TLS only, without the level's policy.
    NoPolicy,
    /// Mutual TLS only, without the level's policy, in the pods of all services but the first that clients call.
    NoPolicyBehind,
    /// No redirection on the client's side: traffic bypasses its proxy.
    NoClientRedirect,
    /// No redirection in the pod of the last client.
    NoRedirectOfOneClient,
    /// No redirection on the server's side.
    NoServerRedirect,
    /// No redirection at all: both proxies stay idle.
    NoRedirect,
    /// No redirection in the pods of all services but the first that clients call.
    NoRedirectBehind,
    /// No proxy is started.
    NoProxy,
    /// The waypoint has the identity of another workload.
    WrongWaypointIdentity,
    /// The client's proxy is not configured with the waypoint.
    AroundTheWaypoint,
    /// Clients outside the mesh call the service, and not the gateway.
    AroundTheGateway,
    /// The proxies do and hold nothing of the variant's options.
    NoOptions,
    /// Only the load's connections bypass the proxies.
    LoadAroundProxies,
    /// Only those of the last client's load do.
    LoadOfOneClientAroundProxies,
    /// All of the load's connections bypass the proxies, next to ones that use CPU.
    LoadAroundBusyProxies,
    /// No packets are captured.
    NoCapture,
}

impl Sabotage {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::NoEncryption,
        Self::WrongServerIdentity,
        Self::WrongClientIdentity,
        Self::NoPolicy,
        Self::NoPolicyBehind,
        Self::NoClientRedirect,
        Self::NoRedirectOfOneClient,
        Self::NoServerRedirect,
        Self::NoRedirect,
        Self::NoRedirectBehind,
        Self::NoProxy,
        Self::WrongWaypointIdentity,
        Self::AroundTheWaypoint,
        Self::AroundTheGateway,
        Self::NoOptions,
        Self::LoadAroundProxies,
        Self::LoadOfOneClientAroundProxies,
        Self::LoadAroundBusyProxies,
        Self::NoCapture,
    ];

    /// Whether the data plane promises at this level what this breaks.
    #[must_use]
    pub fn breaks(self, plane: &DataPlane, level: PolicyLevel) -> bool {
        match self {
            Self::NoRedirectBehind => plane.call_graphs,
            // The proxy of a node has the policies of all its pods.
            Self::NoPolicyBehind => {
                let is_sidecar = plane.placement == Some(ProxyPlacement::Sidecar);
                is_sidecar && plane.call_graphs && level >= PolicyLevel::L4
            }
            Self::AroundTheGateway => plane.gateway,
            Self::NoOptions => !plane.options.is_empty(),
            Self::WrongWaypointIdentity | Self::AroundTheWaypoint => plane.has_waypoint(),
            Self::NoPolicy => level >= PolicyLevel::L4,
            Self::NoEncryption | Self::WrongServerIdentity | Self::WrongClientIdentity => {
                level >= PolicyLevel::Mtls
            }
            Self::NoClientRedirect
            | Self::NoRedirectOfOneClient
            | Self::NoServerRedirect
            | Self::NoRedirect
            | Self::NoProxy
            | Self::LoadAroundProxies
            | Self::LoadOfOneClientAroundProxies
            | Self::LoadAroundBusyProxies
            | Self::NoCapture => true,
        }
    }

    /// Breaks what `build` makes of the site and the level.
    pub(crate) fn apply(
        self,
        site: &Site,
        level: PolicyLevel,
        build: impl Fn(&Site, PolicyLevel) -> Blueprint,
    ) -> Blueprint {
        let mut broken = build(site, level);
        let Blueprint {
            contract,
            emulation,
        } = &mut broken;
        let (servers, callers) = (is_server(site), is_caller(site));
        match self {
            Self::NoEncryption => *emulation = build(site, PolicyLevel::Plaintext).emulation,
            Self::NoPolicy => *emulation = build(site, level.min(PolicyLevel::Mtls)).emulation,
            Self::NoPolicyBehind => {
                let open = build(site, level.min(PolicyLevel::Mtls)).emulation;
                replace(emulation, open, is_behind(site));
            }
            Self::NoOptions => *emulation = build(&without_options(site), level).emulation,
            // The others still expect the right identity.
            Self::WrongServerIdentity => {
                let wrong = build(&impostors(site, &servers), level).emulation;
                replace(emulation, wrong, |pod| {
                    !callers(pod) && *pod != site.waypoint.name
                });
            }
            Self::WrongClientIdentity => {
                let wrong = build(&impostors(site, &callers), level).emulation;
                replace(emulation, wrong, &callers);
            }
            Self::WrongWaypointIdentity => {
                let wrong = build(&with_impostor_as_waypoint(site), level).emulation;
                replace(emulation, wrong, |pod| !site.is_client(pod));
            }
            Self::AroundTheWaypoint => {
                let without = without_waypoint(site, level);
                replace(emulation, without, |pod| site.is_client(pod));
            }
            Self::AroundTheGateway => {
                contract.ingress = contract.ingress.take().map(|_| IngressTarget::EntryPoint);
            }
            Self::LoadAroundProxies => emulation.fault = Some(Fault::LoadBypassesProxies),
            Self::LoadOfOneClientAroundProxies => {
                emulation.fault = Some(Fault::LoadOfOneClientBypassesProxies);
            }
            Self::LoadAroundBusyProxies => emulation.fault = Some(Fault::LoadBypassesBusyProxies),
            Self::NoCapture => emulation.fault = Some(Fault::NoCapture),
            Self::NoClientRedirect => remove_redirect(emulation, &callers, &|_| false),
            Self::NoRedirectOfOneClient => {
                remove_redirect(emulation, &is_last_client(site), &|_| false);
            }
            Self::NoServerRedirect => remove_redirect(emulation, &|_| false, &servers),
            Self::NoRedirect => remove_redirect(emulation, &callers, &servers),
            Self::NoRedirectBehind => remove_all_redirects(emulation, is_behind(site)),
            Self::NoProxy => remove_proxies(emulation, site),
        }
        broken
    }
}

const WRONG: &str = "impostor";

/// The pods from which clients' requests enter the mesh.
fn is_caller(site: &Site) -> impl Fn(&String) -> bool {
    let gateway = site.gateway.as_ref().map(|gateway| &gateway.pod);
    let pods = site.clients.iter().chain(gateway);
    let names: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
    move |pod| names.contains(pod)
}

/// The pod of the last client.
fn is_last_client(site: &Site) -> impl Fn(&String) -> bool {
    move |pod| site.clients.last().is_some_and(|of| of.name == *pod)
}

/// The pods of entry points.
fn is_server(site: &Site) -> impl Fn(&String) -> bool {
    let pods = site.entry_points().flat_map(|service| &service.pods);
    let names: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
    move |pod| names.contains(pod)
}

/// The pods of all services but the first that clients call.
fn is_behind(site: &Site) -> impl Fn(&String) -> bool {
    let first = site.entry_point();
    let behind = site
        .services
        .iter()
        .filter(|service| service.name != first.name);
    let pods = behind.flat_map(|service| &service.pods);
    let names: Vec<String> = pods.map(|pod| pod.name.clone()).collect();
    move |pod| names.contains(pod)
}

/// The site with the identity of another workload in some pods.
fn impostors(site: &Site, which: impl Fn(&String) -> bool) -> Site {
    let mut wrong = site.clone();
    let gateway = wrong.gateway.as_mut().map(|gateway| &mut gateway.pod);
    let services = wrong.services.iter_mut();
    let pods = services.flat_map(|service| &mut service.pods);
    for pod in pods.chain(&mut wrong.clients).chain(gateway) {
        if which(&pod.name) {
            pod.service_account = WRONG.into();
        }
    }
    wrong
}

fn with_impostor_as_waypoint(site: &Site) -> Site {
    let mut wrong = site.clone();
    wrong.waypoint.service_account = WRONG.into();
    wrong
}

fn without_options(site: &Site) -> Site {
    Site {
        options: Options::default(),
        runtime: BTreeMap::new(),
        ..site.clone()
    }
}

/// The nodes' proxies, none of which knows a waypoint.
fn without_waypoint(site: &Site, level: PolicyLevel) -> Emulation {
    let mesh = Mesh::of(level);
    every_pod(site, |proxied| on_node(site, proxied, &mesh))
}

/// Takes some pods from another emulation of the same site.
fn replace(emulation: &mut Emulation, from: Emulation, which: impl Fn(&String) -> bool) {
    for pod in from.pods {
        if which(&pod.pod) {
            emulation.set(pod);
        }
    }
}

fn remove_redirect(
    emulation: &mut Emulation,
    outbound: &impl Fn(&String) -> bool,
    inbound: &impl Fn(&String) -> bool,
) {
    for pod in &mut emulation.pods {
        if outbound(&pod.pod) {
            pod.redirect.outbound_to = None;
        }
        if inbound(&pod.pod) {
            pod.redirect.inbound_to = None;
        }
    }
}

fn remove_all_redirects(emulation: &mut Emulation, which: impl Fn(&String) -> bool) {
    for pod in emulation.pods.iter_mut().filter(|pod| which(&pod.pod)) {
        pod.redirect = Redirect::default();
    }
}

/// Without the waypoint, and without the proxies of the callers and of the entry points.
fn remove_proxies(emulation: &mut Emulation, site: &Site) {
    let (servers, callers) = (is_server(site), is_caller(site));
    emulation.pods.retain(|pod| pod.pod != site.waypoint.name);
    let pods = emulation.pods.iter_mut();
    for pod in pods.filter(|pod| callers(&pod.pod) || servers(&pod.pod)) {
        pod.processes.clear();
    }
}
