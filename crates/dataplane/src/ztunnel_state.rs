//! What a ztunnel knows of its mesh, in the form of its local configuration (istio/ztunnel, src/state.rs and
//! src/rbac.rs): all pods, the services with an address of their own, and the policies of those that are called.
//!
//! YAML, of which JSON is a part: a principal's kind of match is a YAML tag, and ports are numbers as keys; JSON has
//! neither.

use std::net::Ipv4Addr;

use meshtax_model::experiment::PolicyLevel;
use serde_json::{Value, json};

use crate::known::{KnownService, services};
use crate::ztunnel::{Mesh, PORT_HBONE, Waypoint, node_name, uid};
use crate::{AppPort, MeshService, Pod, Site, TRUST_DOMAIN};

const STRICT: &str = "istio_converted_static_strict";

/// The same for every ztunnel of a variant.
pub(crate) fn state(site: &Site, mesh: &Mesh) -> String {
    let called = site.services();
    let known = services(site.options.knows);
    let outside = [site.client_end(), site.gateway_end()]
        .into_iter()
        .flatten();
    let mut workloads: Vec<String> = outside
        .map(|end| workload(end.pod, mesh, &[], None))
        .collect();
    for called in &called {
        let pods = called.service.pods.iter();
        workloads.extend(pods.map(|pod| called_workload(site, pod, called, mesh)));
    }
    workloads.extend(mesh.waypoint.map(|form| waypoint_workload(site, form)));
    let ports = port_map(&site.ports());
    workloads.extend(known.iter().flat_map(|s| known_workloads(s, mesh, &ports)));

    let strict = (mesh.level >= PolicyLevel::Mtls).then(strict);
    let of_callers = called.iter().filter_map(|c| of_callers(site, c, mesh));
    let policies = strict.into_iter().chain(of_callers).map(|p| p.entry());

    let own = called.iter().filter_map(|c| own_address(site, c, mesh));
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

/// A policy of ztunnel's, for the workloads that name it.
struct Policy {
    namespace: &'static str,
    name: String,
    action: &'static str,
    /// One match, in YAML; `None`: it matches nobody.
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

/// `PeerAuthentication` STRICT reaches ztunnel as a denial of whoever has no principal.
fn strict() -> Policy {
    Policy {
        namespace: "istio-system",
        name: STRICT.into(),
        action: "Deny",
        rule: Some("notPrincipals: [!Presence []]".into()),
    }
}

/// Who may call a service, where the level has such a policy.
fn of_callers(site: &Site, called: &MeshService<'_>, mesh: &Mesh) -> Option<Policy> {
    // Behind a waypoint nobody else is let through: what it judges must not be gone around.
    let allowed = match mesh.waypoint {
        Some(_) => vec![site.waypoint.identity()],
        None => called.callers.iter().map(|c| crate::spiffe_id(c)).collect(),
    };
    let principal = |identity: &String| {
        let principal = identity.trim_start_matches("spiffe://");
        format!("!Exact \"{principal}\"")
    };
    let allowed: Vec<String> = allowed.iter().map(principal).collect();
    (mesh.level >= PolicyLevel::L4).then(|| Policy {
        namespace: "default",
        name: format!("callers-of-{}", called.service.short_name()),
        action: "Allow",
        // A list without anybody would match everybody.
        rule: (!allowed.is_empty()).then(|| format!("principals: [{}]", allowed.join(", "))),
    })
}

/// A pod with the names of its policies. `services`: those whose pod it is, in YAML; `None`: of none.
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
fn called_workload(site: &Site, pod: &Pod, called: &MeshService<'_>, mesh: &Mesh) -> String {
    let service = &called.service;
    let strict = (mesh.level >= PolicyLevel::Mtls).then(strict);
    let policies = strict.into_iter().chain(of_callers(site, called, mesh));
    let names: Vec<String> = policies.map(|policy| policy.full_name()).collect();
    let mut fields = entry(pod, &node_name(pod.node), mesh.protocol());
    fields["authorizationPolicies"] = json!(names);
    let own = service.virtual_address();
    // A service that is called by an address of its own has the waypoint; otherwise its pods.
    if own.is_none() && mesh.waypoint.is_some() {
        fields["waypoint"] = gateway_to(&site.waypoint);
    }
    let ports = port_map(&service.ports);
    let services = own.map(|_| format!("{{\"default/{}\": {ports}}}", service.name));
    with_services(&fields, services)
}

/// A service that is called by an address of its own.
fn own_address(site: &Site, called: &MeshService<'_>, mesh: &Mesh) -> Option<String> {
    let service = &called.service;
    let waypoint = match mesh.waypoint {
        Some(_) => format!(", waypoint: {}", gateway_to(&site.waypoint)),
        None => String::new(),
    };
    let ports = format!("{}{waypoint}", port_map(&service.ports));
    let address = service.virtual_address()?;
    Some(service_entry(
        service.short_name(),
        &service.name,
        address,
        &ports,
    ))
}

/// `ports`: and whatever stands behind them.
fn service_entry(name: &str, hostname: &str, address: Ipv4Addr, ports: &str) -> String {
    format!(
        "- {{name: {name}, namespace: default, hostname: {hostname}, vips: [\"/{address}\"], \
         ports: {ports}}}\n"
    )
}

/// Each under its own number. JSON has no numbers for keys, and ztunnel takes no text for ports.
fn port_map(ports: &[AppPort]) -> String {
    let ports: Vec<String> = ports
        .iter()
        .map(|p| format!("{0}: {0}", p.number))
        .collect();
    format!("{{{}}}", ports.join(", "))
}

/// The endpoints of a service that is known, on a node that is no other's.
fn known_workloads(service: &KnownService, mesh: &Mesh, ports: &str) -> Vec<String> {
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

/// Where the tunnel to a waypoint ends.
fn gateway_to(waypoint: &Pod) -> Value {
    json!({
        "destination": format!("/{}", waypoint.address),
        "hboneMtlsPort": PORT_HBONE,
    })
}

/// What every pod has in the local configuration.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{gateway_site, graph_site};

    /// The entry of this name in a section.
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
    fn a_policy_lets_in_exactly_those_who_call() {
        let mut site = graph_site();
        site.gateway = gateway_site(false).gateway;
        let mesh = Mesh::of(PolicyLevel::L4);
        let told = state(&site, &mesh);
        for (service, callers) in [
            ("server", ["client", "ingress-gateway"].as_slice()),
            ("reviews", &["server"]),
            ("ratings", &["server", "reviews"]),
        ] {
            let policy = entry_named(&told, &format!("callers-of-{service}"));
            assert!(policy.contains(&principals(callers)), "{policy}");
            let pod = entry_named(&told, service);
            let named = format!("\"default/callers-of-{service}\"]");
            assert!(pod.contains(&named), "{pod}");
        }
        // Nobody calls these by the mesh.
        for name in ["client", "ingress-gateway"] {
            let pod = entry_named(&told, name);
            assert!(pod.contains("\"authorizationPolicies\":[]"), "{pod}");
        }
        // A list of nobody would be none, and let everybody in.
        site.calls.retain(|name| name != "reviews");
        let told = state(&site, &mesh);
        let policy = entry_named(&told, "callers-of-reviews");
        assert!(
            policy.contains("action: Allow") && policy.contains("rules: []"),
            "{policy}"
        );
    }

    #[test]
    fn by_the_gateway_only_nobody_else_comes_from_outside() {
        let told = state(&gateway_site(true), &Mesh::of(PolicyLevel::L4));
        assert!(!told.contains("\"name\":\"client\""), "{told}");
        let policy = entry_named(&told, "callers-of-server");
        assert!(
            policy.contains(&principals(&["ingress-gateway"])),
            "{policy}"
        );
    }
}
