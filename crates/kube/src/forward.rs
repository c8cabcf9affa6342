//! Port-forwards: a pod's agent at an address of this machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use meshtax_agent::remote::AGENT_PORT;
use tokio::io::copy_bidirectional;
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
async fn carry(api: Api<Pod>, pod: String, mut local: TcpStream, refused: Refused) {
    let _ = local.set_nodelay(true);
    let forwarded = api.portforward(&pod, &[AGENT_PORT]).await;
    *refused.lock().unwrap_or_else(PoisonError::into_inner) =
        forwarded.as_ref().err().map(|error| with_sources(error));
    let Ok(mut forwarder) = forwarded else {
        return;
    };
    let Some(mut remote) = forwarder.take_stream(AGENT_PORT) else {
        return;
    };
    let _ = copy_bidirectional(&mut local, &mut remote).await;
    drop(remote);
    forwarder.abort();
}
