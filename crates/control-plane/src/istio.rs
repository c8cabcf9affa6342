//! Istio's certificate service, `istio.v1.auth.IstioCertificateService`
//! (istio/api, security/v1alpha1/ca.proto): a signing request in, a certificate chain out.

use std::future::{Ready, ready};
use std::io;
use std::net::TcpListener;
use std::sync::PoisonError;

use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::authority::SharedAuthority;
use crate::server::{OneMethod, Server, SingleMethodService};

/// `CreateCertificate`'s request; only the fields used here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CertificateRequest {
    /// PEM.
    #[prost(string, tag = "1")]
    pub(crate) csr: String,
    #[prost(int64, tag = "3")]
    pub(crate) validity_duration: i64,
}

/// `CreateCertificate`'s response.
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
        Routes::new(SingleMethodService(service)),
        Some((leaf.chain_pem, leaf.key_pem)),
    )
}

#[derive(Clone, Debug)]
struct CertificateService {
    authority: SharedAuthority,
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

impl OneMethod for CertificateService {
    const SERVICE: &'static str = "istio.v1.auth.IstioCertificateService";
    const METHOD: &'static str = "CreateCertificate";

    async fn called(self, request: http::Request<Body>) -> http::Response<Body> {
        Grpc::new(ProstCodec::default()).unary(self, request).await
    }
}
