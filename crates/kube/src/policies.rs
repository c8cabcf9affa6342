//! A level's policies, in the API of each mesh: the same callers, methods and paths everywhere.

use meshtax_dataplane::{AppPort, AppProtocol, HttpRule, Site, SiteService, TRUST_DOMAIN};
use meshtax_model::experiment::PolicyLevel;
use serde_json::{Value, json};

use crate::mesh::{Mesh, PolicyApi};
use crate::objects::Common;

const LINKERD: &str = "policy.linkerd.io";

/// The objects that enforce a level in the site's namespace.
pub(crate) fn policies(
    mesh: &Mesh,
    common: &Common,
    site: &Site,
    level: PolicyLevel,
) -> Vec<Value> {
    let objects = Objects { common, site };
    match mesh.policies {
        PolicyApi::Istio => objects.istio(level),
        PolicyApi::Linkerd => objects.linkerd(level),
    }
}

struct Objects<'a> {
    common: &'a Common,
    site: &'a Site,
}

impl Objects<'_> {
    fn object(&self, api: &str, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": api, "kind": kind,
            "metadata": self.common.metadata(&self.site.namespace, name),
            "spec": spec,
        })
    }

    /// Strict mutual TLS, or none; from `l4` on, the callers of each service, and at `l7` their requests.
    fn istio(&self, level: PolicyLevel) -> Vec<Value> {
        const API: &str = "security.istio.io/v1";
        let mode = match level {
            PolicyLevel::Plaintext => "DISABLE",
            PolicyLevel::Mtls | PolicyLevel::L4 | PolicyLevel::L7 => "STRICT",
        };
        let tls = json!({"mtls": {"mode": mode}});
        let mut objects = vec![self.object(API, "PeerAuthentication", "mtls", tls)];
        if level < PolicyLevel::L4 {
            return objects;
        }
        let namespace = &self.site.namespace;
        objects.extend(self.site.services.iter().map(|service| {
            let callers = self.site.callers(service).into_iter();
            let principals: Vec<String> = callers
                .map(|account| format!("{TRUST_DOMAIN}/ns/{namespace}/sa/{account}"))
                .collect();
            let mut rule = json!({"from": [{"source": {"principals": principals}}]});
            if level >= PolicyLevel::L7 {
                rule["to"] = json!(self.istio_operations(service));
            }
            let spec = json!({
                "selector": {"matchLabels": {"app": service.name}},
                "action": "ALLOW",
                "rules": [rule],
            });
            self.object(API, "AuthorizationPolicy", &service.name, spec)
        }));
        objects
    }

    /// The requests that an `l7` policy allows. On a TCP port there are none: it is allowed as a whole, since a rule with
    /// methods or paths allows nothing there.
    fn istio_operations(&self, service: &SiteService) -> Vec<Value> {
        let ports = |is_tcp: bool| -> Vec<String> {
            let ports = service.ports.iter();
            let wanted = ports.filter(|port| (port.protocol == AppProtocol::Tcp) == is_tcp);
            wanted.map(|port| port.number.to_string()).collect()
        };
        let (http, tcp) = (ports(false), ports(true));
        let rules = self.site.http_rules();
        let requests = rules.iter().map(|rule| {
            let prefixes = rule.prefixes.iter().map(|path| format!("{path}*"));
            let paths: Vec<String> = prefixes.chain(rule.exact.iter().cloned()).collect();
            json!({"operation": {"ports": http, "methods": [rule.method], "paths": paths}})
        });
        let connections = (!tcp.is_empty()).then(|| json!({"operation": {"ports": tcp}}));
        requests.chain(connections).collect()
    }

    /// That clients have an identity is an annotation of the namespace; from `l4` on, each port is a Server.
    fn linkerd(&self, level: PolicyLevel) -> Vec<Value> {
        if level < PolicyLevel::L4 {
            return Vec::new();
        }
        let services = self.site.services.iter();
        services
            .flat_map(|service| {
                let ports = service.ports.iter();
                let of_port = ports.flat_map(|port| self.linkerd_port(service, port, level));
                std::iter::once(self.linkerd_callers(service)).chain(of_port)
            })
            .collect()
    }

    fn linkerd_callers(&self, service: &SiteService) -> Value {
        let namespace = &self.site.namespace;
        let callers = self.site.callers(service).into_iter();
        let identities: Vec<Value> = callers
            .map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}))
            .collect();
        self.object(
            "policy.linkerd.io/v1alpha1",
            "MeshTLSAuthentication",
            &service.name,
            json!({"identityRefs": identities}),
        )
    }

    fn linkerd_port(
        &self,
        service: &SiteService,
        port: &AppPort,
        level: PolicyLevel,
    ) -> Vec<Value> {
        let name = format!("{}-{}", service.name, port.number);
        let protocol = match port.protocol {
            AppProtocol::Http1 => "HTTP/1",
            AppProtocol::Http2 => "HTTP/2",
            AppProtocol::Tcp => "opaque",
        };
        let server = json!({
            "podSelector": {"matchLabels": {"app": service.name}},
            "port": port.number,
            "proxyProtocol": protocol,
        });
        let mut objects = vec![self.object("policy.linkerd.io/v1beta3", "Server", &name, server)];
        let by_route = level >= PolicyLevel::L7 && port.protocol != AppProtocol::Tcp;
        let target = match by_route {
            true => "HTTPRoute",
            false => "Server",
        };
        if by_route {
            let parent = json!({"group": LINKERD, "kind": "Server", "name": name});
            let matches: Vec<Value> = self.site.http_rules().iter().flat_map(matches).collect();
            let mut route = |name: &str, matches: &[Value]| {
                let spec = json!({"parentRefs": [parent], "rules": [{"matches": matches}]});
                objects.push(self.object("policy.linkerd.io/v1beta3", "HTTPRoute", name, spec));
            };
            route(&name, &matches);
            // What matches no route gets 404, as it would from an application. A route that nobody may use gets 403.
            let all = json!({"path": {"type": "PathPrefix", "value": "/"}});
            route(&format!("{name}-rest"), &[all]);
        }
        let required =
            json!({"group": LINKERD, "kind": "MeshTLSAuthentication", "name": service.name});
        let policy = json!({
            "targetRef": {"group": LINKERD, "kind": target, "name": name},
            "requiredAuthenticationRefs": [required],
        });
        let api = "policy.linkerd.io/v1alpha1";
        objects.push(self.object(api, "AuthorizationPolicy", &name, policy));
        objects
    }
}

