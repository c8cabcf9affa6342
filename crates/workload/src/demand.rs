//! What an experiment demands of its applications and of the load generator.

use std::net::Ipv4Addr;

use meshtax_dataplane::{APP_PORT, AppPort, AppProtocol, Site};
use meshtax_load::{LoadModel, LoadSpec, Request, Target};
use meshtax_model::experiment::{LoadPoint, PROXY_PORTS, Protocol, Regime, Workload};
use meshtax_model::topology::{Page, Service, Topology};

use crate::request::{load_from_outside, request};
use crate::timing::Timing;

/// How long responses are awaited after the window.
const DRAIN_NS: u64 = 1_000_000_000;

/// The parts of an experiment that determine its applications and loads.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The services.
    pub topology: &'a Topology,
    /// Response size and connections, unless a service or a load point has its own.
    pub workload: &'a Workload,
    /// All load points of the experiment.
    pub load_points: &'a [LoadPoint],
}

/// A load point is for clients outside the mesh, and the variant has no gateway.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("there is no gateway for clients outside the mesh")]
pub struct NoGateway;

impl Demand<'_> {
    /// All ports of an application that clients call: those of meshtax's application, and the one of the user's own
    /// program. The first, of HTTP/1.1 and response bodies of the usual size, is always there.
    #[must_use]
    pub fn ports(&self) -> Vec<AppPort> {
        let program = self.topology.program();
        let is_free = |port: &u16| {
            let taken = program.is_some_and(|program| program.port == *port);
            !taken && !PROXY_PORTS.contains(port)
        };
        let mut free = (APP_PORT..).filter(is_free);
        let points = self.load_points.iter();
        let needed = points.map(|point| (app_protocol(point.protocol), self.bytes_at(point)));
        let first = (AppProtocol::Http1, self.workload.response_bytes);
        let mut ports: Vec<AppPort> = Vec::new();
        for (protocol, response_bytes) in std::iter::once(first).chain(needed) {
            let is_there = |port: &AppPort| serves(port, protocol, response_bytes);
            if !ports.iter().any(is_there)
                && let Some(number) = free.next()
            {
                ports.push(AppPort {
                    number,
                    protocol,
                    response_bytes,
                    path: None,
                });
            }
        }
        ports.extend(program.map(|program| AppPort {
            path: Some(program.path.clone()),
            ..AppPort::http1(program.port)
        }));
        ports
    }

    /// The port that a load point's requests go to, and their path if it is not the usual one.
    #[must_use]
    pub fn target(&self, point: &LoadPoint) -> (u16, Option<String>) {
        if let Some(program) = self.topology.program() {
            return (program.port, Some(program.path.clone()));
        }
        let (protocol, bytes) = (app_protocol(point.protocol), self.bytes_at(point));
        let ports = self.ports();
        let port = ports.iter().find(|port| serves(port, protocol, bytes));
        (port.map_or(APP_PORT, |port| port.number), None)
    }

    /// Size of a service's usual response bodies.
    #[must_use]
    pub fn response_bytes(&self, service: &Service) -> u32 {
        let own = service.response_bytes;
        own.unwrap_or(self.workload.response_bytes)
    }

    /// The requests that a trial may end after.
    fn max_requests(point: &LoadPoint, timing: Timing) -> Option<u64> {
        match point.load {
            Regime::Steady { .. } => None,
            Regime::Saturated => timing.requests_per_trial,
        }
    }

    /// The load of a trial. `ingress_address`: what clients outside the mesh connect to.
    ///
    /// # Errors
    /// If the load comes from outside the mesh, and there is no gateway.
    pub fn load(
        &self,
        site: &Site,
        ingress_address: Option<Ipv4Addr>,
        point: &LoadPoint,
        timing: Timing,
        seed: u64,
    ) -> Result<LoadSpec, NoGateway> {
        let requests = match point.ingress {
            None => self.load_from_pod(site, point),
            Some(ingress) => load_from_outside(site, ingress_address.ok_or(NoGateway)?, ingress),
        };
        let connections = point.connections.unwrap_or(self.workload.connections);
        Ok(LoadSpec {
            connections,
            requests_per_connection: point.requests_per_connection,
            model: match point.load {
                Regime::Steady {
                    rate_per_s,
                    arrivals,
                } if point.by_users => LoadModel::Users {
                    rate_per_s: rate_per_s / f64::from(connections),
                    arrivals,
                },
                Regime::Steady {
                    rate_per_s,
                    arrivals,
                } => LoadModel::open(rate_per_s, arrivals),
                Regime::Saturated => LoadModel::closed(),
            },
            seed,
            warmup_ns: timing.warmup_ns,
            window_ns: timing.window_ns,
            drain_ns: DRAIN_NS,
            interval_ns: timing.interval_ns,
            max_requests: Self::max_requests(point, timing),
            ..requests
        })
    }

    /// Requests from a pod of the mesh to every entry point. Over TCP, a request is as large as a response body would be.
    fn load_from_pod(&self, site: &Site, point: &LoadPoint) -> LoadSpec {
        let (port, path) = self.target(point);
        let body = match point.protocol {
            Protocol::Tcp => vec![b'x'; self.bytes_at(point).max(1) as usize],
            Protocol::Http1 | Protocol::Http2 | Protocol::Grpc => Vec::new(),
        };
        let first = site.entry_point();
        let to = (first.address, port);
        let spec = request(&first.name, to, point.protocol, path.as_deref(), body);
        let further = site.entry_points().skip(1);
        LoadSpec {
            requests: self.page_requests(spec.requests),
            more_targets: further
                .map(|service| Target {
                    address: (service.address, port).into(),
                    host: format!("{}:{port}", service.name),
                })
                .collect(),
            ..spec
        }
    }

    /// One request for each page in place of the usual one, if there are any.
    fn page_requests(&self, usual: Vec<Request>) -> Vec<Request> {
        let services = self.topology.services.iter();
        let pages: Vec<&Page> = services.flat_map(|service| &service.pages).collect();
        if pages.is_empty() {
            return usual;
        }
        let of_page = |(at, page): (usize, &Page)| {
            let all = usual.iter().cloned();
            let requests = all.map(|request| page_request(request, at + 1, page));
            requests.collect::<Vec<Request>>()
        };
        pages.into_iter().enumerate().flat_map(of_page).collect()
    }

    fn bytes_at(&self, point: &LoadPoint) -> u32 {
        let usual = self.workload.response_bytes;
        point.response_bytes.unwrap_or(usual)
    }
}

