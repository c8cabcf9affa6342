//! Whose sockets hold a connection: a redirected connection ends at the proxy's port in the pod itself.

use crate::finding::ProbeError;
use crate::vantage::Vantage;

/// Something that should hold connections at a port, in one of some pods.
pub(crate) struct Holder<'a> {
    /// For a person.
    pub(crate) name: &'a str,
    pub(crate) at: Vec<&'a dyn Vantage>,
    pub(crate) port: u16,
}

impl Holder<'_> {
    /// Connections that it holds now.
    pub(crate) fn connections(&self) -> Result<u32, ProbeError> {
        let counts = self
            .at
            .iter()
            .map(|at| at.established_connections(self.port));
        counts.sum::<Result<u32, _>>().map_err(ProbeError::Sockets)
    }
}

/// Requires that each of them holds a connection now. Returns what was counted.
pub(crate) fn all_hold(holders: &[Holder<'_>]) -> Result<String, ProbeError> {
    let (mut seen, mut bypassed) = (Vec::new(), Vec::new());
    for holder in holders {
        let (name, port) = (holder.name, holder.port);
        match holder.connections()? {
            0 => bypassed.push((name.to_owned(), port)),
            count => seen.push(format!("{count} at {name} (port {port})")),
        }
    }
    match bypassed.is_empty() {
        true => Ok(format!("connections: {}", seen.join(", "))),
        false => Err(ProbeError::Bypassed(bypassed)),
    }
}
