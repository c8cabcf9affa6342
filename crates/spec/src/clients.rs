//! Several client pods, each with its own proxy: what an experiment must have for them.

use meshtax_model::experiment::Experiment;

use crate::grammar::{ValueError, count};
use crate::topology::{RoundedConnections, round_connections};
use crate::{ingress, service};

/// The key for the number of client pods.
pub(crate) const KEY: &str = "clients";

/// Each of them is a pod with a proxy on one node, in every variant.
const MOST: u32 = 64;

/// The number of client pods: 1 to 64.
///
/// # Errors
/// If it is not.
pub fn clients(text: &str) -> Result<u32, ValueError> {
    count(text, "a number of client pods", 1, MOST)
}

/// Has an experiment's load come from so many client pods, as `--clients` does. Returns the numbers of connections that
/// were increased, because they cannot be distributed evenly over the clients and the services that they call.
///
/// # Errors
/// If the load cannot be divided among them, or comes from outside the mesh.
pub fn set_clients(
    experiment: &mut Experiment,
    clients: u32,
) -> Result<Vec<RoundedConnections>, ValueError> {
    experiment.workload.clients = clients;
    let rounded = round_connections(experiment);
    validate(experiment)?;
    ingress::validate(experiment)?;
    service::room_for_all(experiment)?;
    Ok(rounded)
}

/// Rejects a load that cannot be divided among the clients: each needs a connection, and each trial of a given number of
/// requests one of them.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), ValueError> {
    let clients = experiment.workload.clients;
    let mut points = experiment.load_points.iter();
    if let Some(point) = points.find(|point| experiment.connections(point) < clients) {
        let connections = experiment.connections(point);
        let key = match point.by_users {
            true => "users",
            false => "connections",
        };
        return Err(ValueError::new(
            format!(
                "the load point `{}` has {connections} {key}, which cannot be divided among {clients} clients",
                point.id
            ),
            format!("write `{key}: {clients}` or more, or use fewer clients"),
        ));
    }
    match experiment.design.requests_per_trial {
        Some(requests) if requests < u64::from(clients) => Err(ValueError::new(
            format!(
                "a trial has {requests} requests, which cannot be divided among {clients} clients"
            ),
            "use fewer clients, or more requests per trial",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &str) -> Result<Experiment, crate::SpecError> {
        let text = format!("variants: [{{data-plane: limit-mtls}}]\n{more}");
        crate::parse("mine.yaml", &text)
    }

    #[test]
    fn one_client_is_the_default() {
        let one = read("").unwrap();
        assert_eq!((one.workload.clients, one.workload.connections), (1, 32));
        let four = read("workload: {clients: 4}\n").unwrap();
        assert_eq!((four.workload.clients, four.workload.connections), (4, 32));
        // Each has a connection.
        let many = read("workload: {clients: 40}\n").unwrap();
        assert_eq!(many.workload.connections, 40);
    }

    #[test]
    fn load_that_cannot_be_divided_among_the_clients_is_rejected_with_the_fix() {
        for (more, line, problem, fix) in [
            (
                "workload: {clients: 0}\n",
                2,
                "out of range",
                "whole numbers from 1 to 64",
            ),
            (
                "workload: {clients: 65}\n",
                2,
                "out of range",
                "whole numbers from 1 to 64",
            ),
            (
                "workload:\n  connections: 3\n  clients: 4\n",
                4,
                "has 3 connections, which cannot be divided among 4 clients",
                "write `connections: 4` or more",
            ),
            (
                "workload: {clients: 4}\nload: [{steady: {rate: 1000, users: 2}}]\n",
                2,
                "has 2 users, which cannot be divided among 4 clients",
                "write `users: 4` or more",
            ),
            (
                "workload: {clients: 2, ingress: tls}\n",
                2,
                "clients outside the mesh have no proxies of their own",
                "omit `clients`, or `ingress`",
            ),
        ] {
            let rejected = read(more).unwrap_err();
            assert_eq!(rejected.line, Some(line), "{more}: {rejected}");
            assert!(rejected.message.contains(problem), "{more}: {rejected}");
            assert!(rejected.fix.contains(fix), "{more}: {}", rejected.fix);
        }
    }

    #[test]
    fn each_client_has_the_same_number_of_connections_to_each_of_several_services() {
        let tiers = "topology: tiers-3\n";
        let four = read(&format!("{tiers}workload: {{clients: 4}}\n")).unwrap();
        assert_eq!(four.workload.connections, 36);
        let uneven = read(&format!(
            "{tiers}workload: {{clients: 4, connections: 33}}\n"
        ));
        let uneven = uneven.unwrap_err();
        assert!(
            uneven.fix.contains("write `connections: 36`"),
            "{}",
            uneven.fix
        );
        let mut one = read(tiers).unwrap();
        let rounded = set_clients(&mut one, 4).unwrap();
        assert_eq!((one.workload.connections, rounded.len()), (36, 1));
    }
}
