//! The services for proxies, tested with clients of the real wire formats.

#[path = "wire/discovery.rs"]
mod discovery;
#[path = "wire/istio_ca.rs"]
mod istio_ca;
#[path = "wire/linkerd.rs"]
mod linkerd;
#[path = "wire/workload_socket.rs"]
mod workload_socket;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use meshtax_control_plane::{Authority, SharedAuthority};
use x509_parser::prelude::*;

const SPIFFE: &str = "spiffe://cluster.local/ns/default/sa/client";

fn authority() -> SharedAuthority {
    Arc::new(Mutex::new(Authority::new("test").unwrap()))
}

fn request_der(authority: &SharedAuthority, identity: &str) -> Vec<u8> {
    authority
        .lock()
        .unwrap()
        .leaf(identity)
        .unwrap()
        .request_der
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let patient = async { tokio::time::timeout(Duration::from_secs(10), work).await };
    runtime.block_on(patient).expect("answered in time")
}

fn is_for(der: &[u8], identity: &str) {
    let (_, certificate) = X509Certificate::from_der(der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let shown = format!("{:?}", names.value.general_names);
    assert!(shown.contains(identity), "{shown}");
}
