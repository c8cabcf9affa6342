//! Services that call each other: the call graph behind the services that clients call.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A call graph. Without one, the service that clients call answers by itself. Of several that clients call, the first
/// has a place of its own here, and each is called as often as the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// What it is called: `bookinfo`, `chain-3`.
    pub name: String,
    /// The first service that clients call, under this name; its replicas and the size of its answers are the
    /// experiment's own. No other service calls it.
    pub entry: String,
    /// What that service does for each request.
    #[serde(default)]
    pub work: Work,
    /// Where clients ask for different things: each of them, as often as the others, in place of `work`, which is what
    /// the probes ask for. Only where clients call one service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pages: Vec<Page>,
    /// All others, in the order of the spec.
    pub others: Vec<GraphService>,
}

/// One of the things that clients ask the first service for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Unique among them.
    pub name: String,
    /// Size of the answer's body in bytes.
    pub response_bytes: u32,
    /// Steps of work, besides those of every request.
    #[serde(default)]
    pub burn_steps: u64,
    /// In place of the service's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

/// A service besides the first that clients call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphService {
    /// Unique in its graph.
    pub name: String,
    /// Pods that it stands on, all equal.
    pub replicas: u32,
    /// Size of the answer's body in bytes; `None`, where clients call it: the experiment's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u32>,
    /// Where its pods stand.
    pub node: GraphNode,
    /// Whether clients call it, as they do the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clients: bool,
    /// What it does for each request.
    #[serde(default)]
    pub work: Work,
}

/// A node of the two that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphNode {
    /// Where the clients stand.
    Client,
    /// Where the service stands that clients call.
    Server,
}

impl GraphNode {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for GraphNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// What a service does for a request before it answers, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Steps of work, as of [`crate::experiment::Inject::BurnSteps`].
    #[serde(default)]
    pub burn_steps: u64,
    /// A time that passes, and holds up no other request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ServiceTime>,
    /// Calls and pauses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The share of requests that are answered with an error, 0 to 1.
    #[serde(default)]
    pub error_share: f64,
}

impl Work {
    /// All calls, in their order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        calls_of(&self.steps)
    }
}

fn calls_of(steps: &[Step]) -> impl Iterator<Item = &Call> {
    steps.iter().flat_map(|step| match step {
        Step::Calls(calls) => calls.as_slice(),
        Step::SleepNs(_) => &[],
    })
}

impl Page {
    /// All calls, in their order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        calls_of(&self.steps)
    }
}

/// How long a service takes besides its CPU. In nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceTime {
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean_ns: u64,
    },
    /// Any time of a range, all alike.
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

/// One thing that is done, when the one before it is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// These services are called, all at once.
    Calls(Vec<Call>),
    /// So long nothing happens, in nanoseconds.
    SleepNs(u64),
}

/// A call of another service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Whom.
    pub service: String,
    /// For which share of the requests, 0 to 1.
    pub share: f64,
}

impl Graph {
    /// The service of this name, if it is not the first that clients call.
    #[must_use]
    pub fn other(&self, name: &str) -> Option<&GraphService> {
        self.others.iter().find(|service| service.name == name)
    }

