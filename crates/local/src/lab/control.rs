//! The control planes that a variant's proxies need, on sockets of the pods and nodes.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use meshtax_control_plane::{
    DiscoveryServer, Server, SharedAuthority, TraceCollector, WorkloadSocket, discovery, istio_ca,
    linkerd, trace_collector,
};
use meshtax_dataplane::{ControlService, ProcessScope};

use super::netns::NetNs;

/// What is served until this is dropped.
#[derive(Debug)]
pub(crate) enum Control {
    Grpc { _server: Server },
    Socket { _socket: WorkloadSocket },
    Discovery(DiscoveryServer),
    Collector(TraceCollector),
}

impl Control {
    /// Envoy's discovery service, if this is one.
    pub(crate) fn discovery(&self) -> Option<&DiscoveryServer> {
        match self {
            Self::Discovery(server) => Some(server),
            Self::Grpc { .. } | Self::Socket { .. } | Self::Collector(_) => None,
        }
    }

    /// The trace collector, if this is one.
    pub(crate) fn collector(&self) -> Option<&TraceCollector> {
        match self {
            Self::Collector(collector) => Some(collector),
            Self::Grpc { .. } | Self::Socket { .. } | Self::Discovery(_) => None,
        }
    }
}

/// Serves to the proxies of one pod: those in it, and those of its node. `pods`: all of the variant by their names, of
/// which its node's proxy may serve others.
pub(crate) fn serve(
    service: &ControlService,
    (pod, node): (&NetNs, &NetNs),
    pods: &BTreeMap<String, NetNs>,
    authority: &SharedAuthority,
) -> io::Result<Control> {
    // A socket belongs to the namespace in which it was made, wherever it is used.
    let listen = |at: &NetNs, port: u16| at.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    Ok(match service {
        ControlService::IstioCa {
            scope,
            port,
            dns_name,
        } => {
            let at = match scope {
                ProcessScope::Pod => pod,
                ProcessScope::Node => node,
            };
            Control::Grpc {
                _server: istio_ca(listen(at, *port)?, authority, dns_name)?,
            }
        }
        ControlService::WorkloadSocket { path, workloads } => {
            let known: io::Result<Vec<_>> = workloads
                .iter()
                .map(|workload| {
                    let name = workload.name.as_str();
                    let unknown = || io::Error::other(format!("no pod is called {name}"));
                    let pod = pods.get(name).ok_or_else(unknown)?;
                    Ok((workload.clone(), pod.descriptor()?))
                })
                .collect();
            Control::Socket {
                _socket: WorkloadSocket::serve(Path::new(path), known?)?,
            }
        }
        ControlService::Linkerd { port, answers } => Control::Grpc {
            _server: linkerd(listen(pod, *port)?, authority, answers.clone())?,
        },
        ControlService::Discovery { port, tells } => {
            Control::Discovery(discovery(listen(pod, *port)?, tells)?)
        }
        ControlService::TraceCollector { port } => {
            Control::Collector(trace_collector(listen(pod, *port)?)?)
        }
    })
}