/// The usual request, for a page.
fn page_request(mut request: Request, number: usize, page: &Page) -> Request {
    request.path = format!("{}/page-{number}", request.path);
    if let Some(cookie) = &page.cookie {
        let cookie = ("cookie".to_owned(), cookie.clone());
        request.headers.push(cookie);
    }
    if let Some(form) = &page.post {
        let kind = "application/x-www-form-urlencoded".to_owned();
        request.method = "POST".to_owned();
        request.headers.push(("content-type".to_owned(), kind));
        request.body = form.clone().into_bytes();
    }
    request
}

fn app_protocol(protocol: Protocol) -> AppProtocol {
    match protocol {
        Protocol::Http1 => AppProtocol::Http1,
        Protocol::Http2 | Protocol::Grpc => AppProtocol::Http2,
        Protocol::Tcp => AppProtocol::Tcp,
    }
}

/// Whether a port of meshtax's application serves a protocol and a size of response bodies. TCP echoes what it receives,
/// whatever that size.
fn serves(port: &AppPort, protocol: AppProtocol, response_bytes: u32) -> bool {
    let any_size = protocol == AppProtocol::Tcp;
    let is_own = port.path.is_none();
    is_own && port.protocol == protocol && (any_size || port.response_bytes == response_bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use meshtax_dataplane::{EMULATED_NAMESPACE, Pod, PodNode, SiteService};
    use meshtax_model::experiment::{Options, Workers};
    use meshtax_model::topology::OwnProgram;

    use super::*;

    const WORKLOAD: Workload = Workload {
        response_bytes: 1024,
        connections: 1,
        clients: 1,
    };

    fn topology(program: Option<u16>) -> Topology {
        Topology {
            name: None,
            services: vec![Service {
                program: program.map(|port| OwnProgram {
                    command: vec!["server".into()],
                    port,
                    path: "/".into(),
                }),
                ..Service::new("server")
            }],
        }
    }

    fn load_points(sizes: impl Iterator<Item = u32>) -> Vec<LoadPoint> {
        let point = |bytes| LoadPoint {
            response_bytes: Some(bytes),
            ..LoadPoint::new(&bytes.to_string(), Regime::Saturated)
        };
        let tcp = LoadPoint {
            protocol: Protocol::Tcp,
            ..point(7)
        };
        sizes.map(point).chain([tcp.clone(), tcp]).collect()
    }

    #[test]
    fn every_entry_point_is_a_target_under_its_name() {
        let pod = |name: &str, last| Pod {
            name: name.into(),
            address: Ipv4Addr::new(10, 0, 0, last),
            service_account: name.into(),
            directory: String::new(),
            node: PodNode::Server(0),
        };
        let service = |name: &str, last, entry_point| SiteService {
            name: name.into(),
            address: Ipv4Addr::new(10, 0, 0, last),
            pods: vec![pod(name, last)],
            ports: vec![AppPort::http1(APP_PORT)],
            calls: Vec::new(),
            entry_point,
        };
        let site = Site {
            namespace: EMULATED_NAMESPACE.into(),
            clients: vec![pod("client", 1)],
            services: vec![
                service("web-1", 2, true),
                service("db", 4, false),
                service("web-2", 5, true),
            ],
            waypoint: pod("waypoint", 3),
            gateway: None,
            intruder: None,
            workers: Workers::Equal(1),
            cores: 2,
            options: Options::default(),
            runtime: Default::default(),
        };
        let demand = Demand {
            topology: &topology(None),
            workload: &WORKLOAD,
            load_points: &load_points(std::iter::once(9)),
        };
        let spec = demand.load_from_pod(&site, &demand.load_points[0]);
        // The port of this size of response bodies.
        assert_eq!(spec.target.to_string(), "10.0.0.2:8081");
        assert_eq!(spec.requests[0].host, "web-1:8081");
        let others: Vec<(String, &str)> = spec
            .more_targets
            .iter()
            .map(|target| (target.address.to_string(), target.host.as_str()))
            .collect();
        assert_eq!(others, [("10.0.0.5:8081".to_owned(), "web-2:8081")]);
    }

    #[test]
    fn posted_page_has_a_form_and_its_cookie() {
        let page = |post: Option<&str>, cookie: Option<&str>| Page {
            name: "any".into(),
            response_bytes: 1,
            post: post.map(str::to_owned),
            cookie: cookie.map(str::to_owned),
            burn_steps: 0,
            steps: Vec::new(),
        };
        let mut topology = topology(None);
        topology.services[0].pages = vec![page(None, None), page(Some("a=&b=1"), Some("id=7"))];
        let demand = Demand {
            topology: &topology,
            workload: &WORKLOAD,
            load_points: &[],
        };
        let requests = demand.page_requests(vec![Request::get("web".into())]);
        let [plain, posted] = &requests[..] else {
            panic!("two pages: {requests:?}");
        };
        assert_eq!((plain.method.as_str(), plain.headers.len()), ("GET", 0));
        assert!(plain.body.is_empty() && plain.path.ends_with("page-1"));
        assert_eq!(posted.method, "POST");
        assert_eq!(posted.body, b"a=&b=1");
        let header = |name: &str| {
            let mut headers = posted.headers.iter();
            headers.find(|(of, _)| of == name).map(|(_, v)| v.as_str())
        };
        assert_eq!(header("cookie"), Some("id=7"));
        assert_eq!(
            header("content-type"),
            Some("application/x-www-form-urlencoded")
        );
    }

    /// As many sizes as an experiment may have load points: their ports run past 8086.
    #[test]
    fn every_size_has_a_port_that_no_proxy_takes() {
        let demand = Demand {
            topology: &topology(Some(8080)),
            workload: &WORKLOAD,
            load_points: &load_points(0..14),
        };
        let mut ports = demand.ports();
        assert_eq!(ports.pop().map(|port| port.number), Some(8080));
        assert_eq!(ports.len(), 16, "the usual size, 14 others, and TCP once");
        let numbers: BTreeSet<u16> = ports.iter().map(|p| p.number).collect();
        assert_eq!(numbers.len(), ports.len());
        let taken = |port: &u16| *port == 8080 || PROXY_PORTS.contains(port);
        assert!(!numbers.iter().any(taken), "{numbers:?}");
    }
}
