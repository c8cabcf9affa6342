//! TCP sockets of the calling thread's network namespace, by `sock_diag(7)`.
//!
//! The kernel walks its whole table of connections for it, as it does for `/proc/net/tcp`, but writes no text of each empty
//! slot: on a table of 262,144 slots that took 0.25 ms instead of 6.5 ms, on a core that may be measured.

use std::io;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
pub(crate) use netlink_packet_sock_diag::inet::StateFlags;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId};
use netlink_sys::Socket;
use netlink_sys::SocketAddr;
use netlink_sys::protocols::NETLINK_SOCK_DIAG;

/// A TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    pub(crate) local_port: u16,
    pub(crate) inode: u64,
}

/// All TCP sockets in these states. Those of a server that listens at an IPv6 address are of that family, also for clients
/// of IPv4.
pub(crate) fn tcp_sockets(states: &StateFlags) -> io::Result<Vec<TcpSocket>> {
    let netlink = Socket::new(NETLINK_SOCK_DIAG)?;
    netlink.connect(&SocketAddr::new(0, 0))?;
    let mut found = Vec::new();
    for (family, any) in [
        (AF_INET, SocketId::new_v4()),
        (AF_INET6, SocketId::new_v6()),
    ] {
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: states.clone(),
            socket_id: any,
        };
        netlink.send(&dump(request), 0)?;
        while read_part(&netlink.recv_from_full()?.0, &mut found)? {}
    }
    Ok(found)
}

fn dump(request: InetRequest) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    buffer
}

/// Adds the sockets of one datagram. Returns whether more follow.
fn read_part(mut datagram: &[u8], found: &mut Vec<TcpSocket>) -> io::Result<bool> {
    while !datagram.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(datagram)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                found.push(TcpSocket {
                    local_port: response.header.socket_id.source_port,
                    inode: response.header.inode.into(),
                });
            }
            NetlinkPayload::Done(_) => return Ok(false),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            _ => {}
        }
        // Messages are aligned to four bytes.
        let length = (message.header.length as usize).next_multiple_of(4);
        datagram = datagram.get(length..).unwrap_or_default();
    }
    Ok(true)
}
