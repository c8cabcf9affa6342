//! What stands behind the service: meshtax's own application on as many ports as the load needs, and
//! the user's own program, if there is one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use meshtax_app::{
    AppConfig, AppStats, Call, Listener, Page, Protocol as Spoken, STATS_PATH, Step, Wait,
};
use meshtax_dataplane::{ALLOWED_CALL, ALLOWED_PATH, APP_PORT, AppPort, Called, Site, Speaks};
use meshtax_load::{LoadSpec, Protocol as Wire, Request, Target, Tls};
use meshtax_model::experiment::{Ingress, Inject, LoadPoint, PROXY_PORTS, Protocol, Variant};
use meshtax_model::graph::{self, Graph, ServiceTime, Work};
use meshtax_model::trial::ComponentRole;
use meshtax_tls::ClientTls;

use super::component::Component;
use super::gateway;
use super::http::{Ask, Heard};
use super::netns::NetNs;
use super::probes::one_request;
use super::setup::Lab;
use crate::protocol::Setup;

/// A port of meshtax's application: what is spoken there, and the size of its answers. TCP sends back
/// what it gets, whatever that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnPort {
    number: u16,
    speaks: Speaks,
    response_bytes: u32,
}

impl OwnPort {
    fn serves(&self, speaks: Speaks, response_bytes: u32) -> bool {
        let any_size = speaks == Speaks::Tcp;
        self.speaks == speaks && (any_size || self.response_bytes == response_bytes)
    }
}

fn speaks(protocol: Protocol) -> Speaks {
    match protocol {
        Protocol::Http1 => Speaks::Http1,
        Protocol::Http2 | Protocol::Grpc => Speaks::Http2,
        Protocol::Tcp => Speaks::Tcp,
    }
}

fn response_bytes(setup: &Setup, point: &LoadPoint) -> u32 {
    let usual = setup.workload.response_bytes;
    point.response_bytes.unwrap_or(usual)
}

/// The ports of meshtax's application; the first, of HTTP/1.1 and answers of the usual size, is there in
/// any case.
fn own_ports(setup: &Setup) -> Vec<OwnPort> {
    let taken = setup.service.program.as_ref().map(|program| program.port);
    let is_free = |port: &u16| Some(*port) != taken && !PROXY_PORTS.contains(port);
    let mut free = (APP_PORT..).filter(is_free);
    let asked = setup.load_points.iter();
    let asked = asked.map(|point| (speaks(point.protocol), response_bytes(setup, point)));
    let first = (Speaks::Http1, setup.workload.response_bytes);
    let mut ports: Vec<OwnPort> = Vec::new();
    for (speaks, response_bytes) in std::iter::once(first).chain(asked) {
        let is_there = ports.iter().any(|port| port.serves(speaks, response_bytes));
        if !is_there && let Some(number) = free.next() {
            ports.push(OwnPort {
                number,
                speaks,
                response_bytes,
            });
        }
    }
    ports
}

/// The first port, where the probes ask.
pub(crate) fn first_port(setup: &Setup) -> u16 {
    own_ports(setup).first().map_or(APP_PORT, |p| p.number)
}

/// All ports but the first: those of the application, and the one of the user's own program.
pub(crate) fn more_ports(setup: &Setup) -> Vec<AppPort> {
    let own = own_ports(setup).into_iter().skip(1);
    let own = own.map(|port| AppPort {
        number: port.number,
        speaks: port.speaks,
        response_bytes: port.response_bytes,
        path: None,
    });
    let program = setup.service.program.iter().map(|program| AppPort {
        number: program.port,
        speaks: Speaks::Http1,
        response_bytes: 0,
        path: Some(program.path.clone()),
    });
    own.chain(program).collect()
}

/// Where a load goes: the port, and the path if it is not the usual one.
pub(crate) fn target(setup: &Setup, point: &LoadPoint) -> (u16, Option<String>) {
    if let Some(program) = &setup.service.program {
        return (program.port, Some(program.path.clone()));
    }
    let (speaks, bytes) = (speaks(point.protocol), response_bytes(setup, point));
    let ports = own_ports(setup);
    let port = ports.iter().find(|port| port.serves(speaks, bytes));
    (port.map_or(APP_PORT, |port| port.number), None)
}