/// The matches of a route (Gateway API) for a rule.
fn matches(rule: &HttpRule) -> Vec<Value> {
    let of = |kind: &str, path: &String| json!({"method": rule.method, "path": {"type": kind, "value": path}});
    let prefixes = rule.prefixes.iter().map(|path| of("PathPrefix", path));
    let exact = rule.exact.iter().map(|path| of("Exact", path));
    prefixes.chain(exact).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use meshtax_dataplane::{INTRUDER, Pod, PodNode};
    use meshtax_model::catalogue::find;
    use meshtax_model::experiment::{Options, Workers};

    use super::*;
    use crate::settings::Settings;

    fn pod(name: &str) -> Pod {
        Pod {
            name: name.into(),
            address: Ipv4Addr::UNSPECIFIED,
            service_account: name.into(),
            directory: String::new(),
            node: PodNode::Client,
        }
    }

    fn service(name: &str, ports: Vec<AppPort>, calls: &[&str]) -> SiteService {
        SiteService {
            name: name.into(),
            address: Ipv4Addr::UNSPECIFIED,
            pods: vec![pod(name)],
            ports,
            calls: calls.iter().map(|name| (*name).to_owned()).collect(),
            entry_point: name == "server",
        }
    }

    /// A service with an HTTP and a TCP port, and one behind it.
    fn site() -> Site {
        let tcp = AppPort {
            protocol: AppProtocol::Tcp,
            ..AppPort::http1(8082)
        };
        Site {
            namespace: "n".into(),
            clients: vec![pod("client")],
            services: vec![
                service("server", vec![AppPort::http1(8080), tcp], &["reviews"]),
                service("reviews", vec![AppPort::http1(8080)], &[]),
            ],
            waypoint: pod("waypoint"),
            gateway: None,
            intruder: Some(pod(INTRUDER)),
            workers: Workers::Equal(1),
            cores: 2,
            options: Options::default(),
            runtime: BTreeMap::new(),
        }
    }

    /// Kind, name and specification of each object, one a line.
    fn lines(plane: &str, level: PolicyLevel) -> Vec<String> {
        let common = Common {
            run: "r".into(),
            image: "i".into(),
            token: "t".into(),
            settings: Settings::default(),
            pull_secrets: Vec::new(),
        };
        let mesh = find(plane).and_then(Mesh::of).expect("a mesh");
        let objects = policies(mesh, &common, &site(), level);
        let line = |object: &Value| {
            assert_eq!(object["metadata"]["namespace"], "n");
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            format!("{kind} {name} {}", object["spec"])
        };
        objects.iter().map(line).collect()
    }

    #[test]
    fn linkerd_admits_the_callers_of_each_service_and_at_l7_their_requests() {
        assert!(lines("linkerd", PolicyLevel::Mtls).is_empty());
        insta::assert_debug_snapshot!(lines("linkerd", PolicyLevel::L4));
        insta::assert_debug_snapshot!(lines("linkerd", PolicyLevel::L7));
    }

    #[test]
    fn istio_is_strict_and_at_l4_admits_the_callers_of_each_service() {
        insta::assert_debug_snapshot!(lines("ztunnel", PolicyLevel::Mtls));
        insta::assert_debug_snapshot!(lines("ztunnel", PolicyLevel::L4));
        for level in [PolicyLevel::Mtls, PolicyLevel::L4] {
            assert_eq!(lines("envoy-sidecar", level), lines("ztunnel", level));
        }
    }

    #[test]
    fn istio_sidecars_at_l7_admit_the_requests_of_callers_and_tcp_ports_as_a_whole() {
        insta::assert_debug_snapshot!(lines("envoy-sidecar", PolicyLevel::L7));
    }

    #[test]
    fn istio_sidecars_at_plaintext_disable_tls_and_admit_everybody() {
        let objects = lines("envoy-sidecar", PolicyLevel::Plaintext);
        let disabled = r#"PeerAuthentication mtls {"mtls":{"mode":"DISABLE"}}"#;
        assert_eq!(objects, [disabled]);
    }
}
