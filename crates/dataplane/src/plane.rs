//! The builder of each data plane of the catalogue.

use meshtax_model::catalogue::{DataPlane, DataPlaneId};
use meshtax_model::experiment::PolicyLevel;

use crate::blueprint::Blueprint;
use crate::probe::Probe;
use crate::sabotage::Sabotage;
use crate::scope::ProcessScope;
use crate::site::Site;
use crate::ztunnel_state::Waypoint;
use crate::{envoy, envoy_sidecar, limit, linkerd, waypoint, ztunnel};

/// The blueprint of a data plane for a site.
///
/// `level` is `None` for the data plane `none`. `sabotage` breaks the emulation on purpose; the contract still promises what
/// the level does.
#[must_use]
pub fn blueprint(
    plane: &DataPlane,
    site: &Site,
    level: Option<PolicyLevel>,
    sabotage: Option<Sabotage>,
) -> Blueprint {
    let Some(level) = level else {
        return Blueprint::direct(site);
    };
    let build = |site: &Site, level| {
        let mut blueprint = build(plane.id, site, level);
        blueprint.contract.probes.extend(runtime_switches(site));
        blueprint
    };
    match sabotage {
        None => build(site, level),
        Some(sabotage) => sabotage.apply(site, level, build),
    }
}

fn runtime_switches(site: &Site) -> Option<Probe> {
    (!site.runtime.is_empty()).then(|| Probe::RuntimeSwitches {
        switches: site.runtime.clone(),
        admin_port: envoy::PORT_ADMIN,
    })
}

fn build(id: DataPlaneId, site: &Site, level: PolicyLevel) -> Blueprint {
    use envoy_sidecar::{Flavour, Mode};
    let sidecar = |mode, flavour| envoy_sidecar::blueprint(site, level, mode, flavour);
    match id {
        DataPlaneId::None => Blueprint::direct(site),
        DataPlaneId::LimitL4 | DataPlaneId::LimitMtls => limit::blueprint(site, level),
        DataPlaneId::Ztunnel => ztunnel::blueprint(site, level, ProcessScope::Node),
        DataPlaneId::ZtunnelDedicated => ztunnel::blueprint(site, level, ProcessScope::Pod),
        DataPlaneId::ZtunnelWaypoint => waypoint::blueprint(site, level, Waypoint::SpeaksHbone),
        DataPlaneId::ZtunnelWaypointSandwich => {
            let port = waypoint::PORT_SANDWICH;
            waypoint::blueprint(site, level, Waypoint::Sandwiched { port })
        }
        DataPlaneId::Linkerd => linkerd::blueprint(site, level),
        DataPlaneId::EnvoySidecar => sidecar(Mode::Http, Flavour::Upstream),
        DataPlaneId::EnvoySidecarTcp => sidecar(Mode::Tcp, Flavour::Upstream),
        DataPlaneId::IstioSidecar => sidecar(Mode::Http, Flavour::Istio),
    }
}
