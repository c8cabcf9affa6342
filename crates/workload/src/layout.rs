//! The names of pods, and which services they call.

use meshtax_model::topology::Service;

/// The first pod of the clients in the mesh, and the service account of all of them.
pub const CLIENT: &str = "client";

/// The pod of a client in the mesh, counted from 0: `client`, `client-2`.
#[must_use]
pub fn client_name(client: u32) -> String {
    numbered(CLIENT, client)
}

/// The pod of a service's replica, counted from 0: `reviews`, `reviews-2`.
#[must_use]
pub fn pod_name(service: &Service, replica: u32) -> String {
    numbered(&service.name, replica)
}

fn numbered(name: &str, index: u32) -> String {
    match index {
        0 => name.to_owned(),
        _ => format!("{name}-{}", index + 1),
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
