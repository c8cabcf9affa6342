//! Whether a load passed the proxies: what they and the applications counted while it ran.

use std::collections::BTreeMap;

use meshtax_agent::ClientLoad;
use meshtax_dataplane::{Pod, ProcessScope, TrafficCounter};
use meshtax_model::experiment::{LoadPoint, Protocol};
use meshtax_model::failure::{LostEvidence, TrafficUnit};
use meshtax_model::trial::{ComponentRole, LoadResult};
use meshtax_workload::Demand;

use crate::requests::{app_stats, local_page};
use crate::subject::Subject;
use crate::vantage::Vantage;

/// Where a load enters, and which counters apply to it.
#[derive(Clone, Copy, Debug)]
pub struct LoadPath<'a> {
    /// Its load point.
    pub point: &'a LoadPoint,
    /// The port of the applications that it calls.
    pub port: u16,
    /// Whether the applications count their requests.
    pub apps_count: bool,
}

impl<'a> LoadPath<'a> {
    /// Of the loads that an experiment demands at this point.
    #[must_use]
    pub fn of(demand: &Demand<'_>, point: &'a LoadPoint) -> Self {
        let has_own_program = demand.topology.program().is_some();
        Self {
            point,
            port: demand.target(point).0,
            apps_count: point.protocol != Protocol::Tcp && !has_own_program,
        }
    }

    /// Whether the proxies of this counter forward the load, in this unit.
    fn passes(&self, counter: &TrafficCounter, counters: &[TrafficCounter]) -> bool {
        let of_hop = |other: &&TrafficCounter| {
            (other.role, &other.workload) == (counter.role, &counter.workload)
        };
        let mut of_hop = counters.iter().filter(of_hop);
        let is_http = self.point.protocol != Protocol::Tcp;
        let counts_responses = of_hop.any(|other| other.unit == TrafficUnit::Responses);
        let unit = match is_http && counts_responses {
            true => TrafficUnit::Responses,
            false => TrafficUnit::Bytes,
        };
        let enters = match counter.role {
            ComponentRole::ClientProxy => self.point.ingress.is_none(),
            ComponentRole::Gateway => self.point.ingress.is_some(),
            _ => true,
        };
        enters && counter.unit == unit
    }
}

/// The proxies of one workload.
type Hop = (ComponentRole, String, TrafficUnit);

/// What the proxies and the applications had counted at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// By the proxies.
    hops: BTreeMap<Hop, u64>,
    /// Successful responses of each service's applications, and whether clients call it; empty where they do not count.
    services: BTreeMap<String, (bool, u64)>,
}

/// Reads the counters that a load of this kind increments.
///
/// # Errors
/// If a page cannot be read. A series that does not exist yet is zero.
pub fn read_traffic(subject: &Subject<'_>, path: LoadPath<'_>) -> Result<Traffic, LostEvidence> {
    let mut traffic = Traffic::default();
    let counters = &subject.contract.traffic;
    for counter in counters.iter().filter(|c| path.passes(c, counters)) {
        let mut sum = 0;
        for at in proxies(subject, counter) {
            let page = local_page(at, counter.counter.port, &counter.counter.path);
            sum += counted(&page.map_err(unreadable)?, counter);
        }
        let hop = (counter.role, counter.workload.clone(), counter.unit);
        *traffic.hops.entry(hop).or_default() += sum;
    }
    if path.apps_count && !traffic.hops.is_empty() {
        for service in &subject.site.services {
            let port = match service.entry_point {
                true => path.port,
                false => service.port(),
            };
            let mut succeeded = 0;
            for pod in &service.pods {
                let stats = app_stats(subject.at(pod), port).map_err(unreadable)?;
                succeeded += stats.requests.saturating_sub(stats.errors);
            }
            let count = (service.entry_point, succeeded);
            traffic.services.insert(service.name.clone(), count);
        }
    }
    Ok(traffic)
}

fn unreadable(cause: impl ToString) -> LostEvidence {
    LostEvidence::UnreadableCounters {
        detail: cause.to_string(),
    }
}