/// A request that every policy allows, by this protocol, one at a time on a connection. The
/// `body` is a call's message, or what TCP sends back; HTTP has a GET without one.
pub(crate) fn request(
    called: Called<'_>,
    port: u16,
    protocol: Protocol,
    path: Option<&str>,
    body: Vec<u8>,
) -> LoadSpec {
    let mut request = Request {
        path: path.unwrap_or(ALLOWED_PATH).to_owned(),
        ..Request::get(host(called, port))
    };
    let spoken = match protocol {
        Protocol::Http1 => Wire::Http1,
        Protocol::Http2 => Wire::Http2 { streams: 1 },
        Protocol::Grpc => {
            request.method = "POST".into();
            request.path = ALLOWED_CALL.into();
            request.body = body;
            Wire::Grpc { streams: 1 }
        }
        Protocol::Tcp => {
            request.body = body;
            Wire::Tcp
        }
    };
    LoadSpec {
        protocol: spoken,
        requests: vec![request],
        ..LoadSpec::new((called.address, port).into())
    }
}

fn host(called: Called<'_>, port: u16) -> String {
    format!("{}:{port}", called.host)
}

/// How clients outside the mesh speak TLS with its gateway. Whose certificate that is, a client of a test lab cannot
/// know by the name that it calls: it takes any, as `oha --insecure` does.
fn outside_tls() -> Tls {
    Tls {
        credentials: ClientTls {
            insecure: true,
            ..ClientTls::default()
        },
        server_name: "server".into(),
    }
}

/// What is asked of the gateway at `entered_at` by clients outside the mesh.
pub(crate) fn load_from_outside(site: &Site, entered_at: Ipv4Addr, ingress: Ingress) -> LoadSpec {
    let gateway = Called {
        address: entered_at,
        ..site.first_called()
    };
    let port = gateway::port(ingress);
    LoadSpec {
        tls: (ingress == Ingress::Tls).then(outside_tls),
        ..request(gateway, port, Protocol::Http1, None, Vec::new())
    }
}

/// What is asked at a load point, from a pod of the mesh, of every service that clients call. Over TCP as much is sent
/// as an answer would hold.
pub(crate) fn load(setup: &Setup, site: &Site, point: &LoadPoint) -> LoadSpec {
    let (port, path) = target(setup, point);
    let body = match point.protocol {
        Protocol::Tcp => vec![b'x'; response_bytes(setup, point).max(1) as usize],
        Protocol::Http1 | Protocol::Http2 | Protocol::Grpc => Vec::new(),
    };
    let spec = request(
        site.first_called(),
        port,
        point.protocol,
        path.as_deref(),
        body,
    );
    LoadSpec {
        requests: requests(setup, spec.requests),
        more_targets: site
            .further_called()
            .map(|called| Target {
                address: (called.address, port).into(),
                host: host(called, port),
            })
            .collect(),
        ..spec
    }
}

/// One request for each page, if there are any, in place of the usual one.
fn requests(setup: &Setup, usual: Vec<Request>) -> Vec<Request> {
    let graph = setup.service.graph.as_ref();
    let pages = graph.map_or(0, |graph| graph.pages.len());
    if pages == 0 {
        return usual;
    }
    let of_page = |number: usize| {
        let all = usual.iter().cloned();
        all.map(move |request| Request {
            path: format!("{}/page-{number}", request.path),
            ..request
        })
    };
    (1..=pages).flat_map(of_page).collect()
}

/// What the application at a port of this pod says it did, asked past any proxy.
pub(crate) fn stats(pod: &NetNs, port: u16) -> Result<AppStats, String> {
    let request = Ask::get(STATS_PATH);
    let heard = one_request(pod, (Ipv4Addr::LOCALHOST, port), &request);
    let Heard::Answer {
        status: 200, body, ..
    } = &heard
    else {
        return Err(format!(
            "the test application does not say what it did: {}",
            heard.describe()
        ));
    };
    serde_json::from_slice(body).map_err(|e| e.to_string())
}

/// A part of this binary, as a process of its own.
pub(crate) fn own_program(name: &str, arguments: &[String]) -> Command {
    // By this name it is found even if its path is hidden by the lab's own file systems.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("meshtax")
        .arg("internal")
        .arg(name)
        .args(arguments);
    command
}