    /// The services' names and what each does, the first that clients call in front.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Work)> {
        let entry = (self.entry.as_str(), &self.work);
        let others = self.others.iter().map(|s| (s.name.as_str(), &s.work));
        std::iter::once(entry).chain(others)
    }

    /// How many services clients call.
    #[must_use]
    pub fn called(&self) -> u32 {
        1 + self.others.iter().filter(|s| s.clients).count() as u32
    }

    /// Whether clients call the service of this name.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        name == self.entry || self.other(name).is_some_and(|service| service.clients)
    }

    /// How often a request of a client goes to this service itself, on average.
    fn asked_by_clients(&self, name: &str) -> f64 {
        match self.is_called(name) {
            true => 1.0 / f64::from(self.called()),
            false => 0.0,
        }
    }

    /// Pods besides those of the first service that clients call.
    #[must_use]
    pub fn pods(&self) -> u32 {
        let replicas = self.others.iter().map(|service| service.replicas);
        replicas.fold(0, u32::saturating_add)
    }

    /// What the first service that clients call may call, for whatever is asked of it.
    pub fn entry_calls(&self) -> impl Iterator<Item = &Call> {
        let pages = self.pages.iter().flat_map(Page::calls);
        self.work.calls().chain(pages)
    }

    /// The same for requests that ask for no page, as the probes'.
    #[must_use]
    pub fn without_pages(&self) -> Self {
        Self {
            pages: Vec::new(),
            ..self.clone()
        }
    }

    /// What the first service does for the requests of clients, all as often.
    fn of_first(&self) -> Vec<&[Step]> {
        match self.pages.is_empty() {
            true => vec![self.work.steps.as_slice()],
            false => self.pages.iter().map(|p| p.steps.as_slice()).collect(),
        }
    }

    /// The services' names, with the calls that each makes for a request of its own and how often, on average.
    fn callers(&self) -> impl Iterator<Item = (&str, Vec<(&Call, f64)>)> {
        let of_first = self.of_first();
        let share = 1.0 / of_first.len() as f64;
        let first = of_first.into_iter().flat_map(calls_of);
        let first: Vec<(&Call, f64)> = first.map(|call| (call, call.share * share)).collect();
        let others = self.others.iter().map(|service| {
            let calls = service.work.calls().map(|call| (call, call.share));
            (service.name.as_str(), calls.collect::<Vec<_>>())
        });
        std::iter::once((self.entry.as_str(), first)).chain(others)
    }

    /// Calls between services for one request of a client, on average. Each is a hop more than a pair has.
    #[must_use]
    pub fn calls_per_request(&self) -> f64 {
        self.callers()
            .map(|(name, calls)| {
                let made: f64 = calls.iter().map(|(_, share)| share).sum();
                self.requests_per_request(name) * made
            })
            .sum()
    }

    /// How often a service is asked for one request of a client, on average.
    #[must_use]
    pub fn requests_per_request(&self, name: &str) -> f64 {
        self.requests_within(name, self.others.len() + 1)
    }

    /// The same, by callers that stand on the other node alone, clients among them.
    #[must_use]
    pub fn requests_across(&self, name: &str) -> f64 {
        let node = |name: &str| self.other(name).map_or(GraphNode::Server, |s| s.node);
        let by_clients = match node(name) {
            GraphNode::Client => 0.0,
            GraphNode::Server => self.asked_by_clients(name),
        };
        let across = self
            .callers()
            .filter(|(caller, _)| node(caller) != node(name));
        let by_services: f64 = across
            .map(|(caller, calls)| share_of(&calls, name) * self.requests_per_request(caller))
            .sum();
        by_clients + by_services
    }

    /// Graphs have no cycles; whatever is given here, no path is longer than there are services.
    fn requests_within(&self, name: &str, depth: usize) -> f64 {
        let by_clients = self.asked_by_clients(name);
        if depth == 0 {
            return by_clients;
        }
        let by_services: f64 = self
            .callers()
            .map(|(caller, calls)| match share_of(&calls, name) {
                share if share > 0.0 => share * self.requests_within(caller, depth - 1),
                _ => 0.0,
            })
            .sum();
        by_clients + by_services
    }

    /// Calls that lie one behind the other in time for one request, on average: of calls that are made at
    /// once, those of the longest chain. What a hop adds to the latency, this many hops add, if calls that
    /// are made at once do not wait for each other.
    #[must_use]
    pub fn calls_in_sequence(&self) -> f64 {
        let depth = self.others.len() + 1;
        let of_first = self.of_first();
        let pages = of_first.len() as f64;
        let first: f64 = of_first
            .into_iter()
            .map(|steps| self.sequence_within(steps, depth) / pages)
            .sum();
        let further = self.others.iter().filter(|service| service.clients);
        let further: f64 = further
            .map(|service| self.sequence_within(&service.work.steps, depth))
            .sum();
        (first + further) / f64::from(self.called())
    }

    fn sequence_within(&self, steps: &[Step], depth: usize) -> f64 {
        let of_call = |call: &Call| {
            let callee = self.other(&call.service).filter(|_| depth > 0);
            let below = callee.map_or(0.0, |s| self.sequence_within(&s.work.steps, depth - 1));
            call.share * (1.0 + below)
        };
        let of_step = |step: &Step| match step {
            Step::Calls(calls) => calls.iter().map(of_call).fold(0.0, f64::max),
            Step::SleepNs(_) => 0.0,
        };
        steps.iter().map(of_step).sum()
    }
}

