//! A gRPC server on a separate thread.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::{Identity, ServerTlsConfig};

/// A gRPC service with one implemented method.
pub(crate) trait OneMethod: Clone + Send + Sync + 'static {
    /// Including its package.
    const SERVICE: &'static str;
    const METHOD: &'static str;

    /// Handles a call of that method.
    fn called(
        self,
        request: http::Request<Body>,
    ) -> impl Future<Output = http::Response<Body>> + Send;
}

/// Wraps such a service for a server: its other methods return `UNIMPLEMENTED`.
#[derive(Clone, Debug)]
pub(crate) struct SingleMethodService<S>(pub(crate) S);

impl<S: OneMethod> NamedService for SingleMethodService<S> {
    const NAME: &'static str = S::SERVICE;
}

impl<S: OneMethod> Service<http::Request<Body>> for SingleMethodService<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let method = request.uri().path().rsplit('/').next();
            if method != Some(S::METHOD) {
                return Ok(Status::unimplemented(format!("only {}", S::METHOD)).into_http());
            }
            Ok(service.called(request).await)
        })
    }
}

/// A server that stops when this value is dropped.
#[derive(Debug)]
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on this socket. `tls`: certificate chain and key, PEM.
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
                    // Watches stay open indefinitely: a graceful shutdown would wait for them.
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
