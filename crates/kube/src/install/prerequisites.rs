//! What a mesh needs of a cluster before it is installed.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde::Serialize;

use crate::cluster::{Cluster, Permission};
use crate::error::ClusterError;
use crate::install::charts::Installable;
use crate::install::helm::{Helm, HelmError, INSTALL_HELM, OLDEST, Release, Sources};
use crate::install::workloads::workloads;
use crate::nodes;
use crate::settings;

/// A prerequisite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckId {
    /// The installation of this mesh on a running cluster.
    Installable,
    /// The user's `helm`.
    Helm,
    /// The charts can be read.
    Charts,
    /// The API server's version is one that the charts accept.
    KubernetesVersion,
    /// Nodes that take pods.
    Nodes,
    /// The nodes' Linux.
    Kernel,
    /// The cluster's network (CNI).
    ContainerNetwork,
    /// What implements Services.
    KubeProxy,
    /// The types of the Gateway API.
    GatewayApi,
    /// This user may do what installing takes.
    Permissions,
    /// The mesh is not there yet.
    NotInstalled,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// As it has to be.
    Passed,
    /// Not so: the installation would fail, or not work.
    Failed,
    /// It could not be seen.
    Unknown,
}

/// A prerequisite, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which one.
    pub id: CheckId,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// What was found.
    pub found: String,
    /// What the user can do; empty if nothing needs to be done.
    pub fix: String,
}

impl Check {
    fn passed(id: CheckId, found: impl Into<String>) -> Self {
        Self::new(id, CheckOutcome::Passed, found, "")
    }

    fn failed(id: CheckId, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckOutcome::Failed, found, fix)
    }

    fn unknown(id: CheckId, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(id, CheckOutcome::Unknown, found, fix)
    }

    fn new(
        id: CheckId,
        outcome: CheckOutcome,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            id,
            outcome,
            found: found.into(),
            fix: fix.into(),
        }
    }
}

/// What the cluster shows.
pub(crate) struct Facts {
    version: String,
    nodes: Vec<Node>,
    /// DaemonSets of `kube-system`.
    system: Vec<DaemonSet>,
    /// Whether Cilium removes other plugins from the CNI configuration.
    cilium_is_exclusive: bool,
    pub(crate) has_gateway_api: bool,
    /// Deployments of the mesh's namespace.
    deployments: Vec<String>,
    missing_permissions: Vec<String>,
}

impl Facts {
    pub(crate) fn gather(cluster: &Cluster, mesh: &Installable) -> Result<Self, ClusterError> {
        let system: Api<DaemonSet> = Api::namespaced(cluster.client(), "kube-system");
        let types: Api<CustomResourceDefinition> = Api::all(cluster.client());
        let routes = "httproutes.gateway.networking.k8s.io";
        let found = cluster.request("get the type HTTPRoute", |_| types.get_opt(routes))?;
        let cilium = cluster.config_map("kube-system", "cilium-config")?;
        // Charts have objects of any kind, and roles with any rule.
        let anything = Permission::new("*", "*", "*");
        Ok(Self {
            version: cluster.version.clone(),
            nodes: nodes::all(cluster)?,
            system: cluster.list(&system, "list DaemonSets of kube-system", "")?,
            cilium_is_exclusive: cilium.get("cni-exclusive").is_some_and(|v| v == "true"),
            has_gateway_api: found.is_some(),
            deployments: workloads(cluster, mesh)?
                .into_iter()
                .map(|of| of.name)
                .collect(),
            missing_permissions: cluster.missing_permissions(&[anything])?,
        })
    }

    fn has_daemon(&self, name: &str) -> bool {
        let mut names = self
            .system
            .iter()
            .filter_map(|d| d.metadata.name.as_deref());
        names.any(|daemon| daemon == name)
    }

    fn nodes(&self) -> Check {
        let any_pod = settings::Settings::default();
        let ready = self
            .nodes
            .iter()
            .filter(|node| nodes::problem(node, &any_pod).is_none());
        let found = format!(
            "{} of {} nodes take pods",
            ready.clone().count(),
            self.nodes.len()
        );
        match ready.count() {
            0 => Check::failed(
                CheckId::Nodes,
                found,
                "see the conditions in `kubectl describe nodes`",
            ),
            _ => Check::passed(CheckId::Nodes, found),
        }
    }