/// Where the pages of a counter are.
fn proxies<'a>(subject: &Subject<'a>, counter: &TrafficCounter) -> Vec<&'a dyn Vantage> {
    let site = subject.site;
    let pods: Vec<&Pod> = match site.service(&counter.workload) {
        Some(service) if counter.role == ComponentRole::ServerProxy => {
            service.pods.iter().collect()
        }
        _ => site
            .pods()
            .filter(|pod| pod.name == counter.workload)
            .collect(),
    };
    if counter.scope == ProcessScope::Pod {
        return pods.into_iter().map(|pod| subject.at(pod)).collect();
    }
    let mut nodes = Vec::new();
    for pod in pods {
        if !nodes.contains(&pod.node) {
            nodes.push(pod.node);
        }
    }
    let nodes = nodes.into_iter();
    nodes.map(|node| subject.at_node(node)).collect()
}

/// The sum of a counter's lines.
fn counted(page: &str, counter: &TrafficCounter) -> u64 {
    page.lines()
        .filter(|line| line.starts_with(&counter.counter.series))
        .filter(|line| counter.with.iter().all(|part| line.contains(part)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Bytes of a response's head that proxies add on its way to the client, at most.
const ADDED_BYTES: f64 = 512.0;
/// The head of a response is at least this long: a frame of HTTP/2.
const LEAST_BYTES: f64 = 9.0;
/// Of what a hop must have counted: requests can be in flight when the counters are read.
const LEAST_SHARE: f64 = 0.99;

impl Traffic {
    /// The hops that counted less since `before` than passed them, if all of the load did. `parts`: of each client.
    #[must_use]
    pub fn lost_since(
        &self,
        before: &Self,
        load: &LoadResult,
        parts: &[ClientLoad],
    ) -> Vec<LostEvidence> {
        let served = |name: &String, count: u64| {
            let then = before.services.get(name).map_or(0, |(_, then)| *then);
            count.saturating_sub(then)
        };
        let called = self
            .services
            .iter()
            .filter(|(_, (is_called, _))| *is_called);
        let called: Vec<u64> = called
            .map(|(name, (_, count))| served(name, *count))
            .collect();
        // The warm-up is in no tally of the load; the applications have counted it.
        let all = called.iter().sum::<u64>().max(succeeded(load));
        let response_bytes = response_bytes(load);
        let of_services = self.hops.keys().filter(|(role, ..)| *role != CLIENTS);
        let lost = of_services.filter_map(|hop| {
            let (role, workload, _) = hop;
            let (is_called, responses) = match (role, self.services.get(workload)) {
                (ComponentRole::ServerProxy, Some((true, _))) if called.len() == 1 => (true, all),
                (ComponentRole::ServerProxy, Some((is_called, count))) => {
                    (*is_called, served(workload, *count))
                }
                // Which of several services had how many is not known.
                (ComponentRole::ServerProxy, None) => (true, all.min(1)),
                _ => (true, all),
            };
            let bytes = match role {
                // The responses of services behind the first have sizes of their own.
                ComponentRole::ServerProxy if !is_called => LEAST_BYTES,
                _ => response_bytes - ADDED_BYTES,
            };
            bypassed(hop, self.counted_since(before, hop), responses, bytes)
        });
        let of_clients = self.lost_at_clients(before, all, response_bytes, parts);
        of_clients.into_iter().chain(lost).collect()
    }

    /// The clients' proxies that counted less than their own client's requests; or else all of them together, if they
    /// counted less than `all` requests.
    fn lost_at_clients(
        &self,
        before: &Self,
        all: u64,
        all_bytes: f64,
        parts: &[ClientLoad],
    ) -> Vec<LostEvidence> {
        let of_clients = || self.hops.keys().filter(|(role, ..)| *role == CLIENTS);
        let own = |hop: &Hop| {
            let part = parts.iter().find(|part| part.client == hop.1)?;
            let (responses, bytes) = (succeeded(&part.result), response_bytes(&part.result));
            bypassed(hop, self.counted_since(before, hop), responses, bytes)
        };
        let lost: Vec<LostEvidence> = of_clients().filter_map(own).collect();
        if !lost.is_empty() {
            return lost;
        }
        let counted: u64 = of_clients()
            .map(|hop| self.counted_since(before, hop))
            .sum();
        let first = of_clients().next();
        let together = first.and_then(|hop| bypassed(hop, counted, all, all_bytes));
        together.into_iter().collect()
    }

    fn counted_since(&self, before: &Self, hop: &Hop) -> u64 {
        let count = |traffic: &Self| traffic.hops.get(hop).copied().unwrap_or(0);
        count(self).saturating_sub(count(before))
    }
}

const CLIENTS: ComponentRole = ComponentRole::ClientProxy;

fn succeeded(load: &LoadResult) -> u64 {
    load.status.range(200..300).map(|(_, count)| count).sum()
}

/// Of a response with its head, on average.
fn response_bytes(load: &LoadResult) -> f64 {
    load.bytes_received as f64 / load.completed.max(1) as f64
}

/// A hop that counted too little for so many responses, each of so many bytes at least.
fn bypassed(hop: &Hop, counted: u64, responses: u64, bytes: f64) -> Option<LostEvidence> {
    let (role, workload, unit) = hop;
    let expected = match unit {
        TrafficUnit::Responses => responses as f64,
        TrafficUnit::Bytes => responses as f64 * bytes.max(LEAST_BYTES),
    };
    let expected = (expected * LEAST_SHARE) as u64;
    (counted < expected).then(|| LostEvidence::BypassedRequests {
        role: *role,
        workload: workload.clone(),
        unit: *unit,
        counted,
        expected,
    })
}

/// The first client whose first proxy did not hold all of its connections while they were open. `held`: in the order of
/// the clients; `None`: they could not be counted.
#[must_use]
pub fn lost_connections(held: &[Option<u32>], parts: &[ClientLoad]) -> Option<LostEvidence> {
    let of_client = |(index, part): (usize, &ClientLoad)| {
        let open = part.open;
        match held.get(index).copied().flatten() {
            None => Some(LostEvidence::UncountedConnections),
            // A proxy without any was not in the path: what it rejects as a server, it may have ended before this count.
            Some(held) if held < open || held == 0 => Some(LostEvidence::BypassedConnections {
                held,
                open,
                client: (parts.len() > 1).then(|| part.client.clone()),
            }),
            Some(_) => None,
        }
    };
    parts.iter().enumerate().find_map(of_client)
}

#[cfg(test)]
mod tests {
    use meshtax_dataplane::Counter;

    use super::*;

    const CLIENT: ComponentRole = ComponentRole::ClientProxy;
    const SERVER: ComponentRole = ComponentRole::ServerProxy;

    fn traffic(hops: &[(ComponentRole, &str, TrafficUnit, u64)], apps: &[(&str, u64)]) -> Traffic {
        let hops = hops.iter().copied();
        let apps = apps.iter().copied();
        Traffic {
            hops: hops
                .map(|(role, name, unit, count)| ((role, name.to_owned(), unit), count))
                .collect(),
            services: apps
                .map(|(name, count)| (name.to_owned(), (name == "front", count)))
                .collect(),
        }
    }

    fn load(completed: u64) -> LoadResult {
        LoadResult {
            completed,
            status: BTreeMap::from([(200, completed)]),
            bytes_received: completed * 1200,
            ..LoadResult::default()
        }
    }

    /// What clients of these names were answered, each so often.
    fn parts(clients: &[(&str, u64)]) -> Vec<ClientLoad> {
        let part = |(client, completed): &(&str, u64)| ClientLoad {
            client: (*client).to_owned(),
            open: 8,
            result: load(*completed),
        };
        clients.iter().map(part).collect()
    }

    fn lost(after: &Traffic, before: &Traffic) -> Vec<String> {
        lost_of(after, before, &[("client", 100)])
    }

    fn lost_of(after: &Traffic, before: &Traffic, clients: &[(&str, u64)]) -> Vec<String> {
        let lost = after.lost_since(before, &load(100), &parts(clients));
        let workload = |lost: LostEvidence| match lost {
            LostEvidence::BypassedRequests { workload, .. } => workload,
            other => panic!("{other:?}"),
        };
        lost.into_iter().map(workload).collect()
    }

    #[test]
    fn hop_that_counted_less_than_its_application_served_is_reported() {
        use TrafficUnit::Responses;
        let before = traffic(
            &[
                (CLIENT, "client", Responses, 7),
                (SERVER, "front", Responses, 50),
                (SERVER, "back", Responses, 0),
            ],
            &[("front", 50), ("back", 9)],
        );
        let after = |client, front, back| {
            traffic(
                &[
                    (CLIENT, "client", Responses, client),
                    (SERVER, "front", Responses, front),
                    (SERVER, "back", Responses, back),
                ],
                // 120 with the warm-up, and two calls for each.
                &[("front", 170), ("back", 249)],
            )
        };
        assert_eq!(lost(&after(127, 170, 240), &before), [""; 0]);
        // The window's 100 alone are not enough.
        assert_eq!(lost(&after(107, 170, 240), &before), ["client"]);
        assert_eq!(lost(&after(127, 50, 240), &before), ["front"]);
        assert_eq!(lost(&after(127, 170, 120), &before), ["back"]);
        // Not even the application has seen the load.
        assert_eq!(lost(&before, &before), ["client", "front"]);
    }

    #[test]
    fn client_whose_proxy_counted_less_than_its_own_requests_is_reported() {
        use TrafficUnit::Responses;
        let clients = [("client", 60), ("client-2", 40)];
        let counted = |first, second| {
            let hops = [
                (CLIENT, "client", Responses, first),
                (CLIENT, "client-2", Responses, second),
            ];
            traffic(&hops, &[("front", 120)])
        };
        let lost = |after: &Traffic| lost_of(after, &Traffic::default(), &clients);
        assert_eq!(lost(&counted(72, 48)), [""; 0]);
        // The other one's surplus does not hide it.
        assert_eq!(lost(&counted(120, 20)), ["client-2"]);
        assert_eq!(lost(&counted(0, 0)), ["client", "client-2"]);
        // Each has its window's requests, and the warm-up's are missing.
        assert_eq!(lost(&counted(60, 40)), ["client"]);
        // A node's proxy counts all clients as one.
        let of_node = |count| {
            let hops = [(CLIENT, "client", Responses, count)];
            traffic(&hops, &[("front", 120)])
        };
        assert_eq!(lost(&of_node(120)), [""; 0]);
        assert_eq!(lost(&of_node(80)), ["client"]);
    }

    #[test]
    fn bytes_are_compared_with_the_responses() {
        use TrafficUnit::Bytes;
        let hops = |client, front| {
            traffic(
                &[
                    (CLIENT, "client", Bytes, client),
                    (SERVER, "front", Bytes, front),
                ],
                &[],
            )
        };
        let before = hops(1000, 0);
        assert_eq!(lost(&hops(121_000, 9000), &before), [""; 0]);
        assert_eq!(lost(&hops(1000, 9000), &before), ["client"]);
        assert_eq!(lost(&hops(121_000, 0), &before), ["front"]);
        // With the application's count, its proxies must have sent that many responses.
        let counted = traffic(&[(SERVER, "front", Bytes, 9000)], &[("front", 100)]);
        assert_eq!(lost(&counted, &Traffic::default()), ["front"]);
    }

    #[test]
    fn lines_of_a_counter_are_summed() {
        let counter = TrafficCounter {
            role: SERVER,
            workload: "front".into(),
            unit: TrafficUnit::Bytes,
            scope: ProcessScope::Pod,
            counter: Counter {
                port: 1,
                path: "/metrics".into(),
                series: "sent{".into(),
            },
            with: vec!["to=\"front\"".into()],
        };
        let page = "# HELP sent\nsent{to=\"front\",a=\"1\"} 40\nsent{to=\"front\",a=\"2\"} 2\n\
                    sent{to=\"back\"} 100\nsent_more{to=\"front\"} 1000\n";
        assert_eq!(counted(page, &counter), 42);
        assert_eq!(counted("", &counter), 0);
    }

    #[test]
    fn connections_that_cannot_be_counted_are_lost_evidence() {
        let one = parts(&[("client", 1)]);
        assert_eq!(lost_connections(&[Some(8)], &one), None);
        assert_eq!(
            lost_connections(&[None], &one),
            Some(LostEvidence::UncountedConnections)
        );
        let bypassed = |client: Option<&str>| LostEvidence::BypassedConnections {
            held: 7,
            open: 8,
            client: client.map(str::to_owned),
        };
        assert_eq!(lost_connections(&[Some(7)], &one), Some(bypassed(None)));
        // The other client's do not make up for it.
        let two = parts(&[("client", 1), ("client-2", 1)]);
        assert_eq!(
            lost_connections(&[Some(9), Some(7)], &two),
            Some(bypassed(Some("client-2")))
        );
    }
}