/// Size of the usual answers of this service of the graph: the workload's, if it says no other.
pub(crate) fn response_bytes_of(setup: &Setup, service: &str) -> u32 {
    let graph = setup.service.graph.as_ref();
    let own = graph.and_then(|graph| graph.other(service)?.response_bytes);
    own.unwrap_or(setup.workload.response_bytes)
}

/// Starts all that one replica of the first service runs. `number` counts from 0.
pub(crate) fn start(
    lab: &Lab,
    variant: &Variant,
    pod: &NetNs,
    number: usize,
) -> Result<Vec<Component>, String> {
    let suffix = match number {
        0 => String::new(),
        _ => format!("-{}", number + 1),
    };
    let mut components = Front::first(lab, variant)?.start(lab, pod, &suffix)?;
    if let Some(program) = &lab.setup.service.program {
        let name = format!("{}/own-program{suffix}", variant.id);
        components.push(start_program(lab, pod, name, &program.command)?);
    }
    Ok(components)
}

/// The application of a service that clients call.
struct Front<'a> {
    /// How its processes are called.
    name: String,
    /// Size of its usual answers.
    response_bytes: u32,
    cores: &'a [u32],
    /// What it does, on whatever port.
    config: AppConfig,
}

impl<'a> Front<'a> {
    fn first(lab: &'a Lab, variant: &Variant) -> Result<Self, String> {
        let mut config = with_cost(variant.inject)?;
        if let Some(graph) = &lab.setup.service.graph {
            let callees = callees(lab, variant, graph);
            work(&mut config, &graph.work, &callees);
            let page = |page: &graph::Page| Page {
                response_bytes: page.response_bytes,
                burn: page.burn_steps,
                steps: steps(&page.steps, &callees),
            };
            config.pages = graph.pages.iter().map(page).collect();
        }
        Ok(Self {
            name: format!("{}/app", variant.id),
            response_bytes: lab.setup.workload.response_bytes,
            cores: &lab.setup.layout.server_node,
            config,
        })
    }

    /// One process for each size of answers: what serves a load is told apart from what idles.
    fn start(&self, lab: &Lab, pod: &NetNs, suffix: &str) -> Result<Vec<Component>, String> {
        let mut by_size: BTreeMap<u32, Vec<Listener>> = BTreeMap::new();
        let usual = lab.setup.workload.response_bytes;
        for port in own_ports(&lab.setup) {
            let listener = Listener {
                address: (Ipv4Addr::UNSPECIFIED, port.number).into(),
                protocol: match port.speaks {
                    Speaks::Tcp => Spoken::TcpEcho,
                    Speaks::Http1 | Speaks::Http2 => Spoken::Http,
                },
            };
            by_size
                .entry(port.response_bytes)
                .or_default()
                .push(listener);
        }
        let mut components = Vec::new();
        for (bytes, listeners) in by_size {
            let (size, response_bytes) = match bytes == usual {
                true => (String::new(), self.response_bytes),
                false => (format!("-{bytes}-bytes"), bytes),
            };
            let config = AppConfig {
                listeners,
                response_bytes,
                threads: app_threads(self.cores),
                ..self.config.clone()
            };
            let name = format!("{}{suffix}{size}", self.name);
            components.push(start_process(config, name, pod, self.cores)?);
        }
        // The one that is asked for its figures, first.
        components.sort_by_key(|c| c.name != format!("{}{suffix}", self.name));
        if let Some(first) = components.first_mut() {
            first.is_first_app = true;
        }
        Ok(components)
    }
}

fn start_process(
    config: AppConfig,
    name: String,
    pod: &NetNs,
    cores: &[u32],
) -> Result<Component, String> {
    let config = serde_json::to_string(&config).map_err(|e| e.to_string())?;
    let command = own_program("app", &[config]);
    Component::start(name, ComponentRole::App, command, pod, cores)
        .map_err(|e| format!("cannot start the test application: {e}"))
}