/// How often one service is among the calls.
fn share_of(calls: &[(&Call, f64)], name: &str) -> f64 {
    let to_it = calls.iter().filter(|(call, _)| call.service == name);
    to_it.map(|(_, share)| share).sum()
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
            steps: steps.into_iter().map(Step::Calls).collect(),
            ..Work::default()
        }
    }

    fn service(name: &str, work: Work) -> GraphService {
        GraphService {
            name: name.into(),
            replicas: 1,
            response_bytes: Some(1),
            node: GraphNode::Client,
            clients: false,
            work,
        }
    }

    #[test]
    fn calls_are_counted_by_their_shares() {
        let graph = Graph {
            name: "bookinfo".into(),
            entry: "page".into(),
            pages: Vec::new(),
            work: work(vec![vec![call("details", 1.0)], vec![call("reviews", 1.0)]]),
            others: vec![
                service("details", Work::default()),
                service("reviews", work(vec![vec![call("ratings", 0.5)]])),
                service("ratings", Work::default()),
            ],
        };
        assert!((graph.calls_per_request() - 2.5).abs() < 1e-12);
        assert!((graph.requests_per_request("ratings") - 0.5).abs() < 1e-12);
        // All but the entry stand beside the clients here.
        assert!((graph.requests_across("reviews") - 1.0).abs() < 1e-12);
        assert!(graph.requests_across("ratings").abs() < 1e-12);
        assert!((graph.calls_in_sequence() - 2.5).abs() < 1e-12);
    }

    #[test]
    fn of_calls_at_once_the_longest_counts() {
        let graph = Graph {
            name: "fan".into(),
            entry: "front".into(),
            pages: Vec::new(),
            work: work(vec![vec![call("a", 1.0), call("b", 1.0)]]),
            others: vec![
                service("a", work(vec![vec![call("b", 1.0)]])),
                service("b", Work::default()),
            ],
        };
        assert!((graph.calls_per_request() - 3.0).abs() < 1e-12);
        assert!((graph.requests_per_request("b") - 2.0).abs() < 1e-12);
        assert!((graph.calls_in_sequence() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn of_pages_each_is_asked_for_as_often() {
        let page = |calls: Vec<Vec<Call>>| Page {
            name: "any".into(),
            response_bytes: 1,
            burn_steps: 0,
            steps: work(calls).steps,
        };
        let graph = Graph {
            name: "shop".into(),
            entry: "front".into(),
            work: work(vec![vec![call("a", 1.0)]]),
            pages: vec![
                page(vec![
                    vec![call("a", 1.0)],
                    vec![call("a", 1.0), call("b", 1.0)],
                ]),
                page(Vec::new()),
            ],
            others: vec![
                service("a", work(vec![vec![call("b", 1.0)]])),
                service("b", Work::default()),
            ],
        };
        assert!((graph.requests_per_request("a") - 1.0).abs() < 1e-12);
        assert!((graph.requests_per_request("b") - 1.5).abs() < 1e-12);
        assert!((graph.calls_per_request() - 2.5).abs() < 1e-12);
        assert!((graph.calls_in_sequence() - 2.0).abs() < 1e-12);
        assert_eq!(graph.entry_calls().count(), 4);
        assert!((graph.without_pages().calls_per_request() - 2.0).abs() < 1e-12);
    }

    /// `web-2` is called by clients and by `web-1` as well, and stands beside `web-1`.
    #[test]
    fn of_several_that_clients_call_each_is_asked_as_often() {
        let further = |name: &str, work| GraphService {
            clients: true,
            node: GraphNode::Server,
            ..service(name, work)
        };
        let graph = Graph {
            name: "tiers".into(),
            entry: "web-1".into(),
            pages: Vec::new(),
            work: work(vec![vec![call("app", 1.0)], vec![call("web-2", 0.5)]]),
            others: vec![
                further("web-2", work(vec![vec![call("app", 1.0)]])),
                further("web-3", Work::default()),
                service("app", Work::default()),
                further("web-4", Work::default()),
            ],
        };
        let is = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 1e-12, "{value}, not {expected}");
        };
        assert_eq!(graph.called(), 4);
        is(graph.requests_per_request("web-1"), 0.25);
        is(graph.requests_per_request("web-2"), 0.375);
        is(graph.requests_per_request("app"), 0.625);
        // Clients stand on the other node than these, and `web-1` does not.
        is(graph.requests_across("web-1"), 0.25);
        is(graph.requests_across("web-2"), 0.25);
        is(graph.requests_across("app"), 0.625);
        is(graph.calls_per_request(), 0.25 * 1.5 + 0.375);
        is(graph.calls_in_sequence(), (2.0 + 1.0) / 4.0);
    }

    #[test]
    fn a_cycle_that_should_not_be_ends() {
        let graph = Graph {
            name: "loop".into(),
            entry: "a".into(),
            pages: Vec::new(),
            work: work(vec![vec![call("b", 1.0)]]),
            others: vec![service("b", work(vec![vec![call("b", 1.0)]]))],
        };
        assert!(graph.calls_per_request().is_finite());
        assert!(graph.calls_in_sequence().is_finite());
    }
}
