//! Redirection into proxies: an encoder of our own for the few nftables expressions it needs.
//!
//! No `nft` program, no C library. Numbers and layouts are those of
//! `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink.h`; the encoding is held by
//! golden messages in the tests.

use std::io;
use std::net::Ipv4Addr;

use meshtax_dataplane::{Redirect, RedirectExemption};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

const SUBSYSTEM: u16 = 10; // NFNL_SUBSYS_NFTABLES
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;

const F_REQUEST: u16 = 0x1;
const F_ACK: u16 = 0x4;
const F_CREATE: u16 = 0x400;
const F_APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;

const FAMILY_INET4: u8 = 2;
const HOOK_PREROUTING: u32 = 0;
const HOOK_OUTPUT: u32 = 3;
const PRIORITY_DSTNAT: i32 = -100;
const PRIORITY_MANGLE: i32 = -150;

const TCP: u8 = 6;
const META_MARK: u32 = 3;
const META_IIF: u32 = 4;
const META_OIF: u32 = 5;
const META_L4PROTO: u32 = 16;

const REGISTER: u32 = 1; // NFT_REG_1
const REGISTER_VERDICT: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;
const LOOPBACK_INDEX: u32 = 1;

const TABLE: &str = "meshtax";

/// The mark of a connection that a proxy made under its client's address, and of the responses on it:
/// Istio's, with the bits of it that count.
pub const KEPT_SOURCE_MARK: u32 = 0x111;
/// The bits of the mark that count.
pub const KEPT_SOURCE_MASK: u32 = 0xfff;

/// Puts a pod's redirect rules in force in the calling thread's namespace. Packets with [`KEPT_SOURCE_MARK`] need a route
/// of their own, which the rules do not add.
///
/// # Errors
/// If the kernel rejects the rules (they need `CAP_NET_ADMIN`).
pub fn redirect(redirect: &Redirect) -> io::Result<()> {
    put_in_force(&encode(redirect))
}

/// Redirects nothing in the calling thread's namespace, until [`redirect`]: connections that are open keep their way.
///
/// # Errors
/// As [`redirect`].
pub fn lift_redirection() -> io::Result<()> {
    let mut batch = Batch::default();
    batch.begin();
    // Without any chain of this kind, the kernel would no longer translate connections that are open.
    batch.chain("output", "nat", HOOK_OUTPUT, PRIORITY_DSTNAT);
    batch.chain("prerouting", "nat", HOOK_PREROUTING, PRIORITY_DSTNAT);
    put_in_force(&batch.ended())
}

/// Makes the calling thread's namespace forward every new connection to a service's address to one of
/// its pods, at random: as kube-proxy's rules do.
///
/// # Errors
/// As [`redirect`].
pub fn balance(services: &[(Ipv4Addr, Vec<Ipv4Addr>)]) -> io::Result<()> {
    encode_services(services).iter().try_for_each(put_in_force)
}

fn put_in_force(batch: &Batch) -> io::Result<()> {
    if batch.acknowledged == 0 {
        return Ok(());
    }
    let socket = Socket::new(NETLINK_NETFILTER)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // More than fits on the way at a time would be lost: rules of many pods are a large batch.
    let _ = socket.set_rx_buf_sz(4 << 20);
    socket.send(&batch.bytes, 0)?;
    let mut left = batch.acknowledged;
    while left > 0 {
        let (reply, _) = socket.recv_from_full()?;
        left = left.saturating_sub(acknowledgements(&reply)?);
    }
    Ok(())
}

/// Counts the acknowledgements in a datagram; the first error is returned.
fn acknowledgements(mut reply: &[u8]) -> io::Result<u32> {
    const NLMSG_ERROR: u16 = 2;
    let mut count = 0;
    while reply.len() >= 20 {
        let length = u32::from_ne_bytes([reply[0], reply[1], reply[2], reply[3]]) as usize;
        let kind = u16::from_ne_bytes([reply[4], reply[5]]);
        if kind == NLMSG_ERROR {
            let code = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            count += 1;
        }
        reply = reply
            .get(length.next_multiple_of(4).max(20)..)
            .unwrap_or(&[]);
    }
    Ok(count)
}

