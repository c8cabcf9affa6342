//! A second, minimal engine: two nodes that are threads, whose pods are processes on loopback addresses. It drives
//! evidence, workload and agent without the local engine and without namespaces.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use meshtax_agent::{
    Capture, ClientWorker, Measurement, Meter, NodeUsage, PacketSocket, Process, StartedWorker,
    Watched, Worker, measure, observe_window, speed_probe_on,
};
use meshtax_app::AppConfig;
use meshtax_dataplane::{
    Blueprint, Contract, EMULATED_NAMESPACE, Pod, PodNode, Probe, Site, SiteService,
};
use meshtax_evidence::{
    Acknowledged, Captures, Connection, Deployment, Issuer, NoCertificate, Subject, Vantage,
    app_stats, conclude, run_active,
};
use meshtax_load::{LoadSpec, Window};
use meshtax_model::evidence::{Evidence, ProbeId};
use meshtax_model::experiment::{LoadPoint, Options, Regime, VariantId, Workers, Workload};
use meshtax_model::failure::ComponentFailure;
use meshtax_model::plan::TrialId;
use meshtax_model::topology::{NodeSide, Service, Topology};
use meshtax_model::trial::{ComponentRole, LoadResult, ResourceSample};
use meshtax_tls::Credentials;
use meshtax_workload::{Demand, Timing, applications};

/// The application's configuration, for a pod: this test's own binary, started again.
const POD: &str = "MESHTAX_TEST_POD";
const CLIENT: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Not a test by itself: what runs in a pod.
#[test]
fn pod() {
    if let Ok(config) = std::env::var(POD) {
        let config: AppConfig = serde_json::from_str(&config).unwrap();
        meshtax_app::serve(&config, |_| {}, &AtomicBool::new(false)).unwrap();
    }
}

/// A pod, by its address. Pods share the host's network, so each has its own `127.0.0.1`: its address.
struct Loopback(Ipv4Addr);

impl Vantage for Loopback {
    fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<Box<dyn Connection>> {
        let own = to.ip() == Ipv4Addr::LOCALHOST;
        let to = if own { (self.0, to.port()).into() } else { to };
        let stream = TcpStream::connect_timeout(&to, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Box::new(stream))
    }

    fn established_connections(&self, local_port: u16) -> io::Result<u32> {
        meshtax_observe::established_connections_here(local_port).map_err(io::Error::other)
    }

    fn run_load(&self, spec: &LoadSpec) -> io::Result<LoadResult> {
        meshtax_load::run(spec, &mut |_| {}).map_err(io::Error::other)
    }
}

impl Loopback {
    fn capture(&self) -> io::Result<Capture> {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex")?;
        let index = index.trim().parse().map_err(io::Error::other)?;
        Ok(Capture::start(vec![PacketSocket::open(index)?]))
    }
}

enum Order {
    Start(String, Box<AppConfig>),
    Observe(Window),
}

