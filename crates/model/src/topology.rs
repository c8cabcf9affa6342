//! The services of an experiment, and their call graph.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The services of an experiment. At least one of them is an entry point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// `bookinfo`, `chain-3`; `None`: a single service without a call graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In the order of the spec.
    pub services: Vec<Service>,
}

/// A service: its pods, who may call it, and what it does for each request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Unique in its topology.
    pub name: String,
    /// The number of its pods.
    pub replicas: u32,
    /// On which side of the link its pods run.
    pub node: NodeSide,
    /// The number of server nodes over which its pods are distributed round-robin: see [`Service::node_of`].
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// What callers connect to.
    pub address: ServiceAddress,
    /// Size of the response body in bytes; `None`: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
    /// Whether clients call it. Of several entry points, each is called equally often.
    pub entry_point: bool,
    /// The user's own program in place of meshtax's application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<OwnProgram>,
    /// What it does for each request.
    #[serde(default)]
    pub work: Work,
    /// Where clients make different requests: each of them, equally often, in place of `work`, which applies to the
    /// probes' requests. Only for a single entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Page>,
}

/// A user's own program that serves in place of meshtax's application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it listens, on all addresses or on the pod's.
    pub port: u16,
    /// The path that the probes request; the response must have status 200.
    pub path: String,
}

/// What callers of a service connect to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceAddress {
    /// An address of the service itself, like the cluster IP of a Kubernetes service. A mesh balances over the replicas;
    /// without a mesh, the caller's node picks one at random for each connection.
    #[default]
    Virtual,
    /// The address of its only pod.
    Pod,
}

fn one() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(count: &u32) -> bool {
    *count == 1
}

/// One kind of request from clients to an entry point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Unique among them.
    pub name: String,
    /// Size of the response body in bytes.
    pub response_bytes: u32,
    /// The body of a form that is posted; `None`: the page is requested with GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post: Option<String>,
    /// The `cookie` header; `None`: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Steps of work, in addition to those of every request.
    #[serde(default)]
    pub burn_steps: u64,
    /// Replaces the service's own work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkStep>,
}

/// One of the two sides of the link between clients and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeSide {
    /// The clients' node.
    Client,
    /// The servers' nodes.
    Server,
}

impl NodeSide {
    /// The opposite one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for NodeSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// What a service does for a request before it responds, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Steps of work, as of [`crate::experiment::Inject::BurnSteps`].
    #[serde(default)]
    pub burn_steps: u64,
    /// A delay that blocks no other request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ServiceTime>,
    /// Calls and pauses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkStep>,
    /// The share of requests that get an error response, 0 to 1.
    #[serde(default)]
    pub error_share: f64,
}

impl Work {
    /// All calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        calls_of(&self.steps)
    }
}

fn calls_of(steps: &[WorkStep]) -> impl Iterator<Item = &Call> {
    steps.iter().flat_map(|step| match step {
        WorkStep::Calls(calls) => calls.as_slice(),
        WorkStep::SleepNs(_) => &[],
    })
}

impl Page {
    /// All calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        calls_of(&self.steps)
    }
}

/// How long a service takes in addition to its CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceTime {
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean_ns: u64,
    },
    /// Uniformly distributed over a range.
    Uniform {
        /// The shortest.
        from_ns: u64,
        /// The longest.
        to_ns: u64,
    },
    /// Its logarithm is normally distributed.
    LogNormal {
        /// The median.
        median_ns: u64,
        /// The standard deviation of the natural logarithm.
        sigma: f64,
    },
}

/// One step of a service's work; it starts when the previous one has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkStep {
    /// Calls to these services, in parallel.
    Calls(Vec<Call>),
    /// A pause, in nanoseconds.
    SleepNs(u64),
}

/// A call to another service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The name of the callee.
    pub service: String,
    /// The share of requests with this call, 0 to 1.
    pub share: f64,
}

impl Service {
    /// An entry point with one pod that responds by itself.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 1,
            node: NodeSide::Server,
            nodes: 1,
            address: ServiceAddress::default(),
            response_bytes: None,
            entry_point: true,
            program: None,
            work: Work::default(),
            pages: Vec::new(),
        }
    }

    /// All calls that it may make, for any request.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        let pages = self.pages.iter().flat_map(Page::calls);
        self.work.calls().chain(pages)
    }

    /// The index of the server node on which a replica runs; both count from 0.
    #[must_use]
    pub fn node_of(&self, replica: u32) -> u32 {
        replica % self.nodes.max(1)
    }

    /// What it does for its callers' requests, all equally often.
    fn kinds_of_request(&self) -> Vec<&[WorkStep]> {
        match self.pages.is_empty() {
            true => vec![self.work.steps.as_slice()],
            false => self.pages.iter().map(|p| p.steps.as_slice()).collect(),
        }
    }

    /// Its calls to a service for one request to itself, on average.
    fn calls_to(&self, callee: &str) -> f64 {
        self.mean_calls(|call| call.service == callee)
    }

    fn mean_calls(&self, counts: impl Fn(&Call) -> bool) -> f64 {
        let kinds = self.kinds_of_request();
        let calls = kinds.iter().flat_map(|steps| calls_of(steps));
        let all: f64 = calls.filter(|call| counts(call)).map(|c| c.share).sum();
        all / kinds.len() as f64
    }
}

