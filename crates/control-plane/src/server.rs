//! A gRPC server on a thread of its own.

use std::io;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::{Identity, ServerTlsConfig};

/// A server that ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers on this socket. `tls`: certificate chain and key, PEM.
    pub(crate) fn start(
        listener: TcpListener,
        routes: Routes,
        tls: Option<(String, String)>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let mut server = tonic::transport::Server::builder();
        if let Some((chain, key)) = tls {
            let identity = Identity::from_pem(chain, key);
            server = server
                .tls_config(ServerTlsConfig::new().identity(identity))
                .map_err(io::Error::other)?;
        }
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("control-plane".into())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    let serving = server
                        .add_routes(routes)
                        .serve_with_incoming(TcpListenerStream::new(listener));
                    // Watches stay open for ever: a graceful end would wait for them.
                    tokio::select! {
                        _ = serving => {}
                        _ = ended => {}
                    }
                });
            })?;
        Ok(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