/// A node: a thread that starts its pods and runs an agent next to them.
struct Node {
    orders: Option<Sender<Order>>,
    usage: Receiver<NodeUsage>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Node {
    fn new(number: u32) -> Self {
        let (orders, received) = channel();
        let (report, usage) = channel();
        let run = move || {
            let mut pods: Vec<(String, Child)> = Vec::new();
            for order in received {
                match order {
                    Order::Start(name, config) => pods.push((name, start(&config))),
                    Order::Observe(window) => {
                        let watched = watched(&pods, number);
                        report
                            .send(observe_window(&watched, window).unwrap())
                            .unwrap();
                    }
                }
            }
            for (_, pod) in &mut pods {
                pod.kill().unwrap();
                pod.wait().unwrap();
            }
        };
        Self {
            orders: Some(orders),
            usage,
            thread: Some(thread::spawn(run)),
        }
    }

    fn order(&self, order: Order) {
        self.orders.as_ref().unwrap().send(order).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.orders.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

fn start(config: &AppConfig) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let pod = serde_json::to_string(config).unwrap();
    command
        .args(["--exact", "pod"])
        .env(POD, pod)
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

fn watched(pods: &[(String, Child)], node: u32) -> Watched {
    let process = |(name, pod): &(String, Child)| Process {
        meter: Meter::Process(pod.id()),
        name: name.clone(),
        role: ComponentRole::App,
        node,
        idles_for: None,
        limited: meshtax_observe::Limited::default(),
    };
    Watched {
        cores: meshtax_observe::allowed_cores(),
        processes: pods.iter().map(process).collect(),
        servers: pods.iter().map(|(_, pod)| pod.id()).collect(),
        proxy_port: None,
        entrance: None,
    }
}

/// A variant without a mesh on the two nodes.
struct TwoNodes(BTreeMap<String, Loopback>);

impl TwoNodes {
    fn of(site: &Site) -> Self {
        let pods = site.pods();
        Self(
            pods.map(|pod| (pod.name.clone(), Loopback(pod.address)))
                .collect(),
        )
    }
}

impl Deployment for TwoNodes {
    fn pod(&self, name: &str) -> Option<&dyn Vantage> {
        Some(self.0.get(name)?)
    }

    fn node(&self, _: PodNode) -> Option<&dyn Vantage> {
        None
    }

    fn outsider(&self) -> &dyn Vantage {
        &Loopback(CLIENT)
    }

    fn outsider_address(&self) -> Ipv4Addr {
        CLIENT
    }

    fn ended(&self) -> Option<ComponentFailure> {
        None
    }

    fn has(&self, role: ComponentRole) -> bool {
        role == ComponentRole::App
    }

    fn log(&self, _: ComponentRole) -> Vec<String> {
        Vec::new()
    }

    fn environments(&self, _: ComponentRole) -> Vec<BTreeMap<String, String>> {
        Vec::new()
    }

    fn last_output(&self) -> Vec<String> {
        Vec::new()
    }

    fn extra_endpoints(&self) -> Vec<Acknowledged> {
        Vec::new()
    }

    fn spans(&self) -> Vec<u64> {
        Vec::new()
    }

    fn credentials(&self, _: Issuer, identity: &str) -> Result<Credentials, NoCertificate> {
        Err(NoCertificate {
            identity: identity.to_owned(),
            detail: "there is no mesh".to_owned(),
        })
    }
}

/// Two entry points, one on each node. Each test has a loopback network of its own.
fn site(network: u8, demand: &Demand<'_>) -> Site {
    let pod = |name: &str, address, node| Pod {
        name: name.into(),
        address,
        service_account: name.into(),
        directory: String::new(),
        node,
    };
    let placed = |(service, host): (&Service, u8)| {
        let node = match service.node {
            NodeSide::Client => PodNode::Client,
            NodeSide::Server => PodNode::Server(0),
        };
        let address = Ipv4Addr::new(127, network, 0, host);
        SiteService {
            name: service.name.clone(),
            address,
            pods: vec![pod(&service.name, address, node)],
            ports: demand.ports(),
            calls: Vec::new(),
            entry_point: true,
        }
    };
    let nowhere = Ipv4Addr::new(127, network, 0, 99);
    Site {
        namespace: EMULATED_NAMESPACE.into(),
        clients: vec![pod("client", CLIENT, PodNode::Client)],
        services: demand
            .topology
            .services
            .iter()
            .zip(1..)
            .map(placed)
            .collect(),
        waypoint: pod("waypoint", nowhere, PodNode::Server(0)),
        gateway: None,
        intruder: None,
        workers: Workers::Equal(1),
        cores: 2,
        options: Options::default(),
        runtime: Default::default(),
    }
}

fn topology() -> Topology {
    let near = Service {
        node: NodeSide::Client,
        ..Service::new("near")
    };
    Topology {
        name: None,
        services: vec![Service::new("far"), near],
    }
}

const WORKLOAD: Workload = Workload {
    response_bytes: 512,
    connections: 4,
    clients: 1,
};

/// Starts a service's pod on a node, on the pod's own address.
fn deploy(node: &Node, site: &Site, service: &Service) {
    let placed = site.service(&service.name).unwrap();
    let bytes = (WORKLOAD.response_bytes, WORKLOAD.response_bytes);
    for app in applications(service, None, site, &placed.ports, bytes, 1).unwrap() {
        let mut config = app.config;
        for listener in &mut config.listeners {
            listener.address.set_ip(placed.address.into());
        }
        node.order(Order::Start(
            format!("{}-app", service.name),
            Box::new(config),
        ));
    }
}

/// What packets prove needs the right to capture them.
fn needs_capture(probe: &Probe) -> bool {
    matches!(
        probe,
        Probe::OnTheWire { .. } | Probe::Canary { .. } | Probe::CallsOnTheWire { .. }
    )
}

fn verify(
    site: &Site,
    topology: &Topology,
    mut contract: Contract,
    patience: Duration,
) -> Evidence {
    let capture = match Loopback(CLIENT).capture() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            // Past the test harness's capture, which hides the output of tests that pass.
            let _ = writeln!(io::stderr(), "SKIPPED: the probes of captured packets: {e}");
            contract.probes.retain(|probe| !needs_capture(probe));
            None
        }
        capture => Some(capture.unwrap()),
    };
    let variant = VariantId("none".into());
    let subject = Subject {
        variant: &variant,
        site,
        contract: &contract,
        topology,
        deployment: &TwoNodes::of(site),
        canary: "canary-of-two-thread-nodes",
        ready_until: Instant::now() + patience,
        served_ns: None,
    };
    let active = run_active(&subject);
    let captures = Captures {
        between_nodes: capture.map_or_else(Default::default, |c| c.finish().unwrap()),
        ..Captures::default()
    };
    conclude(&subject, 1, active, &captures)
}

/// The load generator on a thread of this process.
struct ThreadWorker;

impl Worker for ThreadWorker {
    fn pid(&self) -> u32 {
        std::process::id()
    }

