//! The control planes that a variant's proxies need, on sockets of the pods and nodes.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use meshtax_control_plane::{Server, SharedAuthority, WorkloadSocket, istio_ca, linkerd};
use meshtax_dataplane::{ControlService, Place};

use super::netns::NetNs;

/// What is served until this is dropped.
#[derive(Debug)]
pub(crate) enum Control {
    Grpc { _server: Server },
    Socket { _socket: WorkloadSocket },
}

/// Serves to the proxies of one pod: those in it, and those of its node.
pub(crate) fn serve(
    service: &ControlService,
    pod: &NetNs,
    node: &NetNs,
    authority: &SharedAuthority,
) -> io::Result<Control> {
    // A socket belongs to the namespace in which it was made, wherever it is used.
    let listen = |at: &NetNs, port: u16| at.run(|| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    Ok(match service {
        ControlService::IstioCa {
            place,
            port,
            dns_name,
        } => {
            let at = match place {
                Place::Pod => pod,
                Place::Node => node,
            };
            Control::Grpc {
                _server: istio_ca(listen(at, *port)?, authority, dns_name)?,
            }
        }
        ControlService::WorkloadSocket { path, workload } => Control::Socket {
            _socket: WorkloadSocket::serve(
                Path::new(path),
                vec![(workload.clone(), pod.descriptor()?)],
            )?,
        },
        ControlService::Linkerd { port, answers } => Control::Grpc {
            _server: linkerd(listen(pod, *port)?, authority, answers.clone())?,
        },
    })
}
