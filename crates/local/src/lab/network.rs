//! Nodes, pods and the links between them.
//!
//! ```text
//!   client pods ── br0 (node A) ─┬─ routed veth ── br0 (node B) ── server pods
//!                                └─ routed veth ── br0 (a further node of the servers') ── server pods
//! ```
//! Each two nodes have a link of their own, so that from any pod to any other it is as far, however many nodes there
//! are. A link between nodes is routed and never a bridge's port: bridged traffic would pass a
//! node's redirection by. A bridge has 1,024 ports: where there are more pods, a node has several, each with
//! a subnet of its own, and routes between them.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use meshtax_agent::PacketSocket;
use meshtax_dataplane::{GATEWAY_PORT, GATEWAY_TLS_PORT, PodNode};
use meshtax_model::experiment::PROXY_PORTS;

use super::netlink;
use super::netns::NetNs;

/// The name of a pod's link, in the pod.
pub(crate) const POD_LINK: &str = "eth0";
/// The links between nodes have the addresses from here on, four for each: up to the first pod's.
const LINKS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 0);

/// Bits of the prefix of all pods of a node.
const NODE_BITS: u8 = 20;
/// Bits of the prefix of the pods on one bridge: as many as a bridge has ports (`BR_MAX_PORTS`).
const BRIDGE_BITS: u8 = 22;
const BRIDGE_HOSTS: u16 = 1 << (32 - BRIDGE_BITS);
/// On one bridge, less the addresses that pods do not have.
const BRIDGE_PODS: u16 = 1000;
/// On the bridges that a node's prefix has room for.
const MOST_PODS: u16 = BRIDGE_PODS << (BRIDGE_BITS - NODE_BITS);
/// The first pod's address on a bridge; its node has the first of all.
const FIRST_POD: u16 = 10;

/// The addresses of services begin here, as in Kubernetes.
const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
/// As many as a lab has pods.
const MOST_SERVICES: u16 = 4000;

/// Index of a node in the run's environment: the clients' node is the first one.
pub(crate) fn node_index(node: PodNode) -> u32 {
    match node {
        PodNode::Client => 0,
        PodNode::Server(number) => number + 1,
    }
}

/// The node's own address on one of its bridges.
fn bridge_address(node: PodNode, bridge: u16) -> Ipv4Addr {
    pod_address(node, bridge * BRIDGE_HOSTS + 1)
}

/// An address from the prefix of the node's pods.
fn pod_address(node: PodNode, host: u16) -> Ipv4Addr {
    let first = u32::from(Ipv4Addr::new(10, 77, 16, 0));
    let base = first + (node_index(node) << (32 - NODE_BITS));
    Ipv4Addr::from(base + u32::from(host))
}

/// A pod's namespace and address.
#[derive(Debug)]
pub(crate) struct PodNet {
    pub(crate) namespace: NetNs,
    pub(crate) address: Ipv4Addr,
}

/// A node.
#[derive(Debug)]
struct NodeNet {
    name: PodNode,
    namespace: NetNs,
    /// The number of its pods.
    pods: u16,
}

impl NodeNet {
    fn build(name: PodNode) -> io::Result<Self> {
        let namespace = NetNs::create()?;
        namespace.run(|| {
            harden(true)?;
            add_bridge(name, 0)
        })?;
        Ok(Self {
            name,
            namespace,
            pods: 0,
        })
    }

    /// The name of its link to another node: that node's number.
    fn link_to(other: PodNode) -> String {
        format!("node{}", node_index(other))
    }

    /// Joins it with another one by a link that is the `number`th of all.
    fn join(&self, other: &Self, number: u32) -> io::Result<()> {
        let base = u32::from(LINKS) + 4 * number;
        let [own_end, far_end] = [1, 2].map(|host| Ipv4Addr::from(base + host));
        let (link, back) = (Self::link_to(other.name), Self::link_to(self.name));
        let far = other.namespace.raw();
        self.namespace.run(|| {
            netlink::add_veth(&link, &back, far)?;
            netlink::add_address(&link, own_end, 30)?;
            netlink::set_up(&link)
        })?;
        other.namespace.run(|| {
            netlink::add_address(&back, far_end, 30)?;
            netlink::set_up(&back)?;
            netlink::add_route(pod_address(self.name, 0), NODE_BITS, own_end)
        })?;
        self.namespace
            .run(|| netlink::add_route(pod_address(other.name, 0), NODE_BITS, far_end))
    }
}

