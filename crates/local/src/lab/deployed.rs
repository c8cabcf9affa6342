//! A variant in the lab, as the probes see it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::PoisonError;

use meshtax_control_plane::{Pushed, SharedAuthority, TraceCollector};
use meshtax_dataplane::PodNode;
use meshtax_evidence::{Acknowledged, Deployment, Issuer, NoCertificate, Vantage};
use meshtax_model::failure::ComponentFailure;
use meshtax_model::trial::ComponentRole;
use meshtax_tls::Credentials;

use super::component::Component;
use super::control::Control;
use super::network::PodNet;
use super::setup::Pods;

/// A variant in the lab.
pub(super) struct Deployed<'a> {
    pub(super) pods: &'a Pods,
    pub(super) outsider: &'a PodNet,
    pub(super) components: &'a [Component],
    pub(super) control: &'a [Control],
    pub(super) authority: &'a SharedAuthority,
    pub(super) foreign: &'a SharedAuthority,
}

impl Deployment for Deployed<'_> {
    fn pod(&self, name: &str) -> Option<&dyn Vantage> {
        Some(self.pods.all().get(name)?)
    }

    fn node(&self, node: PodNode) -> Option<&dyn Vantage> {
        Some(self.pods.node(node))
    }

    fn outsider(&self) -> &dyn Vantage {
        &self.outsider.namespace
    }

    fn outsider_address(&self) -> Ipv4Addr {
        self.outsider.address
    }

    fn ended(&self) -> Option<ComponentFailure> {
        self.components.iter().find_map(Component::failure)
    }

    fn has(&self, role: ComponentRole) -> bool {
        self.components.iter().any(|c| c.role == role)
    }

    fn log(&self, role: ComponentRole) -> Vec<String> {
        let of_role = self.components.iter().filter(|c| c.role == role);
        of_role.flat_map(Component::lines).collect()
    }

    fn environments(&self, role: ComponentRole) -> Vec<BTreeMap<String, String>> {
        let of_role = self.components.iter().filter(|c| c.role == role);
        of_role.map(Component::environment).collect()
    }

    fn last_output(&self) -> Vec<String> {
        self.components
            .iter()
            .flat_map(Component::last_output)
            .collect()
    }

    fn extra_endpoints(&self) -> Vec<Acknowledged> {
        let servers = self.control.iter().filter_map(Control::discovery);
        let state = servers.map(|server| match server.pushed() {
            Pushed::Held(took) => {
                Acknowledged::All(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
            }
            Pushed::Underway { held, of } => Acknowledged::Some { held, of },
            Pushed::Refused(cause) => Acknowledged::Rejected(cause),
        });
        state.collect()
    }

    fn spans(&self) -> Vec<u64> {
        // The clients' pods are the first ones.
        let collectors = self.control.iter().filter_map(Control::collector);
        collectors.map(TraceCollector::spans).collect()
    }

    fn credentials(&self, issuer: Issuer, identity: &str) -> Result<Credentials, NoCertificate> {
        let root_pem = lock(self.authority).root_pem();
        let issuer = match issuer {
            Issuer::Mesh => self.authority,
            Issuer::Foreign => self.foreign,
        };
        let leaf = lock(issuer).leaf(identity).map_err(|e| NoCertificate {
            identity: identity.to_owned(),
            detail: e.to_string(),
        })?;
        Ok(Credentials {
            chain_pem: leaf.chain_pem,
            key_pem: leaf.key_pem,
            root_pem,
        })
    }
}

fn lock(
    authority: &SharedAuthority,
) -> std::sync::MutexGuard<'_, meshtax_control_plane::Authority> {
    authority.lock().unwrap_or_else(PoisonError::into_inner)
}
