//! The lab's own file systems, nodes and pods: all that stays for the whole run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use meshtax_control_plane::{Authority, SharedAuthority};
use meshtax_dataplane::{EMULATED_NAMESPACE, Gateway, Pod, PodNode, Site, SiteService};
use meshtax_model::experiment::{Options, Variant, VariantId};
use meshtax_model::topology::{NodeSide, Service, ServiceAddress};
use meshtax_model::trial::ComponentRole;
use meshtax_workload::{CLIENT, callees, client_name, pod_name};
use nix::mount::{MsFlags, mount};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::component::{HostMounts, stay_on};
use super::netns::NetNs;
use super::network::{Network, PodNet, loopback_only, node_index};
use crate::cgroups::{CgroupDirectories, LimitError, ProxyCgroup};
use crate::placement::cores_in_use;
use crate::protocol::{LAB_PROTOCOL, LabStep, Setup};

/// The lab's directory for files: a separate file system, in memory.
const DIRECTORY: &str = "/tmp/meshtax-lab";

/// What the machine refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) step: LabStep,
    pub(crate) cause: io::Error,
}

fn refused(step: LabStep) -> impl FnOnce(io::Error) -> Refusal {
    move |cause| Refusal { step, cause }
}

/// The pods of a variant, and the namespaces of what serves their nodes.
#[derive(Debug)]
pub(crate) struct Pods {
    /// Without the variant's options.
    site: Site,
    /// By the pods' names.
    namespaces: BTreeMap<String, NetNs>,
    client_node: NetNs,
    pub(crate) server_nodes: Vec<NetNs>,
}

impl Pods {
    fn build(network: &mut Network, setup: &Setup, variant: &VariantId) -> io::Result<Self> {
        let mut builder = PodBuilder {
            network,
            variant,
            namespaces: BTreeMap::new(),
        };
        let topology = &setup.topology;
        let clients = (0..setup.workload.clients.max(1))
            .map(|client| builder.pod(&client_name(client), CLIENT, PodNode::Client, false))
            .collect::<io::Result<_>>()?;
        // Where services call each other, their nodes balance these connections.
        let routed = topology.services.len() > 1;
        let services = topology.services.iter();
        let site = Site {
            namespace: EMULATED_NAMESPACE.into(),
            clients,
            services: services
                .map(|service| builder.service(service, setup, routed))
                .collect::<io::Result<_>>()?,
            waypoint: builder.pod("waypoint", "waypoint", PodNode::Server(0), false)?,
            gateway: match setup.has_ingress() {
                true => Some(Gateway {
                    pod: builder.pod(GATEWAY, GATEWAY, PodNode::Client, false)?,
                    is_only_ingress: setup.has_ingress_only(),
                }),
                false => None,
            },
            // Probers get certificates of its identity.
            intruder: None,
            workers: setup.workers,
            cores: setup.cores,
            options: Options::default(),
            runtime: Default::default(),
        };
        Ok(Self {
            site,
            namespaces: builder.namespaces,
            client_node: loopback_only()?,
            server_nodes: (0..topology.server_nodes())
                .map(|_| loopback_only())
                .collect::<io::Result<_>>()?,
        })
    }

    /// The site without the variant's options.
    pub(crate) fn layout(&self) -> &Site {
        &self.site
    }

    /// The variant's site, with an empty directory for each pod.
    pub(crate) fn site(&self, variant: &Variant) -> io::Result<Site> {
        for pod in self.site.pods() {
            if Path::new(&pod.directory).exists() {
                fs::remove_dir_all(&pod.directory)?;
            }
            fs::create_dir_all(&pod.directory)?;
        }
        Ok(Site {
            options: variant.options,
            runtime: variant.runtime.clone(),
            ..self.site.clone()
        })
    }

    /// A pod's namespace.
    pub(crate) fn namespace(&self, pod: &Pod) -> &NetNs {
        &self.namespaces[&pod.name]
    }

    /// The clients' pods, each with its namespace.
    pub(crate) fn clients(&self) -> impl Iterator<Item = (&Pod, &NetNs)> {
        let clients = self.site.clients.iter();
        clients.map(|pod| (pod, self.namespace(pod)))
    }

    /// The namespaces of all pods, by name.
    pub(crate) fn all(&self) -> &BTreeMap<String, NetNs> {
        &self.namespaces
    }

    /// The namespace of what serves a node.
    pub(crate) fn node(&self, node: PodNode) -> &NetNs {
        match node {
            PodNode::Client => &self.client_node,
            PodNode::Server(number) => &self.server_nodes[number as usize],
        }
    }

    /// Services with a virtual address, each with its pods' addresses.
    fn balanced(&self) -> Vec<(Ipv4Addr, Vec<Ipv4Addr>)> {
        let services = self.site.services.iter();
        let balanced = services.filter(|service| service.has_virtual_address());
        balanced
            .map(|service| (service.address, service.pod_addresses()))
            .collect()
    }
}

/// The name of the gateway's pod.
const GATEWAY: &str = "ingress-gateway";

struct PodBuilder<'a> {
    network: &'a mut Network,
    variant: &'a VariantId,
    namespaces: BTreeMap<String, NetNs>,
}