/// A batch of netlink messages and how many of them request an acknowledgement.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    sequence: u32,
    acknowledged: u32,
}

fn encode(redirect: &Redirect) -> Batch {
    let mut batch = Batch::default();
    if redirect.outbound_to.is_none() && redirect.inbound_to.is_none() {
        return batch;
    }
    batch.begin();
    if let Some(port) = redirect.outbound_to {
        batch.chain("output", "nat", HOOK_OUTPUT, PRIORITY_DSTNAT);
        // The proxy's own connections would be redirected to it again. A rule by uid is not possible for ordinary
        // users, to whom only one uid is mapped.
        if let Some(mut own) = own(redirect.exemption) {
            own.push(accept());
            batch.rule("output", &own);
        }
        let loopback = [
            meta(META_OIF),
            equals(&LOOPBACK_INDEX.to_ne_bytes()),
            accept(),
        ];
        batch.rule("output", &loopback);
        batch.rule("output", &redirect_tcp(port));
    }
    if let Some(port) = redirect.inbound_to {
        batch.chain("prerouting", "nat", HOOK_PREROUTING, PRIORITY_DSTNAT);
        let loopback = [
            meta(META_IIF),
            equals(&LOOPBACK_INDEX.to_ne_bytes()),
            accept(),
        ];
        batch.rule("prerouting", &loopback);
        if let Some(except) = redirect.inbound_except {
            let mut to_port = tcp_to(except);
            to_port.push(accept());
            batch.rule("prerouting", &to_port);
        }
        batch.rule("prerouting", &redirect_tcp(port));
    }
    if redirect.keeps_source {
        batch.keep_source(redirect.exemption);
    }
    batch.ended()
}

/// Rules in one batch: a socket does not take more than its buffer holds.
const RULES_AT_ONCE: usize = 100;

/// A rule for each pod: the first takes one connection of `n`, the next one of the `n - 1` that are
/// left, and so on.
fn encode_services(services: &[(Ipv4Addr, Vec<Ipv4Addr>)]) -> Vec<Batch> {
    if services.is_empty() {
        return Vec::new();
    }
    let mut first = Batch::default();
    first.begin();
    first.chain("services", "nat", HOOK_PREROUTING, PRIORITY_DSTNAT);
    let rules: Vec<Vec<Vec<u8>>> = services.iter().flat_map(rules_of_service).collect();
    let mut batches = vec![first.ended()];
    for rules in rules.chunks(RULES_AT_ONCE) {
        let mut batch = Batch::default();
        batch.message(BATCH_BEGIN, F_REQUEST, 0, SUBSYSTEM, &[]);
        for rule in rules {
            batch.rule("services", rule);
        }
        batches.push(batch.ended());
    }
    batches
}

fn rules_of_service((service, pods): &(Ipv4Addr, Vec<Ipv4Addr>)) -> Vec<Vec<Vec<u8>>> {
    let rule = |(number, pod): (usize, &Ipv4Addr)| {
        let mut rule = to_address(*service);
        let left = (pods.len() - number) as u32;
        if left > 1 {
            rule.push(random_below(left));
            rule.push(equals(&0_u32.to_ne_bytes()));
        }
        rule.push(immediate(&pod.octets()));
        rule.push(destination_nat());
        rule
    };
    pods.iter().enumerate().map(rule).collect()
}

impl Batch {
    fn ended(mut self) -> Self {
        self.message(BATCH_END, F_REQUEST, 0, SUBSYSTEM, &[]);
        self
    }

