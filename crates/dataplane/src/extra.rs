//! Extra endpoints: services in a proxy's configuration that receive no requests, as in a larger cluster.

use std::net::Ipv4Addr;

use meshtax_model::experiment::ExtraEndpoints;

/// A service with its endpoints, all in the mesh, with its own service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtraService {
    /// Its first name in the cluster's DNS, and its pods' service account.
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) endpoints: Vec<Ipv4Addr>,
}

impl ExtraService {
    /// In the cluster's DNS.
    pub(crate) fn dns_name(&self) -> String {
        format!("{}.default.svc.cluster.local", self.name)
    }
}

/// Addresses outside the lab: extra endpoints receive no requests.
const SERVICES: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 0);
const ENDPOINTS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

fn address(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).saturating_add(number))
}

/// All of them, in order.
pub(crate) fn services(extra_endpoints: Option<ExtraEndpoints>) -> Vec<ExtraService> {
    let Some(extra_endpoints) = extra_endpoints else {
        return Vec::new();
    };
    let service = |number: u32| {
        let first = number * extra_endpoints.per_service;
        let endpoints = first..first + extra_endpoints.endpoints_of(number);
        ExtraService {
            name: format!("known-{}", number + 1),
            address: address(SERVICES, number + 1),
            endpoints: endpoints.map(|n| address(ENDPOINTS, n + 1)).collect(),
        }
    };
    (0..extra_endpoints.services()).map(service).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn extra_names_and_addresses_are_unique() {
        let all = services(Some(ExtraEndpoints {
            endpoints: 5_003,
            per_service: 10,
            changes_per_s: None,
        }));
        let names: BTreeSet<String> = all.iter().map(ExtraService::dns_name).collect();
        let endpoints: BTreeSet<Ipv4Addr> = all.iter().flat_map(|s| s.endpoints.clone()).collect();
        assert_eq!((names.len(), endpoints.len()), (501, 5_003));
        assert_eq!(all.last().map(|s| s.endpoints.len()), Some(3));
        assert!(services(None).is_empty());
    }
}