/// The clients' node and the servers' nodes, each joined with each.
#[derive(Debug)]
pub(crate) struct Network {
    /// The clients' first.
    nodes: Vec<NodeNet>,
    next_service: u16,
}

impl Network {
    /// Nodes with a bridge each, and a routed link between each two of them. `server_nodes`: one at least.
    pub(crate) fn build(server_nodes: u32) -> io::Result<Self> {
        let servers = (0..server_nodes.max(1)).map(PodNode::Server);
        let nodes = std::iter::once(PodNode::Client).chain(servers);
        let nodes: Vec<NodeNet> = nodes.map(NodeNet::build).collect::<io::Result<_>>()?;
        let mut links = 0;
        for (number, node) in nodes.iter().enumerate() {
            for other in &nodes[number + 1..] {
                node.join(other, links)?;
                links += 1;
            }
        }
        Ok(Self {
            nodes,
            next_service: 1,
        })
    }

    /// Listens on each link of the clients' node to one of the servers': all that passes between them.
    pub(crate) fn listen(&self) -> io::Result<Vec<PacketSocket>> {
        let (clients, servers) = (&self.nodes[0], &self.nodes[1..]);
        let links = servers.iter().map(|node| NodeNet::link_to(node.name));
        let listen = |link: String| PacketSocket::open(netlink::index(&link)?);
        clients
            .namespace
            .run(|| links.map(listen).collect::<io::Result<_>>())
    }

    /// An address for a service, which no pod has.
    pub(crate) fn add_service(&mut self) -> io::Result<Ipv4Addr> {
        let host = self.next_service;
        if host > MOST_SERVICES {
            let full = format!("there is room for {MOST_SERVICES} services");
            return Err(io::Error::other(full));
        }
        self.next_service += 1;
        Ok(Ipv4Addr::from(u32::from(SERVICES) + u32::from(host)))
    }

    /// What each node does for connections from its pods to services, as kube-proxy has it done.
    pub(crate) fn balance(&self, services: &[(Ipv4Addr, Vec<Ipv4Addr>)]) -> io::Result<()> {
        let mut nodes = self.nodes.iter();
        nodes.try_for_each(|node| node.namespace.run(|| meshtax_agent::nft::balance(services)))
    }

    /// A new pod on a node's bridge.
    pub(crate) fn add_pod(&mut self, on: PodNode) -> io::Result<PodNet> {
        self.add(on, |address, _| {
            netlink::add_address(POD_LINK, address, BRIDGE_BITS)
        })
    }

    /// A new pod that reaches all others through its node, also those of the same node: its node can then balance its
    /// connections to a service, since the responses pass the node, too.
    pub(crate) fn add_routed_pod(&mut self, on: PodNode) -> io::Result<PodNet> {
        self.add(on, |address, gateway| {
            netlink::add_address_with_peer(POD_LINK, address, gateway)
        })
    }

    fn add(
        &mut self,
        on: PodNode,
        give_address: impl FnOnce(Ipv4Addr, Ipv4Addr) -> io::Result<()> + Send,
    ) -> io::Result<PodNet> {
        let node = &mut self.nodes[node_index(on) as usize];
        let number = node.pods;
        if number >= MOST_PODS {
            let full = format!("a node has room for {MOST_PODS} pods");
            return Err(io::Error::other(full));
        }
        node.pods += 1;
        let (bridge, place) = (number / BRIDGE_PODS, number % BRIDGE_PODS);
        let address = pod_address(on, bridge * BRIDGE_HOSTS + FIRST_POD + place);
        let namespace = NetNs::create()?;
        let (pod, name) = (namespace.raw(), format!("pod{number}"));
        node.namespace.run(|| {
            if bridge > 0 && place == 0 {
                add_bridge(on, bridge)?;
            }
            netlink::add_veth(&name, POD_LINK, pod)?;
            netlink::set_controller(&name, &bridge_name(bridge))?;
            netlink::set_up(&name)
        })?;
        namespace.run(|| {
            harden(false)?;
            give_address(address, bridge_address(on, bridge))?;
            netlink::set_up(POD_LINK)?;
            netlink::add_route(Ipv4Addr::UNSPECIFIED, 0, bridge_address(on, bridge))
        })?;
        Ok(PodNet { namespace, address })
    }
}

