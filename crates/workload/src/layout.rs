//! The names of pods, and which services they call.

use meshtax_model::topology::Service;

/// The pod of the clients in the mesh, and their service account.
pub const CLIENT: &str = "client";

/// The pod of a service's replica, counted from 0: `reviews`, `reviews-2`.
#[must_use]
pub fn pod_name(service: &Service, replica: u32) -> String {
    match replica {
        0 => service.name.clone(),
        _ => format!("{}-{}", service.name, replica + 1),
    }
}

/// The names of the services that it calls, each once.
#[must_use]
pub fn callees(service: &Service) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for call in service.calls() {
        if !names.contains(&call.service) {
            names.push(call.service.clone());
        }
    }
    names
}
