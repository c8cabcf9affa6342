//! ztunnel: the socket on which it gets its pods.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use meshtax_control_plane::WorkloadSocket;
use meshtax_dataplane::Workload;
use prost::Message as _;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};

/// istio/ztunnel, proto/zds.proto.
#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadRequest {
    #[prost(message, optional, tag = "1")]
    add: Option<AddWorkload>,
    #[prost(message, optional, tag = "3")]
    snapshot_sent: Option<()>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AddWorkload {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(message, optional, tag = "2")]
    workload_info: Option<WorkloadInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WorkloadInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "3")]
    service_account: String,
}

/// `ZdsHello{version: V1}`, and `WorkloadResponse{ack: Ack{}}`, as they are on the wire.
const HELLO: &[u8] = &[0x08, 0x01];

const ACKNOWLEDGED: &[u8] = &[0x0a, 0x00];

/// One packet, and the descriptor in it.
fn packet(stream: &OwnedFd) -> (WorkloadRequest, Option<OwnedFd>) {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(stream, &mut slices, &mut ancillary, RecvFlags::empty()).unwrap();
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    assert!(descriptors.len() < 2);
    let request = WorkloadRequest::decode(&bytes[..received.bytes]).unwrap();
    (request, descriptors.pop())
}

#[test]
fn workload_socket_sends_each_pod_namespace_and_then_snapshot_sent() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ztunnel.sock");
    let pods: Vec<(Workload, OwnedFd)> = ["client", "server"]
        .into_iter()
        .map(|name| {
            let workload = Workload {
                uid: format!("cluster//Pod/default/{name}"),
                name: name.into(),
                namespace: "default".into(),
                service_account: format!("{name}-account"),
            };
            let file = std::fs::File::create(directory.path().join(name)).unwrap();
            (workload, file.into())
        })
        .collect();
    let _socket = WorkloadSocket::serve(&path, pods).unwrap();
    // A restarted ztunnel connects again.
    for _ in 0..2 {
        let stream = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        connect(&stream, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        send(&stream, HELLO, SendFlags::NOSIGNAL).unwrap();
        for name in ["client", "server"] {
            let (request, namespace) = packet(&stream);
            let add = request.add.expect("a workload");
            let info = add.workload_info.unwrap();
            assert_eq!(add.uid, format!("cluster//Pod/default/{name}"));
            assert_eq!(
                (info.name.as_str(), info.namespace.as_str()),
                (name, "default")
            );
            assert_eq!(info.service_account, format!("{name}-account"));
            // It is that very file.
            let (given, meant) = (namespace.unwrap(), directory.path().join(name));
            let meant = std::fs::File::open(meant).unwrap();
            let inode = |fd: std::os::fd::BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
            assert_eq!(inode(given.as_fd()), inode(meant.as_fd()));
            send(&stream, ACKNOWLEDGED, SendFlags::NOSIGNAL).unwrap();
        }
        let (last, nothing) = packet(&stream);
        assert!(last.snapshot_sent.is_some() && nothing.is_none());
        send(&stream, ACKNOWLEDGED, SendFlags::NOSIGNAL).unwrap();
    }
}