    /// Created, deleted and created again, in one transaction: any existing rules are removed, and
    /// the deletion does not fail if there were none.
    fn begin(&mut self) {
        self.message(BATCH_BEGIN, F_REQUEST, 0, SUBSYSTEM, &[]);
        self.nftables(NEW_TABLE, F_CREATE, &string(1, TABLE));
        self.nftables(DELETE_TABLE, 0, &string(1, TABLE));
        self.nftables(NEW_TABLE, F_CREATE, &string(1, TABLE));
    }

    fn message(&mut self, kind: u16, flags: u16, family: u8, resource: u16, payload: &[u8]) {
        let length = 16 + 4 + payload.len();
        self.bytes.extend_from_slice(&(length as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&0_u32.to_ne_bytes());
        self.bytes.push(family);
        self.bytes.push(0); // NFNETLINK_V0
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        self.bytes.extend_from_slice(payload);
        self.sequence += 1;
    }

    fn nftables(&mut self, kind: u16, flags: u16, payload: &[u8]) {
        self.message(kind, F_REQUEST | F_ACK | flags, FAMILY_INET4, 0, payload);
        self.acknowledged += 1;
    }

    /// A base chain.
    fn chain(&mut self, name: &str, kind: &str, hook: u32, priority: i32) {
        let mut hooks = attribute(1, &hook.to_be_bytes());
        hooks.extend(attribute(2, &priority.to_be_bytes()));
        let mut payload = string(1, TABLE);
        payload.extend(string(3, name));
        payload.extend(attribute(4 | NESTED, &hooks));
        payload.extend(string(7, kind));
        self.nftables(NEW_CHAIN, F_CREATE, &payload);
    }

    /// The application responds to its client's address, which is elsewhere. A connection of the
    /// proxy's is marked when it arrives over loopback, and the application's response carries
    /// that mark, by which a rule routes it to loopback and so back to the proxy.
    fn keep_source(&mut self, proxy: RedirectExemption) {
        self.chain("mark", "filter", HOOK_PREROUTING, PRIORITY_MANGLE);
        if let Some(mut rule) = own(proxy) {
            rule.extend([
                immediate(&KEPT_SOURCE_MARK.to_ne_bytes()),
                set_connection_mark(),
            ]);
            self.rule("mark", &rule);
        }
        // Of this type a changed mark makes the kernel look for the route once more.
        self.chain("unmark", "route", HOOK_OUTPUT, PRIORITY_MANGLE);
        self.rule(
            "unmark",
            &[
                connection_mark(),
                and(KEPT_SOURCE_MASK),
                equals(&KEPT_SOURCE_MARK.to_ne_bytes()),
                immediate(&KEPT_SOURCE_MARK.to_ne_bytes()),
                set_meta(META_MARK),
            ],
        );
    }

    fn rule(&mut self, chain: &str, expressions: &[Vec<u8>]) {
        let list: Vec<u8> = expressions
            .iter()
            .flat_map(|expression| attribute(1 | NESTED, expression))
            .collect();
        let mut payload = string(1, TABLE);
        payload.extend(string(2, chain));
        payload.extend(attribute(4 | NESTED, &list));
        self.nftables(NEW_RULE, F_CREATE | F_APPEND, &payload);
    }
}

fn redirect_tcp(port: u16) -> [Vec<u8>; 4] {
    [
        meta(META_L4PROTO),
        equals(&[TCP]),
        immediate(&port.to_be_bytes()),
        expression("redir", &attribute(1, &REGISTER.to_be_bytes())),
    ]
}

/// Matches only the proxy's own connections.
fn own(exemption: RedirectExemption) -> Option<Vec<Vec<u8>>> {
    match exemption {
        RedirectExemption::None => None,
        RedirectExemption::Mark { value, mask } => {
            let mut rule = vec![meta(META_MARK)];
            if mask != u32::MAX {
                rule.push(and(mask));
            }
            rule.push(equals(&value.to_ne_bytes()));
            Some(rule)
        }
        RedirectExemption::DestinationPort(port) => Some(tcp_to(port)),
    }
}

/// Matches only TCP to this port.
fn tcp_to(port: u16) -> Vec<Vec<u8>> {
    const TRANSPORT_HEADER: u32 = 2; // NFT_PAYLOAD_TRANSPORT_HEADER
    const DESTINATION_PORT: u32 = 2;
    const LENGTH: u32 = 2;
    let mut load = attribute(1, &REGISTER.to_be_bytes());
    load.extend(attribute(2, &TRANSPORT_HEADER.to_be_bytes()));
    load.extend(attribute(3, &DESTINATION_PORT.to_be_bytes()));
    load.extend(attribute(4, &LENGTH.to_be_bytes()));
    vec![
        meta(META_L4PROTO),
        equals(&[TCP]),
        expression("payload", &load),
        equals(&port.to_be_bytes()),
    ]
}

/// Matches only TCP to this address.
fn to_address(address: Ipv4Addr) -> Vec<Vec<u8>> {
    const NETWORK_HEADER: u32 = 1; // NFT_PAYLOAD_NETWORK_HEADER
    const DESTINATION_ADDRESS: u32 = 16;
    const LENGTH: u32 = 4;
    let mut load = attribute(1, &REGISTER.to_be_bytes());
    load.extend(attribute(2, &NETWORK_HEADER.to_be_bytes()));
    load.extend(attribute(3, &DESTINATION_ADDRESS.to_be_bytes()));
    load.extend(attribute(4, &LENGTH.to_be_bytes()));
    vec![
        meta(META_L4PROTO),
        equals(&[TCP]),
        expression("payload", &load),
        equals(&address.octets()),
    ]
}

/// Puts a random number below this one into the register.
fn random_below(modulus: u32) -> Vec<u8> {
    const RANDOM: u32 = 1; // NFT_NG_RANDOM
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2, &modulus.to_be_bytes()));
    data.extend(attribute(3, &RANDOM.to_be_bytes()));
    expression("numgen", &data)
}