    fn kernel(&self, oldest: (u32, u32)) -> Check {
        let info = self
            .nodes
            .iter()
            .filter_map(|n| n.status.as_ref()?.node_info.as_ref());
        let mut kernels: Vec<&str> = info.map(|info| info.kernel_version.as_str()).collect();
        kernels.sort_unstable();
        kernels.dedup();
        let found = format!("Linux {}", kernels.join(", "));
        match kernels.iter().all(|kernel| linux(kernel) >= Some(oldest)) {
            true => Check::passed(CheckId::Kernel, found),
            false => Check::failed(
                CheckId::Kernel,
                found,
                format!("nodes with Linux {}.{} or later", oldest.0, oldest.1),
            ),
        }
    }

    /// Networks are recognised by the DaemonSets of their manifests.
    fn network(&self, mesh: &Installable) -> Check {
        const NETWORKS: [&str; 9] = [
            "cilium",
            "calico-node",
            "kube-flannel-ds",
            "kindnet",
            "aws-node",
            "antrea-agent",
            "weave-net",
            "azure-cns",
            "netd",
        ];
        let id = CheckId::ContainerNetwork;
        let found = NETWORKS.iter().find(|network| self.has_daemon(network));
        match found {
            Some(network) if mesh.chains_cni && self.cilium_is_exclusive => Check::failed(
                id,
                format!("{network}, which removes other plugins (cni-exclusive)"),
                "set Cilium's value cni.exclusive=false, so that the mesh's plugin stays configured",
            ),
            Some(network) => Check::passed(id, *network),
            None if mesh.chains_cni => Check::unknown(
                id,
                "a network that is not recognised",
                "it must allow chained CNI plugins",
            ),
            None => Check::passed(id, "any network does"),
        }
    }

    fn kube_proxy(&self) -> Check {
        let id = CheckId::KubeProxy;
        match (self.has_daemon("kube-proxy"), self.has_daemon("cilium")) {
            (true, _) => Check::passed(id, "kube-proxy"),
            (false, true) => Check::passed(id, "Cilium"),
            (false, false) => Check::unknown(
                id,
                "no DaemonSet kube-proxy: Services may be implemented on the nodes themselves",
                "check that pods reach the addresses of Services",
            ),
        }
    }

    fn gateway_api(&self, mesh: &Installable) -> Check {
        let found = match (self.has_gateway_api, mesh.gateway_api) {
            (true, _) => "installed",
            (false, true) => "absent: installed with the mesh",
            (false, false) => "absent: only waypoints and gateways need it",
        };
        Check::passed(CheckId::GatewayApi, found)
    }

    fn permissions(&self) -> Check {
        match self.missing_permissions.is_empty() {
            true => Check::passed(CheckId::Permissions, "cluster administrator"),
            false => Check::failed(
                CheckId::Permissions,
                "not a cluster administrator",
                "charts create roles, webhooks and types for the whole cluster: use an administrator's context",
            ),
        }
    }

    fn not_installed(
        &self,
        mesh: &Installable,
        releases: Result<Vec<Release>, HelmError>,
    ) -> Check {
        let id = CheckId::NotInstalled;
        let releases = match releases {
            Ok(releases) => releases,
            Err(error) => return Check::failed(id, error.to_string(), error.fix()),
        };
        let there: Vec<&str> = releases
            .iter()
            .filter(|release| release.is_of(mesh))
            .map(|release| release.name.as_str())
            .collect();
        let found = match (there.is_empty(), self.deployments.is_empty()) {
            (true, true) => {
                return Check::passed(id, format!("nothing in namespace {}", mesh.namespace));
            }
            (false, _) => format!("releases in {}: {}", mesh.namespace, there.join(", ")),
            // By another tool than Helm.
            (true, false) => format!(
                "workloads in {}: {}",
                mesh.namespace,
                self.deployments.join(", ")
            ),
        };
        let fix = "a run uses it as it is; otherwise remove it first (`meshtax mesh uninstall`, if meshtax installed it)";
        Check::failed(id, found, fix)
    }

    /// `charts`: the text of each `Chart.yaml`; `None`: they cannot be read.
    fn version(&self, charts: Option<&[String]>) -> Check {
        let id = CheckId::KubernetesVersion;
        let found = format!("Kubernetes {}", self.version);
        let Some(charts) = charts else {
            let fix = "the charts, which cannot be read, name the versions that they accept";
            return Check::unknown(id, found, fix);
        };
        let required = charts.iter().filter_map(|chart| kube_version(chart));
        let judged: Vec<(&str, Option<bool>)> =
            required.map(|range| (range, self.is_in(range))).collect();
        let first = |outcome| judged.iter().find(|(_, accepted)| *accepted == outcome);
        match (first(Some(false)), first(None)) {
            (Some((range, _)), _) => {
                Check::failed(id, found, format!("the charts require {range}"))
            }
            (None, Some((range, _))) => {
                let fix = format!("compare it yourself: the charts require {range}");
                Check::unknown(id, found, fix)
            }
            (None, None) => Check::passed(id, found),
        }
    }

