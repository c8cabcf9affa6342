//! Names, ports and paths that data planes, the contract and engines share.

/// Port on a pod to which its outbound TCP is redirected, as in Istio.
pub const PORT_OUTBOUND: u16 = 15001;
/// Port on a pod to which its inbound TCP is redirected, as in Istio.
pub const PORT_INBOUND: u16 = 15006;
/// The mark on a proxy's own connections, which redirection exempts (Istio's uid, as a mark).
pub const PROXY_MARK: u32 = 1337;
/// Istio's default trust domain.
pub const TRUST_DOMAIN: &str = "cluster.local";
/// The application's first port in every pod of a service.
pub const APP_PORT: u16 = 8080;
/// The path that every policy allows and that the load uses.
pub const ALLOWED_PATH: &str = "/allowed";
/// The gRPC method that every policy allows. It does not start with [`ALLOWED_PATH`]: a POST to that path is forbidden.
pub const ALLOWED_CALL: &str = "/meshtax.Load/Call";
/// The path at which the test application echoes the request that it received. Policies allow it.
pub const ECHO_PATH: &str = "/_meshtax/echo";
/// A path that no `l7` policy allows.
pub const FORBIDDEN_PATH: &str = "/forbidden";

/// The namespace of everything that is emulated.
pub const EMULATED_NAMESPACE: &str = "default";
/// The service account that no policy allows.
pub const INTRUDER: &str = "intruder";

/// A workload's SPIFFE identity in the emulated namespace, as Istio forms it.
#[must_use]
pub fn spiffe_id(service_account: &str) -> String {
    spiffe_id_in(EMULATED_NAMESPACE, service_account)
}

pub(crate) fn spiffe_id_in(namespace: &str, service_account: &str) -> String {
    format!("spiffe://{TRUST_DOMAIN}/ns/{namespace}/sa/{service_account}")
}

/// A service's name in the cluster's DNS.
#[must_use]
pub fn dns_name(service: &str) -> String {
    format!("{service}.{EMULATED_NAMESPACE}.svc.{TRUST_DOMAIN}")
}