/// Sends the connection to the address in the register.
fn destination_nat() -> Vec<u8> {
    const DESTINATION: u32 = 1; // NFT_NAT_DNAT
    let mut data = attribute(1, &DESTINATION.to_be_bytes());
    data.extend(attribute(2, &u32::from(FAMILY_INET4).to_be_bytes()));
    data.extend(attribute(3, &REGISTER.to_be_bytes()));
    expression("nat", &data)
}

/// Puts a value into the register.
fn immediate(value: &[u8]) -> Vec<u8> {
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2 | NESTED, &attribute(1, value)));
    expression("immediate", &data)
}

/// Keeps these bits of the register.
fn and(mask: u32) -> Vec<u8> {
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2, &REGISTER.to_be_bytes()));
    data.extend(attribute(3, &4_u32.to_be_bytes()));
    data.extend(attribute(4 | NESTED, &attribute(1, &mask.to_ne_bytes())));
    data.extend(attribute(5 | NESTED, &attribute(1, &[0; 4])));
    expression("bitwise", &data)
}

/// Sets a property of the packet to what is in the register.
fn set_meta(key: u32) -> Vec<u8> {
    let mut data = attribute(2, &key.to_be_bytes());
    data.extend(attribute(3, &REGISTER.to_be_bytes()));
    expression("meta", &data)
}

const CONNECTION_MARK: u32 = 3; // NFT_CT_MARK

/// Loads the mark of the packet's connection into the register.
fn connection_mark() -> Vec<u8> {
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2, &CONNECTION_MARK.to_be_bytes()));
    expression("ct", &data)
}

fn set_connection_mark() -> Vec<u8> {
    let mut data = attribute(2, &CONNECTION_MARK.to_be_bytes());
    data.extend(attribute(4, &REGISTER.to_be_bytes()));
    expression("ct", &data)
}

/// Loads a property of the packet into the register.
fn meta(key: u32) -> Vec<u8> {
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2, &key.to_be_bytes()));
    expression("meta", &data)
}