    fn ended(&mut self) -> io::Result<ExitStatus> {
        Ok(ExitStatus::default())
    }

    fn end(&mut self) {}
}

fn start_generator() -> StartedWorker {
    let (input, request) = io::pipe().unwrap();
    let (messages, output) = io::pipe().unwrap();
    thread::spawn(move || meshtax_load::worker_main(input, output).unwrap());
    StartedWorker {
        worker: Box::new(ThreadWorker),
        input: Box::new(request),
        output: Box::new(messages),
    }
}

const TIMING: Timing = Timing {
    warmup_ns: 100_000_000,
    window_ns: 400_000_000,
    interval_ns: None,
    requests_per_trial: None,
};

/// A measured trial, and what each node's agent read in its window.
struct Trial {
    measured: Measurement,
    usage: Vec<NodeUsage>,
    sample: ResourceSample,
}

fn trial(nodes: &[Node], site: &Site, spec: &LoadSpec) -> Trial {
    let probe_before = speed_probe_on(None);
    let harness = Watched {
        cores: meshtax_observe::allowed_cores(),
        processes: Vec::new(),
        servers: Vec::new(),
        proxy_port: None,
        entrance: None,
    };
    let observe = &mut |window| nodes.iter().for_each(|n| n.order(Order::Observe(window)));
    let client = ClientWorker {
        client: site.clients[0].name.clone(),
        started: start_generator(),
    };
    let measured = measure(spec, vec![client], &harness, observe).unwrap();
    let usage = nodes.iter().map(|node| node.usage.recv().unwrap());
    let usage = usage.collect();
    let speed = [probe_before, speed_probe_on(None)];
    let sample = measured.sample(&TrialId("1".into()), speed);
    Trial {
        measured,
        usage,
        sample,
    }
}

/// The first of some trials whose edges were read in time. Nothing is pinned here: on a busy machine an edge is read a
/// tenth of a second late, and one that stalls can read an edge at any time. A window that is read wrongly is so in all
/// trials.
fn trial_read_in_time(nodes: &[Node], site: &Site, spec: &LoadSpec) -> Trial {
    const TRIALS: usize = 5;
    let plausible = TIMING.window_ns / 2..TIMING.window_ns * 2;
    let mut read_ns = Vec::new();
    for _ in 0..TRIALS {
        let trial = trial(nodes, site, spec);
        read_ns.push(trial.sample.wall_ns());
        let on_nodes = trial.usage.iter().map(|usage| usage.machine.wall_ns);
        let mut edges = on_nodes.chain([trial.sample.wall_ns()]);
        if edges.all(|wall_ns| plausible.contains(&wall_ns)) {
            return trial;
        }
    }
    panic!("no window of {plausible:?}: {read_ns:?}");
}

/// The node's agent has read its own pod, and nothing of the other node.
fn assert_is_of(usage: &NodeUsage, service: &Service, node: u32) {
    let NodeUsage {
        components,
        machine,
        ..
    } = usage;
    assert!(machine.cores > 0, "{machine:?}");
    let seen: BTreeMap<&str, u32> = components
        .iter()
        .map(|usage| (usage.name.as_str(), usage.node))
        .collect();
    let name = format!("{}-app", service.name);
    assert_eq!(seen, BTreeMap::from([(name.as_str(), node)]));
    assert!(components[0].cpu_ns > 100_000, "{components:?}");
    let memory = components[0].memory.unwrap();
    assert!(memory.anonymous_bytes > 0, "{memory:?}");
}

#[test]
fn two_thread_nodes_are_verified_and_measured() {
    let topology = topology();
    let points = [LoadPoint::new("saturated", Regime::Saturated)];
    let demand = Demand {
        topology: &topology,
        workload: &WORKLOAD,
        load_points: &points,
    };
    let site = site(101, &demand);
    let nodes = [Node::new(0), Node::new(1)];
    for (node, service) in nodes.iter().zip(&topology.services) {
        deploy(node, &site, service);
    }

    let contract = Blueprint::direct(&site).contract;
    let evidence = verify(&site, &topology, contract, Duration::from_secs(20));
    assert!(evidence.passed(), "{:?}", evidence.failed_probes());
    assert!(evidence.features.is_some_and(|f| f.keeps_client_address));

    let spec = demand.load(&site, None, &points[0], TIMING, 7).unwrap();
    let Trial {
        measured,
        usage,
        sample,
    } = trial_read_in_time(&nodes, &site, &spec);
    let load = &measured.load;
    assert!(load.completed > 50, "{load:?}");
    assert_eq!((load.succeeded, load.errors.total()), (load.completed, 0));
    for ((usage, service), number) in usage.iter().zip(&topology.services).zip(0..) {
        assert_is_of(usage, service, number);
    }
    let generator = sample.components.iter();
    let mut generator = generator.filter(|c| c.role == ComponentRole::Generator);
    assert!(generator.any(|c| c.cpu_ns > 0), "{sample:?}");

    // Clients call both entry points: together, the applications have counted at least the load's requests.
    let counts = site.services.iter().map(|service| {
        let stats = app_stats(&Loopback(service.address), service.port());
        stats.unwrap().requests
    });
    let counts: Vec<u64> = counts.collect();
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    assert!(counts.iter().sum::<u64>() >= load.completed, "{counts:?}");
}

/// A pod that refuses every request.
fn refuse_all(at: SocketAddr) {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        }
    });
}

#[test]
fn pod_that_responds_403_fails_the_permitted_request_probe() {
    let topology = topology();
    let demand = Demand {
        topology: &topology,
        workload: &WORKLOAD,
        load_points: &[],
    };
    let site = site(102, &demand);
    for service in &site.services {
        refuse_all(service.endpoint().into());
    }
    let contract = Blueprint::direct(&site).contract;
    let evidence = verify(&site, &topology, contract, Duration::from_millis(200));
    let failed = evidence.failed_probes();
    assert_eq!(failed[0].probe, ProbeId::PermittedRequest, "{failed:?}");
    assert!(failed[0].seen.contains("HTTP 403"), "{failed:?}");
    assert!(!evidence.passed());
}
