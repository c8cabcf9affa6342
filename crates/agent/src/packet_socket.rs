//! A packet socket: the packets of one link that pass a filter, without tcpdump.
#![expect(
    unsafe_code,
    reason = "sockaddr_ll, SO_ATTACH_FILTER and PACKET_STATISTICS have no safe form"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, setsockopt, socket, sockopt,
};

use crate::packet_filter::PacketFilter;

/// Receives packets of a link, in both directions, from their IP header on.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// All TCP on the link with this index, in the calling thread's network namespace.
    ///
    /// # Errors
    /// If the kernel refuses the socket (it needs `CAP_NET_RAW`).
    pub fn open(link_index: u32) -> io::Result<Self> {
        Self::filtered(link_index, &PacketFilter::tcp())
    }

    /// What passes the filter: the kernel copies no other packet.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn filtered(link_index: u32, filter: &PacketFilter) -> io::Result<Self> {
        // Without a protocol it receives nothing until it is bound: no packet of another link gets in, and none past the
        // filter. As datagrams, packets begin with the IP header on every kind of link.
        let socket = socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        attach(&socket, filter)?;
        // As large as the system allows (root may exceed the limit). Too small a buffer causes drops, which are counted
        // and checked.
        if setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).is_err() {
            let _ = setsockopt(&socket, sockopt::RcvBuf, &(8 << 20));
        }
        // SAFETY: a zeroed sockaddr_ll is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = link_index.cast_signed();
        // SAFETY: the pointer and the length are those of `address`.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                std::ptr::addr_of!(address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(socket))
    }

    /// The next packet; `None` if none came within the time.
    pub(crate) fn next<'a>(
        &self,
        buffer: &'a mut [u8],
        wait_ms: u16,
    ) -> io::Result<Option<&'a [u8]>> {
        let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::from(wait_ms))? == 0 {
            return Ok(None);
        }
        let length = recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?;
        Ok(Some(&buffer[..length]))
    }

    /// Packets that passed the filter, and that the kernel dropped because they were not read in time.
    pub(crate) fn dropped(&self) -> io::Result<u64> {
        #[repr(C)]
        #[derive(Default)]
        struct Statistics {
            packets: u32,
            drops: u32,
        }
        const SOL_PACKET: libc::c_int = 263;
        const PACKET_STATISTICS: libc::c_int = 6;
        let mut statistics = Statistics::default();
        let mut length = size_of::<Statistics>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `statistics`.
        let result = unsafe {
            libc::getsockopt(
                self.as_fd().as_raw_fd(),
                SOL_PACKET,
                PACKET_STATISTICS,
                std::ptr::addr_of_mut!(statistics).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = statistics.packets;
        Ok(u64::from(statistics.drops))
    }
}

/// Before the socket is bound.
fn attach(socket: &OwnedFd, filter: &PacketFilter) -> io::Result<()> {
    let instructions = filter.program().iter();
    let mut encoded: Vec<libc::sock_filter> = instructions
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_if_true,
            jf: instruction.jump_if_false,
            k: instruction.operand,
        })
        .collect();
    let length = u16::try_from(encoded.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len: length,
        filter: encoded.as_mut_ptr(),
    };
    // SAFETY: the pointer and the length are those of `program`, and its own those of the instructions, which live until
    // the kernel has copied them.
    let attached = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            std::ptr::addr_of!(program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    match attached {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::io::Write as _;
    use std::net::Ipv4Addr;
    use std::thread;

    use nix::net::if_::if_nametoindex;
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// A tunnel of IP packets, without a header of its own, in the calling thread's network namespace.
    fn tunnel() -> io::Result<File> {
        const NAME: &[u8] = b"tunnel";
        let tunnel = OpenOptions::new().write(true).open("/dev/net/tun")?;
        // SAFETY: a zeroed ifreq is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(NAME) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq.
        if unsafe { libc::ioctl(tunnel.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let any = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        // SAFETY: SIOCSIFFLAGS reads one ifreq.
        match unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) } {
            0 => Ok(tunnel),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The header of an IPv4 packet with TCP, and no more.
    fn packet(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet
    }

    #[test]
    fn packets_of_a_tunnel_without_a_link_header_begin_with_their_ip_header() {
        let pods = [1, 2].map(|last| Ipv4Addr::new(10, 244, 0, last));
        let stranger = Ipv4Addr::new(10, 244, 0, 3);
        let received = move || -> io::Result<Vec<Vec<u8>>> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let mut tunnel = tunnel()?;
            let index = if_nametoindex("tunnel")?;
            let socket = PacketSocket::filtered(index, &PacketFilter::between(&pods))?;
            tunnel.write_all(&packet(stranger, pods[1]))?;
            tunnel.write_all(&packet(pods[0], pods[1]))?;
            let mut buffer = [0; 2048];
            let mut all = Vec::new();
            while let Some(packet) = socket.next(&mut buffer, 50)? {
                all.push(packet.to_vec());
            }
            Ok(all)
        };
        // A namespace is a property of a thread.
        match thread::spawn(received).join().unwrap() {
            Ok(received) => assert_eq!(received, [packet(pods[0], pods[1])]),
            Err(error) => {
                let _ = writeln!(io::stderr(), "SKIPPED: a tunnel cannot be created: {error}");
            }
        }
    }
}