/// Matches only if the register holds this value.
fn equals(value: &[u8]) -> Vec<u8> {
    let mut data = attribute(1, &REGISTER.to_be_bytes());
    data.extend(attribute(2, &0_u32.to_be_bytes())); // NFT_CMP_EQ
    data.extend(attribute(3 | NESTED, &attribute(1, value)));
    expression("cmp", &data)
}

fn accept() -> Vec<u8> {
    let code = attribute(1, &VERDICT_ACCEPT.to_be_bytes());
    let mut data = attribute(1, &REGISTER_VERDICT.to_be_bytes());
    data.extend(attribute(2 | NESTED, &attribute(2 | NESTED, &code)));
    expression("immediate", &data)
}

fn expression(name: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = string(1, name);
    bytes.extend(attribute(2 | NESTED, data));
    bytes
}

fn string(kind: u16, text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    attribute(kind, &bytes)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend_from_slice(&(length as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes
            .chunks(16)
            .map(|row| {
                row.iter()
                    .map(|b| format!("{b:02x}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn golden_messages() {
        let redirect = |outbound_to, inbound_to| Redirect {
            outbound_to,
            inbound_to,
            exemption: RedirectExemption::mark(1337),
            ..Redirect::default()
        };
        insta::assert_snapshot!("outbound", hex(&encode(&redirect(Some(15001), None)).bytes));
        insta::assert_snapshot!("inbound", hex(&encode(&redirect(None, Some(15006))).bytes));
        assert!(encode(&redirect(None, None)).bytes.is_empty());
        insta::assert_snapshot!("in_pod", hex(&encode(&in_pod()).bytes));
        let by_port = Redirect {
            outbound_to: Some(4140),
            exemption: RedirectExemption::DestinationPort(4143),
            ..Redirect::default()
        };
        insta::assert_snapshot!("by_port", hex(&encode(&by_port).bytes));
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let service = (address(1), vec![address(2), address(3)]);
        let batches = encode_services(&[service]);
        let bytes: Vec<u8> = batches.iter().flat_map(|b| b.bytes.clone()).collect();
        insta::assert_snapshot!("service", hex(&bytes));
        assert!(encode_services(&[]).is_empty());
        // As many replicas as there may be: each batch fits a socket's buffer.
        let many = (address(1), vec![address(2); 500]);
        let batches = encode_services(&[many.clone(), many]);
        assert_eq!(batches.len(), 11);
        assert!(batches.iter().all(|batch| batch.bytes.len() < 100_000));
    }

    /// As ztunnel has it.
    fn in_pod() -> Redirect {
        Redirect {
            outbound_to: Some(15001),
            inbound_to: Some(15006),
            exemption: RedirectExemption::Mark {
                value: 0x539,
                mask: 0xfff,
            },
            inbound_except: Some(15008),
            keeps_source: true,
        }
    }

    #[test]
    fn messages_are_aligned_and_their_lengths_add_up() {
        let batch = encode(&in_pod());
        let mut rest = batch.bytes.as_slice();
        let mut messages = 0;
        while !rest.is_empty() {
            let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            assert_eq!(length % 4, 0);
            rest = &rest[length..];
            messages += 1;
        }
        assert_eq!(messages, batch.sequence);
        assert_eq!(
            batch.acknowledged,
            batch.sequence - 2,
            "all but the batch's begin and end"
        );
    }

    #[test]
    fn first_rejected_message_is_the_error() {
        let mut reply = 36_u32.to_ne_bytes().to_vec();
        reply.extend(2_u16.to_ne_bytes());
        reply.extend([0; 10]);
        reply.extend((-libc::EPERM).to_ne_bytes());
        reply.extend([0; 16]);
        let error = acknowledgements(&reply).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        reply[16..20].fill(0);
        assert_eq!(acknowledgements(&reply).unwrap(), 1);
        assert_eq!(acknowledgements(&[1, 2, 3]).unwrap(), 0);
    }
}
