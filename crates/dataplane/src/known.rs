//! Services that a proxy knows of and is never asked for: what a cluster has besides the application that is measured.

use std::net::Ipv4Addr;

use meshtax_model::experiment::Knows;

/// A service with its endpoints, all of the mesh, under an account of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownService {
    /// Its first name in the cluster's DNS, and its pods' service account.
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) endpoints: Vec<Ipv4Addr>,
}

impl KnownService {
    /// In the cluster's DNS.
    pub(crate) fn dns_name(&self) -> String {
        format!("{}.default.svc.cluster.local", self.name)
    }
}

/// Addresses that no lab has: what is known is never called.
const SERVICES: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 0);
const ENDPOINTS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 0);

fn address(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).saturating_add(number))
}

/// All of them, in order.
pub(crate) fn services(knows: Option<Knows>) -> Vec<KnownService> {
    let Some(knows) = knows else {
        return Vec::new();
    };
    let service = |number: u32| {
        let first = number * knows.per_service;
        let endpoints = first..first + knows.endpoints_of(number);
        KnownService {
            name: format!("known-{}", number + 1),
            address: address(SERVICES, number + 1),
            endpoints: endpoints.map(|n| address(ENDPOINTS, n + 1)).collect(),
        }
    };
    (0..knows.services()).map(service).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_and_address_stands_once() {
        let all = services(Some(Knows {
            endpoints: 5_003,
            per_service: 10,
            changes_per_s: None,
        }));
        let names: BTreeSet<String> = all.iter().map(KnownService::dns_name).collect();
        let endpoints: BTreeSet<Ipv4Addr> = all.iter().flat_map(|s| s.endpoints.clone()).collect();
        assert_eq!((names.len(), endpoints.len()), (501, 5_003));
        assert_eq!(all.last().map(|s| s.endpoints.len()), Some(3));
        assert!(services(None).is_empty());
    }
}