fn bridge_name(number: u16) -> String {
    format!("br{number}")
}

/// One more bridge of the node that this is run on.
fn add_bridge(of: PodNode, number: u16) -> io::Result<()> {
    let name = bridge_name(number);
    netlink::add_bridge(&name)?;
    netlink::add_address(&name, bridge_address(of, number), BRIDGE_BITS)?;
    netlink::set_up(&name)
}

/// A namespace without any link: what lives there reaches pods by entering their namespaces.
pub(crate) fn loopback_only() -> io::Result<NetNs> {
    let namespace = NetNs::create()?;
    namespace.run(|| netlink::set_up("lo"))?;
    Ok(namespace)
}

/// Loopback up, no reverse-path filter (redirected packets would fall to it), no IPv6 chatter.
fn harden(forward: bool) -> io::Result<()> {
    netlink::set_up("lo")?;
    for interface in ["all", "default"] {
        sysctl(&format!("ipv4/conf/{interface}/rp_filter"), "0")?;
        // Absent where the kernel has no IPv6, and then not needed.
        let _ = sysctl(&format!("ipv6/conf/{interface}/disable_ipv6"), "1");
    }
    // Every trial opens its connections anew: ports that wait for their minute must not run out.
    sysctl("ipv4/ip_local_port_range", "1024 65535")?;
    // But none that a proxy is yet to listen at: another's connection would keep it from starting.
    let gateways = [GATEWAY_PORT, GATEWAY_TLS_PORT];
    let taken = PROXY_PORTS.iter().chain(&gateways);
    let taken: Vec<String> = taken.map(u16::to_string).collect();
    sysctl("ipv4/ip_local_reserved_ports", &taken.join(","))?;
    sysctl("ipv4/tcp_tw_reuse", "1")?;
    if forward {
        // Traffic between pods must pass their node.
        for interface in ["all", "default"] {
            sysctl(&format!("ipv4/conf/{interface}/send_redirects"), "0")?;
        }
        sysctl("ipv4/ip_forward", "1")?;
    }
    Ok(())
}

fn sysctl(name: &str, value: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/{name}");
    fs::write(&path, value).map_err(|e| netlink::context(&format!("set {path} to {value}"), &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses of nodes, of links and of services must not meet, however many nodes there are.
    #[test]
    fn nodes_have_distinct_addresses() {
        const NODES: u32 = 21;
        assert_eq!(
            bridge_address(PodNode::Client, 0),
            Ipv4Addr::new(10, 77, 16, 1)
        );
        assert_eq!(
            bridge_address(PodNode::Server(0), 0),
            Ipv4Addr::new(10, 77, 32, 1)
        );
        assert_eq!(
            bridge_address(PodNode::Server(0), 1),
            Ipv4Addr::new(10, 77, 36, 1)
        );
        assert_eq!(
            bridge_address(PodNode::Server(1), 0),
            Ipv4Addr::new(10, 77, 48, 1)
        );
        assert_eq!(
            bridge_address(PodNode::Server(19), 0),
            Ipv4Addr::new(10, 78, 80, 1)
        );
        let links = NODES * (NODES - 1) / 2;
        let last = Ipv4Addr::from(u32::from(LINKS) + 4 * links);
        assert!(last < bridge_address(PodNode::Client, 0), "{last}");
        let last_pod = pod_address(
            PodNode::Client,
            (MOST_PODS / BRIDGE_PODS) * BRIDGE_HOSTS - 1,
        );
        assert!(last_pod < pod_address(PodNode::Server(0), 0), "{last_pod}");
    }
}
