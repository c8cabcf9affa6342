//! A network namespace as a vantage point of probes.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use meshtax_agent::{Capture, PacketSocket};
use meshtax_evidence::{Connection, Vantage};
use meshtax_load::LoadSpec;
use meshtax_model::trial::LoadResult;
use meshtax_observe::established_connections_here;

use super::netlink;
use super::netns::NetNs;
use super::network::POD_LINK;

impl Vantage for NetNs {
    fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<Box<dyn Connection>> {
        let stream = self.run(|| {
            let stream = TcpStream::connect_timeout(&to, timeout)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })?;
        Ok(Box::new(stream))
    }

    fn established_connections(&self, local_port: u16) -> io::Result<u32> {
        self.run(|| established_connections_here(local_port).map_err(io::Error::other))
    }

    fn run_load(&self, spec: &LoadSpec) -> io::Result<LoadResult> {
        self.run(|| meshtax_load::run(spec, &mut |_| {}).map_err(io::Error::other))
    }
}

impl NetNs {
    /// Starts recording the packets on the link of this pod.
    pub(super) fn capture(&self) -> io::Result<Capture> {
        let socket = self.run(|| PacketSocket::open(netlink::index(POD_LINK)?))?;
        Ok(Capture::start(vec![socket]))
    }
}
