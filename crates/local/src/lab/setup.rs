//! The lab's own file systems, nodes and pods: all that stays for the whole run.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use meshtax_control_plane::{Authority, SharedAuthority};
use meshtax_dataplane::PodNode;
use meshtax_model::experiment::{ServiceAddress, VariantId, node_of};
use meshtax_model::graph::{GraphNode, GraphService};
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::component::Outside;
use super::netns::NetNs;
use super::network::{Network, NodeName, PodNet, loopback_only};
use crate::protocol::{PROTOCOL_VERSION, Setup};

/// Where the lab keeps files: on a file system of its own, in memory.
const DIRECTORY: &str = "/tmp/meshtax-lab";

/// What the machine refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) step: String,
    pub(crate) cause: io::Error,
}

fn refused(step: &'static str) -> impl FnOnce(io::Error) -> Refusal {
    move |cause| Refusal {
        step: step.into(),
        cause,
    }
}

/// The pods of a variant.
#[derive(Debug)]
pub(crate) struct Pods {
    pub(crate) client: PodNet,
    pub(crate) server: PodNet,
    /// The service's other replicas.
    pub(crate) more_servers: Vec<PodNet>,
    /// All other services, in the order of the graph.
    pub(crate) behind: Vec<ServicePods>,
    /// For a mesh's proxy of the whole service.
    pub(crate) waypoint: PodNet,
    /// Where clients outside the mesh come in, if they do.
    pub(crate) gateway: Option<PodNet>,
    /// Where clients call the first service.
    pub(crate) called: Ipv4Addr,
    /// What serves the client's node has a namespace of its own there.
    pub(crate) client_node: NetNs,
    /// And what serves one of the servers'.
    pub(crate) server_nodes: Vec<NetNs>,
}

/// The pods of a service besides the first that clients call.
#[derive(Debug)]
pub(crate) struct ServicePods {
    pub(crate) pods: Vec<PodNet>,
    /// What its callers call: the only pod, or an address of the service's own.
    pub(crate) called: Ipv4Addr,
    pub(crate) node: NodeName,
    /// Whether clients call it, too.
    pub(crate) clients: bool,
}

impl ServicePods {
    fn build(network: &mut Network, service: &GraphService) -> io::Result<Self> {
        let node = match service.node {
            GraphNode::Client => NodeName::A,
            GraphNode::Server => NodeName::B(0),
        };
        let pods: Vec<PodNet> = (0..service.replicas.max(1))
            .map(|_| network.add_routed_pod(node))
            .collect::<io::Result<_>>()?;
        let called = match pods.as_slice() {
            [only] => only.address,
            _ => network.add_service()?,
        };
        Ok(Self {
            pods,
            called,
            node,
            clients: service.clients,
        })
    }

    fn balanced(&self) -> Option<(Ipv4Addr, Vec<Ipv4Addr>)> {
        let pods = self.pods.iter().map(|pod| pod.address).collect();
        (self.pods.len() > 1).then_some((self.called, pods))
    }
}

impl Pods {
    fn build(network: &mut Network, setup: &Setup) -> io::Result<Self> {
        let service = &setup.service;
        let client = network.add_pod(NodeName::A)?;
        let nodes = service.nodes;
        let server = network.add_pod(NodeName::B(0))?;
        let more_servers = (1..service.replicas)
            .map(|replica| network.add_pod(NodeName::B(node_of(replica, nodes) as u16)))
            .collect::<io::Result<_>>()?;
        let called = match service.address {
            ServiceAddress::Pod => server.address,
            ServiceAddress::Virtual => network.add_service()?,
        };
        let behind = service.graph.iter().flat_map(|graph| &graph.others);
        Ok(Self {
            behind: behind
                .map(|service| ServicePods::build(network, service))
                .collect::<io::Result<_>>()?,
            waypoint: network.add_pod(NodeName::B(0))?,
            gateway: match setup.has_ingress() {
                true => Some(network.add_pod(NodeName::A)?),
                false => None,
            },
            client,
            server,
            more_servers,
            called,
            client_node: loopback_only()?,
            server_nodes: (0..nodes.max(1))
                .map(|_| loopback_only())
                .collect::<io::Result<_>>()?,
        })
    }

    /// The namespace of what serves a node.
    pub(crate) fn node(&self, node: PodNode) -> &NetNs {
        match node {
            PodNode::Client => &self.client_node,
            PodNode::Server(number) => &self.server_nodes[number as usize],
        }
    }

