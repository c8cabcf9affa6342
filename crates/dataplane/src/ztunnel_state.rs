//! A ztunnel's local configuration (istio/ztunnel, src/state.rs and src/rbac.rs): all pods, the services with a
//! virtual address, and the policies of the services that are called.
//!
//! YAML, a superset of JSON: a principal's match type is a YAML tag, and ports are integer keys, which JSON does not
//! support.

use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use serde_json::{Value, json};

use crate::extra::{ExtraService, services};
use crate::names::{TRUST_DOMAIN, spiffe_id};
use crate::site::{AppPort, Pod, PodNode, Site, SiteService};

/// The port at which a proxied pod accepts HBONE.
pub(crate) const PORT_HBONE: u16 = 15008;
const STRICT: &str = "istio_converted_static_strict";

/// The configuration of a mesh of ztunnels.
pub(crate) struct Mesh {
    pub(crate) level: PolicyLevel,
    /// The waypoint for all traffic to the service, if there is one.
    pub(crate) waypoint: Option<Waypoint>,
}

impl Mesh {
    pub(crate) fn of(level: PolicyLevel) -> Self {
        Self {
            level,
            waypoint: None,
        }
    }

    /// How pods of the mesh are reached.
    pub(crate) fn protocol(&self) -> &'static str {
        match self.level >= PolicyLevel::Mtls {
            true => "HBONE",
            false => "TCP",
        }
    }

    pub(crate) fn is_sandwiched(&self) -> bool {
        matches!(self.waypoint, Some(Waypoint::Sandwiched { .. }))
    }
}

/// How a waypoint is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waypoint {
    /// It terminates HBONE itself, with its own certificate.
    SpeaksHbone,
    /// The ztunnel of its node terminates HBONE and forwards connections to this port, preceded by the client's
    /// identity (PROXY protocol).
    Sandwiched {
        /// The waypoint's port.
        port: u16,
    },
}

/// A node's name in the mesh.
pub(crate) fn node_name(node: PodNode) -> String {
    match node {
        PodNode::Client => "node-of-client".to_owned(),
        PodNode::Server(0) => "node-of-server".to_owned(),
        PodNode::Server(number) => format!("node-of-server-{}", number + 1),
    }
}

/// Identical for every ztunnel of a variant.
pub(crate) fn state(site: &Site, mesh: &Mesh) -> String {
    let known = services(site.options.extra_endpoints);
    let outside = site.proxied_clients().chain(site.proxied_gateway());
    let mut workloads: Vec<String> = outside
        .map(|proxied| workload(proxied.pod, mesh, &[], None))
        .collect();
    for service in &site.services {
        let pods = service.pods.iter();
        workloads.extend(pods.map(|pod| called_workload(site, pod, service, mesh)));
    }
    workloads.extend(mesh.waypoint.map(|form| waypoint_workload(site, form)));
    let ports = port_map(site.ports());
    workloads.extend(known.iter().flat_map(|s| known_workloads(s, mesh, &ports)));

    let strict = (mesh.level >= PolicyLevel::Mtls).then(strict);
    let services_of_site = site.services.iter();
    let of_callers = services_of_site.filter_map(|service| of_callers(site, service, mesh));
    let policies = strict.into_iter().chain(of_callers).map(|p| p.entry());

    let own = site.services.iter();
    let own = own.filter_map(|service| own_address(site, service, mesh));
    let known = known.iter();
    let known = known.map(|s| service_entry(&s.name, &s.dns_name(), s.address, &ports));
    [
        section("workloads", workloads),
        section("policies", policies.collect()),
        section("services", own.chain(known).collect()),
    ]
    .concat()
}

fn section(name: &str, entries: Vec<String>) -> String {
    match entries.is_empty() {
        true => format!("{name}: []\n"),
        false => format!("{name}:\n{}", entries.concat()),
    }
}

/// A ztunnel authorization policy, for the workloads that reference it.
struct Policy {
    namespace: &'static str,
    name: String,
    action: &'static str,
    /// One match, in YAML; `None`: it matches no client.
    rule: Option<String>,
}

impl Policy {
    fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn entry(&self) -> String {
        let rule = self.rule.as_ref();
        let rules = rule.map_or_else(String::new, |rule| format!("[[{{{rule}}}]]"));
        format!(
            "- {{name: {}, namespace: {}, scope: WorkloadSelector, action: {}, dryRun: false, rules: [{rules}]}}\n",
            self.name, self.namespace, self.action
        )
    }
}