impl Default for Topology {
    /// One service of one pod.
    fn default() -> Self {
        Self {
            name: None,
            services: vec![Service::new("server")],
        }
    }
}

impl Topology {
    /// The service of this name.
    #[must_use]
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The services that clients call.
    pub fn entry_points(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().filter(|service| service.entry_point)
    }

    /// How many services clients call.
    #[must_use]
    pub fn entry_point_count(&self) -> u32 {
        self.entry_points().count() as u32
    }

    /// The user's own program, if a service runs one.
    #[must_use]
    pub fn program(&self) -> Option<&OwnProgram> {
        self.services
            .iter()
            .find_map(|service| service.program.as_ref())
    }

    /// All pods of all services.
    #[must_use]
    pub fn pods(&self) -> u32 {
        let replicas = self.services.iter().map(|service| service.replicas);
        replicas.fold(0, u32::saturating_add)
    }

    /// Server nodes over which the services' pods are distributed; at least one.
    #[must_use]
    pub fn server_nodes(&self) -> u32 {
        let nodes = self.services.iter().map(|service| service.nodes);
        nodes.max().unwrap_or(1).max(1)
    }

    /// The same for requests that name no page, like those of the probes.
    #[must_use]
    pub fn without_pages(&self) -> Self {
        let mut plain = self.clone();
        for service in &mut plain.services {
            service.pages.clear();
        }
        plain
    }

    /// Calls between services per client request, on average. Each is one additional hop.
    #[must_use]
    pub fn calls_per_request(&self) -> f64 {
        let made = |service: &Service| {
            self.requests_per_request(&service.name) * service.mean_calls(|_| true)
        };
        self.services.iter().map(made).sum()
    }

    /// Calls of a service per client request, on average.
    #[must_use]
    pub fn requests_per_request(&self, name: &str) -> f64 {
        self.requests_within(name, self.services.len())
    }

    /// The same, counting only callers on the other side of the link, including clients.
    #[must_use]
    pub fn requests_across_nodes(&self, name: &str) -> f64 {
        let here = self
            .service(name)
            .map_or(NodeSide::Server, |service| service.node);
        let by_clients = match here {
            NodeSide::Client => 0.0,
            NodeSide::Server => self.requests_by_clients(name),
        };
        let across = self.services.iter().filter(|caller| caller.node != here);
        let by_services: f64 = across
            .map(|caller| caller.calls_to(name) * self.requests_per_request(&caller.name))
            .sum();
        by_clients + by_services
    }

    /// Mean number of calls from a client to this service itself, per client request.
    fn requests_by_clients(&self, name: &str) -> f64 {
        match self
            .service(name)
            .is_some_and(|service| service.entry_point)
        {
            true => 1.0 / f64::from(self.entry_point_count()),
            false => 0.0,
        }
    }

    /// Call graphs have no cycles; even with one, no path is longer than the number of services.
    fn requests_within(&self, name: &str, depth: usize) -> f64 {
        let by_clients = self.requests_by_clients(name);
        if depth == 0 {
            return by_clients;
        }
        let by_services: f64 = self
            .services
            .iter()
            .map(|caller| match caller.calls_to(name) {
                calls if calls > 0.0 => calls * self.requests_within(&caller.name, depth - 1),
                _ => 0.0,
            })
            .sum();
        by_clients + by_services
    }

    /// Calls on the critical path of one request, on average: of parallel calls, those of the longest chain.
    /// If parallel calls do not wait for each other, a request's added latency is that of this many hops.
    #[must_use]
    pub fn calls_in_sequence(&self) -> f64 {
        let entries = self.entry_points();
        let all: f64 = entries
            .map(|service| self.sequence_of(service, self.services.len()))
            .sum();
        all / f64::from(self.entry_point_count().max(1))
    }

    fn sequence_of(&self, service: &Service, depth: usize) -> f64 {
        let kinds = service.kinds_of_request();
        let all: f64 = kinds
            .iter()
            .map(|steps| self.sequence_within(steps, depth))
            .sum();
        all / kinds.len() as f64
    }