    /// The pods of all services that clients call.
    pub(crate) fn called_pods(&self) -> impl Iterator<Item = &PodNet> {
        let further = self.behind.iter().filter(|service| service.clients);
        self.servers()
            .chain(further.flat_map(|service| &service.pods))
    }

    /// All replicas of the first service.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &PodNet> {
        std::iter::once(&self.server).chain(&self.more_servers)
    }

    /// Services with an address of their own, each with the pods behind it.
    fn balanced(&self) -> Vec<(Ipv4Addr, Vec<Ipv4Addr>)> {
        let pods = self.servers().map(|pod| pod.address).collect();
        let first = (self.called != self.server.address).then_some((self.called, pods));
        let others = self.behind.iter().filter_map(ServicePods::balanced);
        first.into_iter().chain(others).collect()
    }
}

/// All that stays for the whole run.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) setup: Setup,
    pub(crate) network: Network,
    pub(crate) pods: BTreeMap<VariantId, Pods>,
    pub(crate) outsider: PodNet,
    /// For the user's own program.
    pub(crate) outside: Outside,
    pub(crate) authority: SharedAuthority,
    pub(crate) foreign: SharedAuthority,
}

impl Lab {
    pub(crate) fn build(setup: Setup) -> Result<Self, Refusal> {
        if setup.version != PROTOCOL_VERSION {
            let cause = io::Error::other("the meshtax binary was replaced during the run");
            return Err(Refusal {
                step: "speak with the run".into(),
                cause,
            });
        }
        let outside = Outside::leave().map_err(refused("keep the mounts that there were"))?;
        private_file_systems()?;
        // The engine has looked that the hard limit is enough; processes of the lab inherit this.
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        let mut network = Network::build(setup.service.nodes as u16)
            .map_err(refused("build the nodes and the links between them"))?;
        let pods: BTreeMap<_, _> = setup
            .variants
            .iter()
            .map(|variant| Ok((variant.clone(), Pods::build(&mut network, &setup)?)))
            .collect::<io::Result<_>>()
            .map_err(refused("build the pods"))?;
        let services: Vec<_> = pods.values().flat_map(Pods::balanced).collect();
        network
            .balance(&services)
            .map_err(refused("balance the connections to a service's address"))?;
        let outsider = network
            .add_pod(NodeName::A)
            .map_err(refused("build the outsider's pod"))?;
        let authority = |name| {
            Authority::new(name)
                .map(|authority| Arc::new(Mutex::new(authority)))
                .map_err(io::Error::other)
                .map_err(refused("make a certificate authority"))
        };
        Ok(Self {
            authority: authority("meshtax")?,
            foreign: authority("somebody else")?,
            setup,
            network,
            pods,
            outsider,
            outside,
        })
    }

    /// Which cores a node's processes have.
    pub(crate) fn cores_of(&self, node: NodeName) -> &[u32] {
        match node {
            NodeName::A => &self.setup.layout.client_node,
            // On one machine they share them.
            NodeName::B(_) => &self.setup.layout.server_node,
        }
    }

    /// Whether a service of this name is another than the first that clients call.
    pub(crate) fn is_behind(&self, name: &str) -> bool {
        let graph = self.setup.service.graph.as_ref();
        graph.is_some_and(|graph| graph.other(name).is_some())
    }

    /// The directory of one end of a variant, empty.
    pub(crate) fn pod_directory(variant: &VariantId, end: &str) -> io::Result<String> {
        let path = format!("{DIRECTORY}/{variant}/{end}");
        if Path::new(&path).exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// What namespaces do not clean is made private: /tmp and /dev/shm, and a /proc that shows the
/// lab's own processes.
fn private_file_systems() -> Result<(), Refusal> {
    let none = None::<&str>;
    let step = |name: &'static str| {
        move |e: nix::Error| Refusal {
            step: name.into(),
            cause: e.into(),
        }
    };
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(step("make mounts private"))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        safe | MsFlags::MS_NOEXEC,
        none,
    )
    .map_err(step("mount a /proc of its own"))?;
    for path in ["/tmp", "/dev/shm"] {
        if Path::new(path).is_dir() {
            mount(Some("tmpfs"), path, Some("tmpfs"), safe, Some("mode=1777"))
                .map_err(step("mount a private tmpfs"))?;
        }
    }
    Ok(())
}
