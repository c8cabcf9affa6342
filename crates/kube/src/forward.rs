//! Port-forwards: a pod's agent at an address of this machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use meshtax_agent::remote::AGENT_PORT;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, with_sources};

/// A listener on this machine's loopback whose connections reach a pod's agent, each by a port-forward of its own: what
/// is lost is one connection. Dropping it ends all of them.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) at: SocketAddr,
    refused: Refused,
    task: JoinHandle<()>,
}

/// Why the API server last refused to forward.
type Refused = Arc<Mutex<Option<String>>>;

impl Forward {
    pub(crate) fn open(cluster: &Cluster, namespace: &str, pod: &str) -> std::io::Result<Self> {
        let (api, pod) = (cluster.pods(namespace), pod.to_owned());
        let handle = cluster.handle();
        let listener = handle.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let at = listener.local_addr()?;
        let refused = Refused::default();
        let reason = Arc::clone(&refused);
        let task = handle.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(carry(api.clone(), pod.clone(), stream, Arc::clone(&reason)));
                    }
                    // Out of descriptors, for example: later connections may be accepted.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Ok(Self { at, refused, task })
    }

    /// Why the last connection was not carried; `None`: it was.
    pub(crate) fn refused(&self) -> Option<String> {
        let refused = self.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection. If that fails, it is closed: its client reports what it was about.
async fn carry(api: Api<Pod>, pod: String, local: TcpStream, refused: Refused) {
    let _ = local.set_nodelay(true);
    let forwarded = api.portforward(&pod, &[AGENT_PORT]).await;
    note(
        &refused,
        forwarded.as_ref().err().map(|error| with_sources(error)),
    );
    let Ok(mut forwarder) = forwarded else {
        return;
    };
    let (Some(remote), Some(error)) = (
        forwarder.take_stream(AGENT_PORT),
        forwarder.take_error(AGENT_PORT),
    ) else {
        return;
    };
    copy_both(local, remote, error, &refused).await;
    forwarder.abort();
}

fn note(refused: &Refused, cause: Option<String>) {
    *refused.lock().unwrap_or_else(PoisonError::into_inner) = cause;
}

/// Copies until the remote end closes. The kubelet says on a stream of its own why it cannot carry the connection (nothing
/// listens at the port, the pod is gone), and then closes: its error is noted before the client sees the end.
async fn copy_both(
    local: TcpStream,
    remote: impl AsyncRead + AsyncWrite,
    error: impl Future<Output = Option<String>>,
    refused: &Refused,
) {
    let (mut from_local, mut to_local) = local.into_split();
    let (mut from_remote, mut to_remote) = split(remote);
    let mut error = std::pin::pin!(error);
    let there = async {
        // What the client has sent is over: only the remote end ends the whole.
        if copy(&mut from_local, &mut to_remote).await.is_ok() {
            let _ = to_remote.shutdown().await;
            std::future::pending::<()>().await;
        }
    };
    let here = async {
        let _ = copy(&mut from_remote, &mut to_local).await;
    };
    tokio::select! {
        () = here => {}
        () = there => {}
    }
    // Of an error, the message came before the end of the stream; a stream that ended well has none.
    let told = tokio::select! {
        biased;
        told = &mut error => told,
        () = std::future::ready(()) => None,
    };
    if told.is_some() {
        note(refused, told);
    }
    let _ = to_local.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::fake_api::{Answer, FakeApi};

    /// The messages of a port-forward: data on channel 0, errors on channel 1, each first with the port.
    fn messages(more: &[(u8, &[u8])]) -> Answer {
        let port = AGENT_PORT.to_le_bytes();
        let on = |channel: u8, text: &[u8]| [&[channel], text].concat();
        let mut all = vec![on(0, &port), on(1, &port)];
        all.extend(more.iter().map(|(channel, text)| on(*channel, text)));
        Answer::messages(all)
    }

    /// What a connection through such a port-forward reads, and why it was refused.
    fn forwarded(answer: Answer) -> (Vec<u8>, Option<String>) {
        let api = FakeApi::start(move |_, _| answer.clone());
        let cluster = api.cluster();
        let forward = Forward::open(&cluster, "n", "server").unwrap();
        let mut stream = std::net::TcpStream::connect(forward.at).unwrap();
        let mut read = Vec::new();
        let _ = stream.read_to_end(&mut read);
        (read, forward.refused())
    }

    #[test]
    fn error_that_the_kubelet_reports_on_its_stream_is_why_the_connection_ended() {
        let error = b"error forwarding port 17070: connection refused";
        let (read, refused) = forwarded(messages(&[(1, error)]));
        assert!(read.is_empty(), "{read:?}");
        assert!(refused.is_some_and(|text| text.contains("connection refused")));
    }

    #[test]
    fn connection_that_the_pod_ends_has_its_bytes_and_no_error() {
        let (read, refused) = forwarded(messages(&[(0, b"some "), (0, b"bytes")]));
        assert_eq!((read.as_slice(), refused), (&b"some bytes"[..], None));
    }

    #[test]
    fn refused_port_forward_has_the_api_servers_message() {
        let (read, refused) = forwarded(Answer::failure(404, "NotFound", "no pod server"));
        assert!(read.is_empty());
        assert!(refused.is_some_and(|text| text.contains("no pod server")));
    }
}
