//! Where probes act from: a pod, a node, or a pod outside the mesh.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use meshtax_load::LoadSpec;
use meshtax_model::trial::LoadResult;

/// A TCP connection that a probe holds.
pub trait Connection: Read + Write + Send {}

impl<T: Read + Write + Send> Connection for T {}

/// A point of view in the network. Every engine has its own; the probes are the same.
pub trait Vantage: Sync {
    /// Opens a TCP connection from here. Reads and writes that take longer than `timeout` fail as well.
    ///
    /// # Errors
    /// As `connect(2)`.
    fn connect(&self, to: SocketAddr, timeout: Duration) -> io::Result<Box<dyn Connection>>;

    /// Established connections here whose local end has this port.
    ///
    /// # Errors
    /// If the sockets cannot be listed.
    fn established_connections(&self, local_port: u16) -> io::Result<u32>;

    /// Offers a load from here, to its end.
    ///
    /// # Errors
    /// If the load cannot be offered.
    fn run_load(&self, spec: &LoadSpec) -> io::Result<LoadResult>;
}

/// The vantage point of a pod that does not exist: everything fails.
pub(crate) struct Nowhere;

impl Nowhere {
    fn error<T>() -> io::Result<T> {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the engine has no such pod",
        ))
    }
}

impl Vantage for Nowhere {
    fn connect(&self, _: SocketAddr, _: Duration) -> io::Result<Box<dyn Connection>> {
        Self::error()
    }

    fn established_connections(&self, _: u16) -> io::Result<u32> {
        Self::error()
    }

    fn run_load(&self, _: &LoadSpec) -> io::Result<LoadResult> {
        Self::error()
    }
}

/// An address and a port.
pub type Endpoint = (Ipv4Addr, u16);