    /// Whether a range of versions has the API server's; `None`: it is written in a way that is not understood.
    fn is_in(&self, range: &str) -> Option<bool> {
        let range = semver::VersionReq::parse(range).ok()?;
        let version = version_of(&self.version)?;
        // Suffixes of distributions are no pre-releases.
        let version = semver::Version::new(version.major, version.minor, version.patch);
        Some(range.matches(&version))
    }
}

/// `v3.19.0`
fn version_of(text: &str) -> Option<semver::Version> {
    semver::Version::parse(text.trim_start_matches('v')).ok()
}

/// `kubeVersion` of a `Chart.yaml`, without the quotes.
fn kube_version(chart: &str) -> Option<&str> {
    let value = chart
        .lines()
        .find_map(|line| line.strip_prefix("kubeVersion:"))?;
    Some(value.trim().trim_matches(['"', '\'']))
}

/// Major and minor of a kernel's version.
fn linux(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// All prerequisites of a mesh, in the order in which they matter.
pub(crate) fn checks(
    facts: &Facts,
    helm: &Helm,
    mesh: &Installable,
    sources: &Sources,
) -> Vec<Check> {
    let mut checks = Vec::new();
    if !mesh.on_running_cluster {
        checks.push(Check::failed(
            CheckId::Installable,
            format!("{} is a cluster's network", mesh.title),
            "create a cluster with it: replacing the network of a running one disconnects its pods",
        ));
    }
    let version = helm.version();
    let charts: Option<Result<Vec<String>, HelmError>> = version.is_ok().then(|| {
        let charts = mesh.charts.iter();
        charts
            .map(|chart| helm.show_chart(mesh, chart, sources))
            .collect()
    });
    checks.push(helm_version(version));
    let texts = charts.as_ref().and_then(|charts| charts.as_deref().ok());
    checks.push(facts.version(texts));
    if let Some(charts) = charts {
        checks.push(of_helm(
            CheckId::Charts,
            charts.map(|charts| charts_found(mesh, &charts)),
        ));
        checks.push(facts.not_installed(mesh, helm.releases(None)));
    }
    checks.push(facts.nodes());
    checks.extend(mesh.kernel.map(|oldest| facts.kernel(oldest)));
    checks.push(facts.network(mesh));
    checks.push(facts.kube_proxy());
    checks.push(facts.gateway_api(mesh));
    checks.push(facts.permissions());
    checks
}

fn helm_version(found: Result<String, HelmError>) -> Check {
    let id = CheckId::Helm;
    let found = match found {
        Ok(found) => found,
        Err(error) => return Check::failed(id, error.to_string(), error.fix()),
    };
    match version_of(&found) {
        Some(version) if (version.major, version.minor) >= OLDEST => Check::passed(id, found),
        Some(_) => Check::failed(id, format!("{found} is too old"), INSTALL_HELM),
        None => Check::unknown(
            id,
            format!("`{found}` is not a version"),
            "it must be Helm 3.13 or later",
        ),
    }
}

fn of_helm(id: CheckId, found: Result<String, HelmError>) -> Check {
    match found {
        Ok(found) => Check::passed(id, found),
        Err(error) => Check::failed(id, error.to_string(), error.fix()),
    }
}

fn charts_found(mesh: &Installable, charts: &[String]) -> String {
    let version = |chart: &String| {
        let mut lines = chart.lines();
        let version = lines.find_map(|line| line.strip_prefix("version:"));
        version
            .unwrap_or_default()
            .trim()
            .trim_matches('"')
            .to_owned()
    };
    let names = mesh.charts.iter().zip(charts);
    let each: Vec<String> = names
        .map(|(chart, text)| format!("{} {}", chart.name, version(text)))
        .collect();
    each.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::install::charts::INSTALLABLE;

    fn facts(change: impl Fn(&mut Facts)) -> Facts {
        let node = |name: &str| {
            let node = json!({
                "metadata": {"name": name},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {
                        "kernelVersion": "6.8.0-40-generic", "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "",
                        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "",
                        "systemUUID": "",
                    },
                },
            });
            serde_json::from_value(node).unwrap()
        };
        let mut facts = Facts {
            version: "v1.34.4+k3s1".into(),
            nodes: vec![node("one"), node("two")],
            system: Vec::new(),
            cilium_is_exclusive: false,
            has_gateway_api: false,
            deployments: Vec::new(),
            missing_permissions: Vec::new(),
        };
        change(&mut facts);
        facts
    }

    fn daemon(name: &str) -> DaemonSet {
        serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
    }

    fn mesh(name: &str) -> &'static Installable {
        INSTALLABLE.iter().find(|mesh| mesh.name == name).unwrap()
    }

    #[test]
    fn older_kubernetes_than_a_chart_accepts_is_named() {
        let requires = |range: &str| {
            facts(|_| {}).version(Some(&[format!("name: x\nkubeVersion: \"{range}\"\n")]))
        };
        assert_eq!(requires(">=1.31.0-0").outcome, CheckOutcome::Passed);
        let newer = requires(">=1.35.0-0");
        assert_eq!(
            (newer.outcome, newer.fix.contains(">=1.35.0-0")),
            (CheckOutcome::Failed, true)
        );
        let none = facts(|_| {}).version(Some(&["name: x\n".to_owned()]));
        assert_eq!(none.outcome, CheckOutcome::Passed);
    }

    #[test]
    fn requirement_that_cannot_be_read_or_understood_is_no_success() {
        let unread = facts(|_| {}).version(None);
        assert_eq!(unread.outcome, CheckOutcome::Unknown);
        let strange = "kubeVersion: >=1.31 || 1.29.x".to_owned();
        let older = "kubeVersion: <1.30.0".to_owned();
        let check = |charts: &[String]| facts(|_| {}).version(Some(charts));
        let unclear = check(std::slice::from_ref(&strange));
        assert_eq!(unclear.outcome, CheckOutcome::Unknown);
        assert!(unclear.fix.contains(">=1.31 || 1.29.x"), "{unclear:?}");
        assert_eq!(check(&[strange, older]).outcome, CheckOutcome::Failed);
    }

    #[test]
    fn helm_that_is_too_old_fails_with_the_fix() {
        let check = |version: &str| helm_version(Ok(version.to_owned()));
        for version in ["v3.13.0", "v3.19.0+g3d8990f", "v4.0.1"] {
            assert_eq!(check(version).outcome, CheckOutcome::Passed, "{version}");
        }
        let old = check("v3.12.3");
        assert_eq!(old.outcome, CheckOutcome::Failed);
        assert!(old.fix.contains("Helm 3.13 or later"), "{old:?}");
        assert_eq!(check("unreleased").outcome, CheckOutcome::Unknown);
    }

    #[test]
    fn kernel_that_is_too_old_fails() {
        let all = facts(|_| {});
        assert_eq!(all.kernel((5, 10)).outcome, CheckOutcome::Passed);
        assert_eq!(all.kernel((6, 12)).outcome, CheckOutcome::Failed);
        assert_eq!(linux("5.10.0-30-amd64"), Some((5, 10)));
        assert_eq!(linux("unknown"), None);
    }

    #[test]
    fn exclusive_cilium_fails_for_a_mesh_with_a_plugin_of_its_own() {
        let cilium = facts(|facts| {
            facts.system.push(daemon("cilium"));
            facts.cilium_is_exclusive = true;
        });
        assert_eq!(
            cilium.network(mesh("istio-ambient")).outcome,
            CheckOutcome::Failed
        );
        assert_eq!(
            cilium.network(mesh("linkerd")).outcome,
            CheckOutcome::Passed
        );
        assert_eq!(cilium.kube_proxy().found, "Cilium");
    }

    #[test]
    fn unknown_network_is_no_failure() {
        let check = facts(|_| {}).network(mesh("istio-ambient"));
        assert_eq!(check.outcome, CheckOutcome::Unknown);
    }

    #[test]
    fn user_who_is_no_administrator_is_told() {
        let user = facts(|facts| facts.missing_permissions.push("* *.*".into()));
        assert_eq!(user.permissions().outcome, CheckOutcome::Failed);
    }

    #[test]
    fn release_of_the_mesh_in_its_namespace_means_that_it_is_installed() {
        let release = |name: &str, namespace: &str| Release {
            name: name.into(),
            namespace: namespace.into(),
            status: "deployed".into(),
            chart: "istiod-1.30.4".into(),
            app_version: "1.30.4".into(),
        };
        let all = facts(|_| {});
        let outcome = |releases| {
            all.not_installed(mesh("istio-ambient"), Ok(releases))
                .outcome
        };
        assert_eq!(
            outcome(vec![release("istiod", "istio-system")]),
            CheckOutcome::Failed
        );
        assert_eq!(
            outcome(vec![release("istiod", "elsewhere")]),
            CheckOutcome::Passed
        );
        let by_another_tool = facts(|facts| facts.deployments.push("istiod".into()));
        let check = by_another_tool.not_installed(mesh("istio-ambient"), Ok(Vec::new()));
        assert_eq!(check.outcome, CheckOutcome::Failed);
    }
}