/// `PeerAuthentication` STRICT reaches ztunnel as a denial of all clients without a principal.
fn strict() -> Policy {
    Policy {
        namespace: "istio-system",
        name: STRICT.into(),
        action: "Deny",
        rule: Some("notPrincipals: [!Presence []]".into()),
    }
}

/// The permitted callers of a service, where the level has such a policy.
fn of_callers(site: &Site, service: &SiteService, mesh: &Mesh) -> Option<Policy> {
    // Behind a waypoint only the waypoint is admitted: its policies must not be bypassed.
    let allowed = match mesh.waypoint {
        Some(_) => vec![site.waypoint.identity()],
        None => site.callers(service).into_iter().map(spiffe_id).collect(),
    };
    let principal = |identity: &String| {
        let principal = identity.trim_start_matches("spiffe://");
        format!("!Exact \"{principal}\"")
    };
    let allowed: Vec<String> = allowed.iter().map(principal).collect();
    (mesh.level >= PolicyLevel::L4).then(|| Policy {
        namespace: "default",
        name: format!("callers-of-{}", service.name),
        action: "Allow",
        // An empty list would match all clients.
        rule: (!allowed.is_empty()).then(|| format!("principals: [{}]", allowed.join(", "))),
    })
}

/// A pod with the names of its policies. `services`: those that the pod belongs to, in YAML; `None`: none.
fn workload(pod: &Pod, mesh: &Mesh, policies: &[String], services: Option<String>) -> String {
    let mut fields = entry(pod, &node_name(pod.node), mesh.protocol());
    fields["authorizationPolicies"] = json!(policies);
    with_services(&fields, services)
}

fn with_services(fields: &Value, services: Option<String>) -> String {
    let mut fields = fields.to_string();
    fields.truncate(fields.trim_end_matches('}').len());
    let services = services.unwrap_or_else(|| "{}".into());
    format!("- {fields}, \"services\": {services}}}\n")
}

/// A pod of a service.
fn called_workload(site: &Site, pod: &Pod, service: &SiteService, mesh: &Mesh) -> String {
    let strict = (mesh.level >= PolicyLevel::Mtls).then(strict);
    let policies = strict.into_iter().chain(of_callers(site, service, mesh));
    let names: Vec<String> = policies.map(|policy| policy.full_name()).collect();
    let mut fields = entry(pod, &node_name(pod.node), mesh.protocol());
    fields["authorizationPolicies"] = json!(names);
    let own = service.virtual_address();
    // With a virtual address, the service has the waypoint; otherwise its pods have it.
    if own.is_none() && mesh.waypoint.is_some() {
        fields["waypoint"] = gateway_to(&site.waypoint);
    }
    let ports = port_map(&service.ports);
    let services = own.map(|_| format!("{{\"default/{}\": {ports}}}", service.dns_name()));
    with_services(&fields, services)
}

/// A service with a virtual address.
fn own_address(site: &Site, service: &SiteService, mesh: &Mesh) -> Option<String> {
    let waypoint = match mesh.waypoint {
        Some(_) => format!(", waypoint: {}", gateway_to(&site.waypoint)),
        None => String::new(),
    };
    let ports = format!("{}{waypoint}", port_map(&service.ports));
    let address = service.virtual_address()?;
    Some(service_entry(
        &service.name,
        &service.dns_name(),
        address,
        &ports,
    ))
}

/// `ports`: the port map, and any further fields.
fn service_entry(name: &str, hostname: &str, address: Ipv4Addr, ports: &str) -> String {
    format!(
        "- {{name: {name}, namespace: default, hostname: {hostname}, vips: [\"/{address}\"], \
         ports: {ports}}}\n"
    )
}

/// Each mapped to itself. JSON has no integer keys, and ztunnel does not accept strings for ports.
fn port_map(ports: &[AppPort]) -> String {
    let ports: Vec<String> = ports
        .iter()
        .map(|p| format!("{0}: {0}", p.number))
        .collect();
    format!("{{{}}}", ports.join(", "))
}

