//! Ways to break a variant on purpose, so that tests can see the evidence catch it.

use meshtax_model::experiment::{Options, PolicyLevel};
use serde::{Deserialize, Serialize};

use crate::{Blueprint, DataPlane, Redirect, Site, ztunnel};

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
    /// No redirection on the client's side: traffic goes around its proxy.
    NoClientRedirect,
    /// No redirection on the server's side.
    NoServerRedirect,
    /// No redirection at all: both proxies idle beside the traffic.
    NoRedirect,
    /// No redirection in the pods of the services behind the one that clients call.
    NoRedirectBehind,
    /// No proxy is started.
    NoProxy,
    /// The waypoint has the identity of another workload.
    WrongWaypointIdentity,
    /// The client's proxy does not know of the waypoint.
    AroundTheWaypoint,
    /// Clients outside the mesh call the service, and not the gateway.
    AroundTheGateway,
    /// The proxies do and hold nothing of the variant's options.
    NoOptions,
}

impl Sabotage {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::NoEncryption,
        Self::WrongServerIdentity,
        Self::WrongClientIdentity,
        Self::NoPolicy,
        Self::NoClientRedirect,
        Self::NoServerRedirect,
        Self::NoRedirect,
        Self::NoRedirectBehind,
        Self::NoProxy,
        Self::WrongWaypointIdentity,
        Self::AroundTheWaypoint,
        Self::AroundTheGateway,
        Self::NoOptions,
    ];

    /// Whether the data plane promises at this level what this breaks.
    #[must_use]
    pub fn breaks(self, plane: &DataPlane, level: PolicyLevel) -> bool {
        match self {
            Self::NoRedirectBehind => plane.carries_graphs(),
            Self::AroundTheGateway => plane.has_gateway(),
            Self::NoOptions => !plane.options.is_empty(),
            Self::WrongWaypointIdentity | Self::AroundTheWaypoint => plane.has_waypoint(),
            Self::NoPolicy => level >= PolicyLevel::L4,
            Self::NoEncryption | Self::WrongServerIdentity | Self::WrongClientIdentity => {
                level >= PolicyLevel::Mtls
            }
            Self::NoClientRedirect | Self::NoServerRedirect | Self::NoRedirect | Self::NoProxy => {
                true
            }
        }
    }

    pub(crate) fn apply(
        self,
        site: &Site,
        level: PolicyLevel,
        build: fn(&Site, PolicyLevel) -> Blueprint,
    ) -> Blueprint {
        let promised = build(site, level);
        let mut broken = match self {
            Self::NoEncryption => build(site, PolicyLevel::Plaintext),
            Self::NoPolicy => build(site, level.min(PolicyLevel::Mtls)),
            Self::WrongServerIdentity => build_with_server(site, level, build),
            Self::WrongClientIdentity => build_with_client(site, level, build),
            Self::WrongWaypointIdentity => build_with_waypoint(site, level, build),
            Self::NoOptions => build(
                &Site {
                    options: Options::default(),
                    ..site.clone()
                },
                level,
            ),
            Self::AroundTheWaypoint => {
                let mesh = ztunnel::Mesh::of(level);
                Blueprint {
                    client: Blueprint::meshed(site, |end| ztunnel::on_node(site, end, &mesh))
                        .client,
                    ..build(site, level)
                }
            }
            _ => promised.clone(),
        };
        match self {
            Self::NoClientRedirect => without_client_redirect(&mut broken),
            Self::NoServerRedirect => without_server_redirect(&mut broken),
            Self::NoRedirect => {
                without_client_redirect(&mut broken);
                without_server_redirect(&mut broken);
            }
            Self::NoRedirectBehind => {
                for pod in broken.behind.iter_mut().flatten() {
                    pod.redirect = Redirect::default();
                }
            }
            Self::NoProxy => {
                broken.callers_mut().for_each(|pod| pod.processes.clear());
                broken.servers_mut().for_each(|pod| pod.processes.clear());
                broken.waypoint = None;
            }
            Self::AroundTheGateway => {
                broken.entered_at = site.gateway.as_ref().map(|_| site.called);
            }
            _ => {}
        }
        Blueprint {
            probes: promised.probes,
            direct_tls: promised.direct_tls,
            http_metrics: promised.http_metrics,
            proxy_port: promised.proxy_port,
            ..broken
        }
    }
}

const WRONG: &str = "impostor";

fn without_client_redirect(blueprint: &mut Blueprint) {
    for pod in blueprint.callers_mut() {
        pod.redirect.outbound_to = None;
    }
}

fn without_server_redirect(blueprint: &mut Blueprint) {
    for pod in blueprint.servers_mut() {
        pod.redirect.inbound_to = None;
    }
}

/// The server's pods as of another workload; the client's still expects the right one.
fn build_with_server(
    site: &Site,
    level: PolicyLevel,
    build: fn(&Site, PolicyLevel) -> Blueprint,
) -> Blueprint {
    let mut wrong = site.clone();
    wrong.server.service_account = WRONG.into();
    for server in &mut wrong.more_servers {
        server.service_account = WRONG.into();
    }
    let right = build(site, level);
    Blueprint {
        client: right.client,
        gateway: right.gateway,
        waypoint: right.waypoint,
        ..build(&wrong, level)
    }
}

/// The waypoint as of another workload; client and server still expect the right one.
fn build_with_waypoint(
    site: &Site,
    level: PolicyLevel,
    build: fn(&Site, PolicyLevel) -> Blueprint,
) -> Blueprint {
    let mut wrong = site.clone();
    wrong.waypoint.service_account = WRONG.into();
    Blueprint {
        client: build(site, level).client,
        ..build(&wrong, level)
    }
}

fn build_with_client(
    site: &Site,
    level: PolicyLevel,
    build: fn(&Site, PolicyLevel) -> Blueprint,
) -> Blueprint {
    let mut wrong = site.clone();
    wrong.client.service_account = WRONG.into();
    if let Some(gateway) = &mut wrong.gateway {
        gateway.pod.service_account = WRONG.into();
    }
    let wrong = build(&wrong, level);
    Blueprint {
        client: wrong.client,
        gateway: wrong.gateway,
        ..build(site, level)
    }
}
