//! Istio's certificate service, `istio.v1.auth.IstioCertificateService`
//! (istio/api, security/v1alpha1/ca.proto): a signing request in, a chain out.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::authority::SharedAuthority;
use crate::server::Server;

/// `CreateCertificate`'s argument, as far as it is of interest here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CertificateRequest {
    /// PEM.
    #[prost(string, tag = "1")]
    pub(crate) csr: String,
    #[prost(int64, tag = "3")]
    pub(crate) validity_duration: i64,
}

/// `CreateCertificate`'s answer.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CertificateResponse {
    /// PEM, the leaf first, the root last.
    #[prost(string, repeated, tag = "1")]
    pub(crate) cert_chain: Vec<String>,
}

/// Serves it over TLS, as `dns_name`.
///
/// # Errors
/// If the server's own certificate cannot be made, or its thread not started.
pub fn istio_ca(
    listener: TcpListener,
    authority: &SharedAuthority,
    dns_name: &str,
) -> io::Result<Server> {
    let leaf = authority
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .leaf(dns_name)
        .map_err(io::Error::other)?;
    let service = CertificateService {
        authority: authority.clone(),
    };
    Server::start(
        listener,
        Routes::new(service),
        Some((leaf.chain_pem, leaf.key_pem)),
    )
}

#[derive(Clone, Debug)]
struct CertificateService {
    authority: SharedAuthority,
}

impl NamedService for CertificateService {
    const NAME: &'static str = "istio.v1.auth.IstioCertificateService";
}

impl UnaryService<CertificateRequest> for CertificateService {
    type Response = CertificateResponse;
    type Future = Ready<Result<Response<CertificateResponse>, Status>>;

    fn call(&mut self, request: Request<CertificateRequest>) -> Self::Future {
        let authority = self
            .authority
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        ready(match authority.sign_pem(&request.get_ref().csr) {
            Ok(signed) => Ok(Response::new(CertificateResponse {
                cert_chain: vec![signed.pem, authority.root_pem()],
            })),
            Err(error) => Err(Status::invalid_argument(error.to_string())),
        })
    }
}

impl Service<http::Request<Body>> for CertificateService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/CreateCertificate") {
                return Ok(Status::unimplemented("only CreateCertificate").into_http());
            }
            Ok(Grpc::new(ProstCodec::default())
                .unary(service, request)
                .await)
        })
    }
}