/// The extra endpoints of a service, on a node without other pods.
fn known_workloads(service: &ExtraService, mesh: &Mesh, ports: &str) -> Vec<String> {
    let host = service.dns_name();
    let of_service = format!("{{\"default/{host}\": {ports}}}");
    let mut workloads = Vec::new();
    for (number, address) in service.endpoints.iter().enumerate() {
        let name = format!("{}-{}", service.name, number + 1);
        let who = (name.as_str(), service.name.as_str(), *address);
        let fields = entry_of(who, "another-node", mesh.protocol());
        workloads.push(with_services(&fields, Some(of_service.clone())));
    }
    workloads
}

fn waypoint_workload(site: &Site, form: Waypoint) -> String {
    let mut fields = entry(&site.waypoint, &node_name(site.waypoint.node), "HBONE");
    fields["services"] = json!({});
    if let Waypoint::Sandwiched { port } = form {
        fields["applicationTunnel"] = json!({"protocol": "PROXY", "port": port});
    }
    format!("- {fields}\n")
}

/// The destination of the tunnel to a waypoint.
fn gateway_to(waypoint: &Pod) -> Value {
    json!({
        "destination": format!("/{}", waypoint.address),
        "hboneMtlsPort": PORT_HBONE,
    })
}

/// Fields common to all pods in the local configuration.
fn entry(pod: &Pod, node: &str, protocol: &str) -> Value {
    let who = (pod.name.as_str(), pod.service_account.as_str(), pod.address);
    entry_of(who, node, protocol)
}

fn entry_of(
    (name, service_account, address): (&str, &str, Ipv4Addr),
    node: &str,
    protocol: &str,
) -> Value {
    json!({
        "uid": uid(name),
        "name": name,
        "namespace": "default",
        "trustDomain": TRUST_DOMAIN,
        "serviceAccount": service_account,
        "workloadIps": [address],
        "protocol": protocol,
        "node": node,
        "network": "",
        "clusterId": "Kubernetes",
    })
}

/// The workload id of the pod with this name.
pub(crate) fn uid(name: &str) -> String {
    format!("Kubernetes//Pod/default/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{gateway_site, graph_site};

    /// The entry with this name in a section.
    fn entry_named<'a>(state: &'a str, name: &str) -> &'a str {
        let mut entries = state.lines().filter(|line| line.starts_with("- "));
        let is_it = |line: &&str| {
            line.contains(&format!("name: {name},"))
                || line.contains(&format!("\"name\":\"{name}\""))
        };
        entries
            .find(is_it)
            .unwrap_or_else(|| panic!("no {name} in {state}"))
    }

    fn principals(names: &[&str]) -> String {
        let name = |name: &&str| format!("!Exact \"cluster.local/ns/default/sa/{name}\"");
        let names: Vec<String> = names.iter().map(name).collect();
        format!("rules: [[[{{principals: [{}]}}]]]", names.join(", "))
    }

    #[test]
    fn policy_admits_exactly_the_callers() {
        let mut site = graph_site();
        site.gateway = gateway_site(false).gateway;
        let mesh = Mesh::of(PolicyLevel::L4);
        let configuration = state(&site, &mesh);
        for (service, callers) in [
            ("server", ["client", "ingress-gateway"].as_slice()),
            ("reviews", &["server"]),
            ("ratings", &["server", "reviews"]),
        ] {
            let policy = entry_named(&configuration, &format!("callers-of-{service}"));
            assert!(policy.contains(&principals(callers)), "{policy}");
            let pod = entry_named(&configuration, service);
            let named = format!("\"default/callers-of-{service}\"]");
            assert!(pod.contains(&named), "{pod}");
        }
        // These have no callers in the mesh.
        for name in ["client", "ingress-gateway"] {
            let pod = entry_named(&configuration, name);
            assert!(pod.contains("\"authorizationPolicies\":[]"), "{pod}");
        }
        // An empty list would be ignored, and all clients admitted.
        site.services[0].calls.retain(|name| name != "reviews");
        let configuration = state(&site, &mesh);
        let policy = entry_named(&configuration, "callers-of-reviews");
        assert!(
            policy.contains("action: Allow") && policy.contains("rules: []"),
            "{policy}"
        );
    }

    #[test]
    fn gateway_only_policy_admits_no_outside_clients() {
        let configuration = state(&gateway_site(true), &Mesh::of(PolicyLevel::L4));
        assert!(
            !configuration.contains("\"name\":\"client\""),
            "{configuration}"
        );
        let policy = entry_named(&configuration, "callers-of-server");
        assert!(
            policy.contains(&principals(&["ingress-gateway"])),
            "{policy}"
        );
    }
}
