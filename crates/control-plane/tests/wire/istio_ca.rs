//! istio-agent: certificates from Istio's CA API.

use std::net::SocketAddr;

use base64::Engine as _;
use meshtax_control_plane::istio_ca;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;
use x509_parser::prelude::*;

use crate::{SPIFFE, authority, is_for, listener, request_der, within};

/// istio/api, security/v1alpha1/ca.proto, with a field that meshtax does not read.
#[derive(Clone, PartialEq, prost::Message)]
struct CertificateRequest {
    #[prost(string, tag = "1")]
    csr: String,
    #[prost(int64, tag = "3")]
    validity_duration: i64,
    #[prost(bytes = "vec", tag = "4")]
    metadata: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CertificateResponse {
    #[prost(string, repeated, tag = "1")]
    cert_chain: Vec<String>,
}

async fn certify(
    address: SocketAddr,
    root_pem: String,
    name: &str,
    csr: String,
) -> Result<CertificateResponse, tonic::Status> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(root_pem))
        .domain_name(name);
    let channel = Channel::from_shared(format!("https://{address}"))
        .unwrap()
        .tls_config(tls)
        .unwrap()
        .connect()
        .await
        .map_err(|e| tonic::Status::unavailable(e.to_string()))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path =
        PathAndQuery::from_static("/istio.v1.auth.IstioCertificateService/CreateCertificate");
    let request = CertificateRequest {
        csr,
        validity_duration: 86_400,
        metadata: vec![1, 2, 3],
    };
    let codec = ProstCodec::<CertificateRequest, CertificateResponse>::default();
    let answered = client.unary(Request::new(request), path, codec).await?;
    Ok(answered.into_inner())
}

fn pem(der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}

#[test]
fn istio_certificate_service_signs_the_requested_names() {
    let authority = authority();
    let root = authority.lock().unwrap().root_pem();
    let (socket, address) = listener();
    let _server = istio_ca(socket, &authority, "istiod.istio-system.svc").unwrap();
    let request = pem(&request_der(&authority, SPIFFE));
    let chain = within(certify(
        address,
        root.clone(),
        "istiod.istio-system.svc",
        request.clone(),
    ))
    .unwrap()
    .cert_chain;
    assert_eq!(chain.len(), 2, "the leaf, then the root");
    let (_, leaf) = parse_x509_pem(chain[0].as_bytes()).unwrap();
    is_for(&leaf.contents, SPIFFE);
    assert_eq!(chain[1], root);

    let name = "istiod.istio-system.svc";
    let garbage = within(certify(address, root.clone(), name, "hello".into()));
    assert_eq!(garbage.unwrap_err().code(), Code::InvalidArgument);
    // Its certificate is for one name, as a client must be able to verify.
    let elsewhere = within(certify(address, root, "another.name", request));
    assert_eq!(elsewhere.unwrap_err().code(), Code::Unavailable);
}
