//! The proxy's sockets: listening, the original destination of a redirected connection, dialling upstream.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;

use meshtax_dataplane::LimitProxyConfig;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

pub(crate) fn listen(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    net::listen(&socket, 4096)?;
    Ok(socket)
}

/// The destination of a connection before it was redirected here.
pub(crate) fn original_destination(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let raw = getsockopt(stream, sockopt::OriginalDst)?;
    let address = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
    Ok(SocketAddrV4::new(address, u16::from_be(raw.sin_port)))
}

/// Starts a connection that is exempt from redirection.
pub(crate) fn dial(to: SocketAddrV4, config: &LimitProxyConfig) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    setsockopt(&socket, sockopt::Mark, &config.mark)?;
    if let Some(source) = config.upstream_source {
        net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match net::connect(&socket, &SocketAddr::V4(to)) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(e) => return Err(e.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}