    fn sequence_within(&self, steps: &[WorkStep], depth: usize) -> f64 {
        let of_call = |call: &Call| {
            let callee = self.service(&call.service).filter(|_| depth > 0);
            let below = callee.map_or(0.0, |service| self.sequence_of(service, depth - 1));
            call.share * (1.0 + below)
        };
        let of_step = |step: &WorkStep| match step {
            WorkStep::Calls(calls) => calls.iter().map(of_call).fold(0.0, f64::max),
            WorkStep::SleepNs(_) => 0.0,
        };
        steps.iter().map(of_step).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(service: &str, share: f64) -> Call {
        Call {
            service: service.into(),
            share,
        }
    }

    fn work(steps: Vec<Vec<Call>>) -> Work {
        Work {
            steps: steps.into_iter().map(WorkStep::Calls).collect(),
            ..Work::default()
        }
    }

    fn entry(name: &str, steps: Vec<Vec<Call>>) -> Service {
        Service {
            work: work(steps),
            ..Service::new(name)
        }
    }

    fn inner(name: &str, steps: Vec<Vec<Call>>) -> Service {
        Service {
            node: NodeSide::Client,
            entry_point: false,
            ..entry(name, steps)
        }
    }

    fn topology(services: Vec<Service>) -> Topology {
        Topology {
            name: None,
            services,
        }
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-12, "{value}, not {expected}");
    }

    #[test]
    fn calls_are_counted_by_their_shares() {
        let page = entry(
            "page",
            vec![vec![call("details", 1.0)], vec![call("reviews", 1.0)]],
        );
        let bookinfo = topology(vec![
            page,
            inner("details", Vec::new()),
            inner("reviews", vec![vec![call("ratings", 0.5)]]),
            inner("ratings", Vec::new()),
        ]);
        assert_near(bookinfo.calls_per_request(), 2.5);
        assert_near(bookinfo.requests_per_request("ratings"), 0.5);
        // All but the entry point run on the clients' node here.
        assert_near(bookinfo.requests_across_nodes("reviews"), 1.0);
        assert_near(bookinfo.requests_across_nodes("ratings"), 0.0);
        assert_near(bookinfo.calls_in_sequence(), 2.5);
    }

    #[test]
    fn longest_chain_counts_among_parallel_calls() {
        let fan = topology(vec![
            entry("front", vec![vec![call("a", 1.0), call("b", 1.0)]]),
            inner("a", vec![vec![call("b", 1.0)]]),
            inner("b", Vec::new()),
        ]);
        assert_near(fan.calls_per_request(), 3.0);
        assert_near(fan.requests_per_request("b"), 2.0);
        assert_near(fan.calls_in_sequence(), 2.0);
    }

    #[test]
    fn pages_are_requested_equally_often() {
        let page = |calls: Vec<Vec<Call>>| Page {
            name: "any".into(),
            response_bytes: 1,
            post: None,
            cookie: None,
            burn_steps: 0,
            steps: work(calls).steps,
        };
        let mut front = entry("front", vec![vec![call("a", 1.0)]]);
        front.pages = vec![
            page(vec![
                vec![call("a", 1.0)],
                vec![call("a", 1.0), call("b", 1.0)],
            ]),
            page(Vec::new()),
        ];
        let shop = topology(vec![
            front,
            inner("a", vec![vec![call("b", 1.0)]]),
            inner("b", Vec::new()),
        ]);
        assert_near(shop.requests_per_request("a"), 1.0);
        assert_near(shop.requests_per_request("b"), 1.5);
        assert_near(shop.calls_per_request(), 2.5);
        assert_near(shop.calls_in_sequence(), 2.0);
        assert_eq!(shop.services[0].calls().count(), 4);
        assert_near(shop.without_pages().calls_per_request(), 2.0);
    }

    /// `web-2` is called by clients and by `web-1` as well, and runs on the same node as `web-1`.
    #[test]
    fn entry_points_are_called_equally_often() {
        let tiers = topology(vec![
            entry(
                "web-1",
                vec![vec![call("app", 1.0)], vec![call("web-2", 0.5)]],
            ),
            entry("web-2", vec![vec![call("app", 1.0)]]),
            entry("web-3", Vec::new()),
            inner("app", Vec::new()),
            entry("web-4", Vec::new()),
        ]);
        assert_eq!(tiers.entry_point_count(), 4);
        assert_near(tiers.requests_per_request("web-1"), 0.25);
        assert_near(tiers.requests_per_request("web-2"), 0.375);
        assert_near(tiers.requests_per_request("app"), 0.625);
        // Clients run on the other node than these, and `web-1` does not.
        assert_near(tiers.requests_across_nodes("web-1"), 0.25);
        assert_near(tiers.requests_across_nodes("web-2"), 0.25);
        assert_near(tiers.requests_across_nodes("app"), 0.625);
        assert_near(tiers.calls_per_request(), 0.25 * 1.5 + 0.375);
        assert_near(tiers.calls_in_sequence(), (2.0 + 1.0) / 4.0);
    }

    #[test]
    fn call_count_of_a_cyclic_graph_terminates() {
        let cycle = topology(vec![
            entry("a", vec![vec![call("b", 1.0)]]),
            inner("b", vec![vec![call("b", 1.0)]]),
        ]);
        assert!(cycle.calls_per_request().is_finite());
        assert!(cycle.calls_in_sequence().is_finite());
    }
}