/// Starts the applications of all services but the first that clients call.
pub(crate) fn start_behind(
    lab: &Lab,
    variant: &Variant,
    site: &Site,
) -> Result<Vec<Component>, String> {
    let Some(graph) = &lab.setup.service.graph else {
        return Ok(Vec::new());
    };
    let callees = callees(lab, variant, graph);
    let nets = &lab.pods[&variant.id].behind;
    let mut components = Vec::new();
    for ((service, nets), site) in graph.others.iter().zip(nets).zip(&site.behind) {
        let cores = lab.cores_of(nets.node);
        // A cost that is injected is one of every request, whichever service clients ask.
        let mut config = with_cost(variant.inject.filter(|_| service.clients))?;
        work(&mut config, &service.work, &callees);
        config.listeners = vec![Listener {
            address: (Ipv4Addr::UNSPECIFIED, first_port(&lab.setup)).into(),
            protocol: Spoken::Http,
        }];
        config.response_bytes = response_bytes_of(&lab.setup, &service.name);
        config.threads = app_threads(cores);
        let name = format!("{}/{}-app", variant.id, service.name);
        for (pod, net) in site.pods.iter().zip(&nets.pods) {
            let number = pod.name.trim_start_matches(&service.name);
            let (name, config, pod) = (name.clone(), config.clone(), &net.namespace);
            if !service.clients {
                let name = format!("{name}{number}");
                components.push(start_process(config, name, pod, cores)?);
                continue;
            }
            let front = Front {
                name,
                response_bytes: config.response_bytes,
                cores,
                config,
            };
            components.extend(front.start(lab, pod, number)?);
        }
    }
    Ok(components)
}

/// Where each service of the graph is called.
fn callees(lab: &Lab, variant: &Variant, graph: &Graph) -> BTreeMap<String, SocketAddr> {
    let port = first_port(&lab.setup);
    let nets = &lab.pods[&variant.id].behind;
    let services = graph.others.iter().zip(nets);
    services
        .map(|(service, nets)| (service.name.clone(), (nets.called, port).into()))
        .collect()
}

/// A service's time, as the test application takes it.
#[must_use]
pub fn wait(time: ServiceTime) -> Wait {
    match time {
        ServiceTime::Exponential { mean_ns } => Wait::Exponential { mean_ns },
        ServiceTime::Uniform { from_ns, to_ns } => Wait::Uniform { from_ns, to_ns },
        ServiceTime::LogNormal { median_ns, sigma } => Wait::LogNormal { median_ns, sigma },
    }
}

/// What a service of the graph does for each request, besides a cost that is injected.
fn work(config: &mut AppConfig, work: &Work, callees: &BTreeMap<String, SocketAddr>) {
    config.burn = config.burn.saturating_add(work.burn_steps);
    config.wait = work.time.map(wait);
    config.error_share = work.error_share;
    config.steps = steps(&work.steps, callees);
}

fn steps(steps: &[graph::Step], callees: &BTreeMap<String, SocketAddr>) -> Vec<Step> {
    let call = |call: &graph::Call| {
        let address = callees.get(&call.service)?;
        Some(Call {
            address: *address,
            host: format!("{}:{}", call.service, address.port()),
            path: ALLOWED_PATH.to_owned(),
            share: call.share,
        })
    };
    let step = |step: &graph::Step| match step {
        graph::Step::Calls(calls) => Step::Calls(calls.iter().filter_map(call).collect()),
        graph::Step::SleepNs(ns) => Step::SleepNs(*ns),
    };
    steps.iter().map(step).collect()
}

/// The application with a known cost.
fn with_cost(inject: Option<Inject>) -> Result<AppConfig, String> {
    let mut config = AppConfig::new((Ipv4Addr::UNSPECIFIED, APP_PORT).into());
    match inject {
        None => {}
        Some(Inject::DelayNs(delay_ns)) => config.delay_ns = delay_ns,
        Some(Inject::DelayShareOfP50(_)) => {
            return Err(
                "a delay relative to the p50 must be resolved before the first round".into(),
            );
        }
        Some(Inject::DelaySome { delay_ns, share }) => {
            config.delay_ns = delay_ns;
            config.delay_share = share;
        }
        Some(Inject::BurnSteps(steps)) => config.burn = steps,
        Some(Inject::HoldBytes(bytes)) => config.hold_bytes = bytes,
        Some(Inject::CapPerS(per_s)) => config.cap_per_s = Some(per_s),
        Some(Inject::LeakBytes(bytes)) => config.leak_bytes = bytes,
    }
    Ok(config)
}

/// One thread is as fast as the generator's one; on a node with cores to spare the application must
/// not be the bottleneck of a pair either.
fn app_threads(cores: &[u32]) -> u32 {
    (cores.len() as u32).clamp(1, 4)
}

