//! ztunnel's workload socket ("ZDS", istio/ztunnel, proto/zds.proto): how the node's agent passes it the
//! network namespaces of the pods that it serves.
//!
//! A Unix socket of type SEQPACKET with one protobuf message per packet. ztunnel connects and sends a hello;
//! each pod is sent with the descriptor of its namespace and acknowledged; then `SnapshotSent` follows.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use meshtax_dataplane::Workload;
use prost::Message as _;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, shutdown,
    socket_with,
};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Hello {
    #[prost(int32, tag = "1")]
    pub(crate) version: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WorkloadRequest {
    #[prost(oneof = "Payload", tags = "1, 3")]
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Payload {
    #[prost(message, tag = "1")]
    Add(AddWorkload),
    #[prost(message, tag = "3")]
    SnapshotSent(SnapshotSent),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AddWorkload {
    #[prost(string, tag = "1")]
    pub(crate) uid: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) workload_info: Option<WorkloadInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WorkloadInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "3")]
    pub(crate) service_account: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SnapshotSent {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WorkloadResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) ack: Option<Ack>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ack {
    #[prost(string, tag = "1")]
    pub(crate) error: String,
}

/// The only version there is.
const VERSION_1: i32 = 1;
/// Larger than any message of the protocol.
const PACKET_BYTES: usize = 64 * 1024;

/// The socket, served until this value is dropped.
#[derive(Debug)]
pub struct WorkloadSocket {
    listener: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl WorkloadSocket {
    /// Listens at `path` and sends these pods to every ztunnel that connects.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn serve(path: &Path, pods: Vec<(Workload, OwnedFd)>) -> io::Result<Self> {
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 4)?;
        let listener = Arc::new(listener);
        let theirs = Arc::clone(&listener);
        let thread = thread::Builder::new()
            .name("workload-socket".into())
            .spawn(move || {
                // One ztunnel at a time, as on a real node. When it ends, the stream ends,
                // and the next one can connect.
                while let Ok(stream) = accept_with(&*theirs, SocketFlags::CLOEXEC) {
                    let _ = tell(&stream, &pods);
                }
            })?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

impl Drop for WorkloadSocket {
    fn drop(&mut self) {
        // Wakes a thread that waits for a connection. A thread that serves a ztunnel ends with it.
        let _ = shutdown(&*self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take()
            && thread.is_finished()
        {
            let _ = thread.join();
        }
    }
}

fn tell(stream: &OwnedFd, pods: &[(Workload, OwnedFd)]) -> io::Result<()> {
    let hello: Hello = receive(stream)?;
    if hello.version != VERSION_1 {
        return Err(io::Error::other("a ztunnel of a version that is not known"));
    }
    for (workload, namespace) in pods {
        let add = Payload::Add(AddWorkload {
            uid: workload.uid.clone(),
            workload_info: Some(WorkloadInfo {
                name: workload.name.clone(),
                namespace: workload.namespace.clone(),
                service_account: workload.service_account.clone(),
            }),
        });
        send(stream, add, Some(namespace))?;
    }
    send(stream, Payload::SnapshotSent(SnapshotSent {}), None)?;
    // Stay open as long as the ztunnel runs: it reconnects when its agent disconnects.
    let mut packet = [0; 64];
    while recv(stream, &mut packet, RecvFlags::empty())?.1 > 0 {}
    Ok(())
}

/// Sends a message and waits until it is acknowledged.
fn send(stream: &OwnedFd, payload: Payload, descriptor: Option<&OwnedFd>) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let bytes = WorkloadRequest {
        payload: Some(payload),
    }
    .encode_to_vec();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.iter().map(|d| d.as_fd()).collect();
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let slices = [IoSlice::new(&bytes)];
    sendmsg(stream, &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
    let response: WorkloadResponse = receive(stream)?;
    match response.ack {
        Some(ack) if ack.error.is_empty() => Ok(()),
        Some(ack) => Err(io::Error::other(ack.error)),
        None => Err(io::Error::other("not acknowledged")),
    }
}

fn receive<M: prost::Message + Default>(stream: &OwnedFd) -> io::Result<M> {
    let mut packet = vec![0; PACKET_BYTES];
    let (_, length) = recv(stream, &mut packet, RecvFlags::empty())?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    M::decode(&packet[..length]).map_err(io::Error::other)
}
