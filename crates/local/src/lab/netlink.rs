//! Links, addresses and routes, through rtnetlink and without any `ip` program.
//!
//! All functions act on the network namespace of the calling thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::net::if_::if_nametoindex;

const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// Adds a bridge.
pub(crate) fn add_bridge(name: &str) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    request(
        RouteNetlinkMessage::NewLink(link),
        CREATE,
        &format!("add bridge {name}"),
    )
}

/// Adds a pair of virtual Ethernet links, the far end straight in another namespace.
pub(crate) fn add_veth(name: &str, peer_name: &str, peer_namespace: RawFd) -> io::Result<()> {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(peer_name.into()),
        LinkAttribute::NetNsFd(peer_namespace),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(name.into()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    request(
        RouteNetlinkMessage::NewLink(link),
        CREATE,
        &format!("add veth {name}"),
    )
}

/// Makes a link a port of a bridge.
pub(crate) fn set_controller(name: &str, bridge: &str) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index(name)?;
    link.attributes = vec![LinkAttribute::Controller(index(bridge)?)];
    request(
        RouteNetlinkMessage::SetLink(link),
        0,
        &format!("put {name} on {bridge}"),
    )
}

/// Sets a link up.
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index(name)?;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    request(
        RouteNetlinkMessage::SetLink(link),
        0,
        &format!("set {name} up"),
    )
}

/// Gives a link an IPv4 address.
pub(crate) fn add_address(name: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    add_address_towards(name, address, address, prefix)
}

/// Gives a link an IPv4 address whose only directly reachable peer is this one.
pub(crate) fn add_address_with_peer(
    name: &str,
    address: Ipv4Addr,
    peer: Ipv4Addr,
) -> io::Result<()> {
    add_address_towards(name, address, peer, 32)
}

fn add_address_towards(
    name: &str,
    address: Ipv4Addr,
    reached: Ipv4Addr,
    prefix: u8,
) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = prefix;
    message.header.index = index(name)?;
    message.attributes = vec![
        AddressAttribute::Local(IpAddr::V4(address)),
        AddressAttribute::Address(IpAddr::V4(reached)),
    ];
    request(
        RouteNetlinkMessage::NewAddress(message),
        CREATE,
        &format!("give {name} the address {address}/{prefix}"),
    )
}

/// Adds a route; `0.0.0.0/0` is the default route.
pub(crate) fn add_route(to: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> io::Result<()> {
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.destination_prefix_length = prefix;
    route.header.table = RouteHeader::RT_TABLE_MAIN;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Universe;
    route.header.kind = RouteType::Unicast;
    route.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(gateway))];
    if prefix > 0 {
        route
            .attributes
            .push(RouteAttribute::Destination(RouteAddress::Inet(to)));
    }
    request(
        RouteNetlinkMessage::NewRoute(route),
        CREATE,
        &format!("add a route to {to}/{prefix} via {gateway}"),
    )
}

/// Packets with a mark (of whose bits those of the mask count) are for this very namespace, whatever
/// their destination: `ip rule add fwmark MARK/MASK lookup TABLE`, and in the table
/// `local 0.0.0.0/0 dev lo`. What is there already stays.
pub(crate) fn add_local_table(mark: u32, mask: u32, table: u8) -> io::Result<()> {
    let mut rule = RuleMessage::default();
    rule.header.family = AddressFamily::Inet;
    rule.header.table = table;
    rule.header.action = RuleAction::ToTable;
    rule.attributes = vec![
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(mask),
        // Before the main table, as Istio's.
        RuleAttribute::Priority(32764),
    ];
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.table = table;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = RouteScope::Host;
    route.header.kind = RouteType::Local;
    route.attributes = vec![RouteAttribute::Oif(index("lo")?)];
    for message in [
        RouteNetlinkMessage::NewRule(rule),
        RouteNetlinkMessage::NewRoute(route),
    ] {
        match request(message, CREATE, "route responses back to the proxy") {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    Ok(())
}

/// The index of a link.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    if_nametoindex(name).map_err(|e| context(&format!("find the link {name}"), &e.into()))
}

fn request(message: RouteNetlinkMessage, flags: u16, what: &str) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
    packet.finalize();
    let mut buffer = vec![0; packet.buffer_len()];
    packet.serialize(&mut buffer);
    exchange(&buffer).map_err(|e| context(what, &e))
}

fn exchange(buffer: &[u8]) -> io::Result<()> {
    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(buffer, 0)?;
    let (reply, _) = socket.recv_from_full()?;
    let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    match parsed.payload {
        NetlinkPayload::Error(e) if e.code.is_some() => Err(e.to_io()),
        _ => Ok(()),
    }
}

pub(crate) fn context(what: &str, error: &io::Error) -> io::Error {
    // `Error::other` would lose the errno's kind, by which the caller detects "not permitted".
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