impl PodBuilder<'_> {
    fn pod(
        &mut self,
        name: &str,
        service_account: &str,
        node: PodNode,
        routed: bool,
    ) -> io::Result<Pod> {
        let net = match routed {
            true => self.network.add_routed_pod(node)?,
            false => self.network.add_pod(node)?,
        };
        self.namespaces.insert(name.to_owned(), net.namespace);
        Ok(Pod {
            name: name.to_owned(),
            address: net.address,
            service_account: service_account.to_owned(),
            directory: format!("{DIRECTORY}/{}/{name}", self.variant),
            node,
        })
    }

    fn service(
        &mut self,
        service: &Service,
        setup: &Setup,
        routed: bool,
    ) -> io::Result<SiteService> {
        let replica = |replica: u32| {
            let node = match service.node {
                NodeSide::Client => PodNode::Client,
                NodeSide::Server => PodNode::Server(service.node_of(replica)),
            };
            self.pod(&pod_name(service, replica), &service.name, node, routed)
        };
        let pods: Vec<Pod> = (0..service.replicas.max(1))
            .map(replica)
            .collect::<io::Result<_>>()?;
        let address = match (service.address, pods.as_slice()) {
            (ServiceAddress::Pod, [first, ..]) => first.address,
            _ => self.network.add_service()?,
        };
        let mut ports = setup.demand().ports();
        if !service.entry_point {
            // Other services request the usual response only.
            ports.truncate(1);
        }
        Ok(SiteService {
            name: service.name.clone(),
            address,
            pods,
            ports,
            calls: callees(service),
            entry_point: service.entry_point,
        })
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
    pub(crate) host_mounts: HostMounts,
    pub(crate) authority: SharedAuthority,
    pub(crate) foreign: SharedAuthority,
    /// Cgroups of proxies that were made so far.
    cgroups: AtomicU32,
    /// Tells other runs that the run's cgroup is in use.
    _locks: Vec<File>,
}

impl Lab {
    pub(crate) fn build(setup: Setup) -> Result<Self, Refusal> {
        if setup.version != LAB_PROTOCOL {
            let cause = io::Error::other("the meshtax binary was replaced during the run");
            return Err(Refusal {
                step: LabStep::CheckVersion,
                cause,
            });
        }
        let host_mounts = HostMounts::leave().map_err(refused(LabStep::KeepHostMounts))?;
        private_file_systems()?;
        // The engine has looked that the hard limit is enough; processes of the lab inherit this.
        if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        // Only these cores are read: what the lab itself uses is part of their busy time.
        stay_on(&cores_in_use(&setup.nodes))
            .map_err(|e| refused(LabStep::PinToCores)(io::Error::from(e)))?;
        let mut network =
            Network::build(setup.topology.server_nodes()).map_err(refused(LabStep::BuildNodes))?;
        let pods: BTreeMap<_, _> = setup
            .variants
            .iter()
            .map(|variant| Ok((variant.clone(), Pods::build(&mut network, &setup, variant)?)))
            .collect::<io::Result<_>>()
            .map_err(refused(LabStep::BuildPods))?;
        let services: Vec<_> = pods.values().flat_map(Pods::balanced).collect();
        network
            .balance(&services)
            .map_err(refused(LabStep::BalanceServices))?;
        let outsider = network
            .add_pod(PodNode::Client)
            .map_err(refused(LabStep::BuildOutsider))?;
        let authority = |name| {
            Authority::new(name)
                .map(|authority| Arc::new(Mutex::new(authority)))
                .map_err(io::Error::other)
                .map_err(refused(LabStep::CreateAuthority))
        };
        let run = setup.limits.as_ref();
        Ok(Self {
            cgroups: AtomicU32::new(0),
            // Without one the engine's lock is enough, unless it is killed.
            _locks: run
                .map(CgroupDirectories::lock)
                .and_then(Result::ok)
                .unwrap_or_default(),
            authority: authority("meshtax")?,
            foreign: authority("somebody else")?,
            setup,
            network,
            pods,
            outsider,
            host_mounts,
        })
    }

    /// A cgroup with the limits of a variant's proxies of this role; `None`: they have none.
    pub(crate) fn cgroup(
        &self,
        variant: &Variant,
        role: ComponentRole,
    ) -> Result<Option<ProxyCgroup>, LimitError> {
        let limits = role.limited().and_then(|role| variant.limits.get(&role));
        let Some((run, limits)) = self.setup.limits.as_ref().zip(limits) else {
            return Ok(None);
        };
        let number = self.cgroups.fetch_add(1, Ordering::Relaxed);
        let cgroup = ProxyCgroup::make(run, &format!("proxy-{number}"))?;
        cgroup.limit(limits)?;
        Ok(Some(cgroup))
    }

    /// The cores of a role's processes on a node.
    pub(crate) fn cores_of(&self, node: PodNode, role: ComponentRole) -> &[u32] {
        let node = self.setup.nodes.get(node_index(node) as usize);
        node.map_or(&[], |node| node.cores_of(role))
    }
}

/// What namespaces do not clean is made private: /tmp and /dev/shm, and a /proc that shows the
/// lab's own processes.
fn private_file_systems() -> Result<(), Refusal> {
    let none = None::<&str>;
    let refused = |step| move |e: nix::Error| refused(step)(e.into());
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(refused(LabStep::PrivateMounts))?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        safe | MsFlags::MS_NOEXEC,
        none,
    )
    .map_err(refused(LabStep::MountProc))?;
    for path in ["/tmp", "/dev/shm"] {
        if Path::new(path).is_dir() {
            mount(Some("tmpfs"), path, Some("tmpfs"), safe, Some("mode=1777"))
                .map_err(refused(LabStep::MountTmpfs))?;
        }
    }
    Ok(())
}