/// In the pod's network namespace, and with the files that there are outside the lab.
fn start_program(
    lab: &Lab,
    pod: &NetNs,
    name: String,
    words: &[String],
) -> Result<Component, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("the service's own program has no name".into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    lab.outside.enter(&mut command);
    let cores = &lab.setup.layout.server_node;
    Component::start(name, ComponentRole::App, command, pod, cores)
        .map_err(|e| format!("cannot start the service's own program `{program}`: {e}"))
}

#[cfg(test)]
mod tests {
    use meshtax_dataplane::{Pod, PodNode, SiteService};
    use meshtax_model::environment::CpuLayout;
    use meshtax_model::experiment::{EqualWork, Options, OwnProgram, Regime, Service, Workload};

    use super::*;
    use crate::protocol::PROTOCOL_VERSION;

    fn setup(sizes: impl Iterator<Item = u32>, program: Option<u16>) -> Setup {
        let point = |bytes| LoadPoint {
            response_bytes: Some(bytes),
            ..LoadPoint::new(&bytes.to_string(), Regime::Saturated)
        };
        let tcp = LoadPoint {
            protocol: Protocol::Tcp,
            ..point(7)
        };
        Setup {
            version: PROTOCOL_VERSION,
            service: Service {
                program: program.map(|port| OwnProgram {
                    command: vec!["server".into()],
                    port,
                    path: "/".into(),
                }),
                ..Service::default()
            },
            workload: Workload {
                response_bytes: 1024,
                connections: 1,
            },
            load_points: sizes.map(point).chain([tcp.clone(), tcp]).collect(),
            equal_work: EqualWork { workers: 1 },
            warmup_ns: 0,
            trial_ns: 1,
            part_ns: None,
            requests_per_trial: None,
            variants: Vec::new(),
            layout: CpuLayout {
                generator: vec![0],
                client_node: vec![0],
                server_node: vec![0],
            },
            programs: Vec::new(),
            sabotage: BTreeMap::new(),
        }
    }

    #[test]
    fn every_service_that_clients_call_is_asked_under_its_name() {
        let pod = |name: &str, last| Pod {
            name: name.into(),
            address: Ipv4Addr::new(10, 0, 0, last),
            service_account: name.into(),
            directory: String::new(),
            node: PodNode::Server(0),
        };
        let service = |name: &str, last, clients| SiteService {
            name: name.into(),
            called: Ipv4Addr::new(10, 0, 0, last),
            pods: vec![pod(name, last)],
            calls: Vec::new(),
            clients,
        };
        let site = Site {
            client: pod("client", 1),
            server: pod("server", 2),
            more_servers: Vec::new(),
            waypoint: pod("waypoint", 3),
            gateway: None,
            called: Ipv4Addr::new(10, 0, 0, 2),
            app_port: APP_PORT,
            more_ports: Vec::new(),
            workers: 1,
            behind: vec![service("db", 4, false), service("web-2", 5, true)],
            calls: vec!["db".into()],
            options: Options::default(),
        };
        let setup = setup(std::iter::once(9), None);
        let spec = load(&setup, &site, &setup.load_points[0]);
        // The port of this size of answers.
        assert_eq!(spec.target.to_string(), "10.0.0.2:8081");
        assert_eq!(spec.requests[0].host, "server:8081");
        let others: Vec<(String, &str)> = spec
            .more_targets
            .iter()
            .map(|target| (target.address.to_string(), target.host.as_str()))
            .collect();
        assert_eq!(others, [("10.0.0.5:8081".to_owned(), "web-2:8081")]);
    }

    /// As many sizes as an experiment may have load points: their ports run past 8086.
    #[test]
    fn every_size_has_a_port_that_no_proxy_takes() {
        let setup = setup(0..14, Some(8080));
        let ports = own_ports(&setup);
        assert_eq!(ports.len(), 16, "the usual size, 14 others, and TCP once");
        let numbers: std::collections::BTreeSet<u16> = ports.iter().map(|p| p.number).collect();
        assert_eq!(numbers.len(), ports.len());
        let taken = |port: &u16| *port == 8080 || PROXY_PORTS.contains(port);
        assert!(!numbers.iter().any(taken), "{numbers:?}");
    }
}
