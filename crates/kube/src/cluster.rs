//! The cluster's API, called from threads: its asynchronous runtime stays in here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Pod, Secret};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::error::ClusterError;
use crate::names::{MANAGED_BY, MANAGER, RUN};

/// How the cluster is reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The kubeconfig's path; `None`: `KUBECONFIG`, `~/.kube/config`, or the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; `None`: the current one.
    pub context: Option<String>,
}

/// A cluster.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    /// `v1.34.4`.
    pub(crate) version: String,
}

/// How long a request is tried again, with pauses that double up to the longest.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same where the answer is no, but may be outdated: caches of rules and namespaces lag behind what was just created,
/// credentials are being renewed, or somebody else changed the object first.
const SECOND_THOUGHTS: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time limit of one try.
const REQUEST: Duration = Duration::from_secs(15);

impl Cluster {
    /// Connects, and asks for the version.
    ///
    /// # Errors
    /// If there is no kubeconfig, or the API server does not respond.
    pub fn connect(access: &Access) -> Result<Self, ClusterError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kubernetes")
            .enable_all()
            .build()
            .map_err(ClusterError::Runtime)?;
        let config = runtime.block_on(config(access))?;
        let client = {
            let _entered = runtime.enter();
            Client::try_from(config).map_err(|e| ClusterError::Kubeconfig {
                cause: e.to_string(),
            })?
        };
        let mut cluster = Self {
            runtime,
            client,
            version: String::new(),
        };
        let asked = cluster.request("ask for its version", |client| async move {
            client.apiserver_version().await
        })?;
        cluster.version = asked.git_version;
        Ok(cluster)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// Sends a request; again, after a pause, if the API server is busy, restarts or cannot be reached, and a few times if it
    /// may answer otherwise in a moment.
    pub(crate) fn request<T, F>(
        &self,
        doing: &str,
        send: impl Fn(Client) -> F,
    ) -> Result<T, ClusterError>
    where
        F: Future<Output = kube::Result<T>>,
    {
        let mut pause = FIRST_PAUSE;
        let begin = Instant::now();
        loop {
            let sent = async { tokio::time::timeout(REQUEST, send(self.client())).await };
            let timed_out = |_| Err(kube::Error::Service("no response in time".into()));
            let error = match self.runtime.block_on(sent).unwrap_or_else(timed_out) {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            if begin.elapsed() + pause > patience(&error) {
                return Err(classified(doing, error));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn api(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().unwrap_or_default();
        let kind = GroupVersionKind::try_from(&types)
            .unwrap_or_else(|_| GroupVersionKind::gvk("", "v1", &types.kind));
        let resource = ApiResource::from_gvk(&kind);
        match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }

    /// Applies an object (server-side, as field manager `meshtax`).
    pub(crate) fn apply(&self, object: &Value) -> Result<(), ClusterError> {
        self.apply_with(object, &PatchParams::apply(MANAGER).force())
    }

    /// Whether the API server and its admission policies would accept an object: nothing is created.
    pub(crate) fn admit(&self, object: &Value) -> Result<(), ClusterError> {
        self.apply_with(object, &PatchParams::apply(MANAGER).force().dry_run())
    }

    fn apply_with(&self, object: &Value, params: &PatchParams) -> Result<(), ClusterError> {
        let object: DynamicObject =
            serde_json::from_value(object.clone()).map_err(|e| ClusterError::Rejected {
                doing: "read an object".into(),
                message: e.to_string(),
            })?;
        let name = object.metadata.name.clone().unwrap_or_default();
        let api = self.api(&object);
        let kind = object.types.as_ref().map_or("", |t| t.kind.as_str());
        let scope = object.metadata.namespace.as_deref();
        let doing = match scope {
            Some(namespace) => format!("apply {kind} {namespace}/{name}"),
            None => format!("apply {kind} {name}"),
        };
        let patch = Patch::Apply(&object);
        self.request(&doing, |_| api.patch(&name, params, &patch))
            .map(|_| ())
    }

    /// All objects of a kind that have these labels.
    pub(crate) fn list<K>(
        &self,
        api: &Api<K>,
        doing: &str,
        labels: &str,
    ) -> Result<Vec<K>, ClusterError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let params = ListParams::default().labels(labels);
        let list = self.request(doing, |_| api.list(&params))?;
        Ok(list.items)
    }

    /// Deletes an object. One that does not exist is no error.
    pub(crate) fn delete<K>(
        &self,
        api: &Api<K>,
        (what, name): (&str, &str),
    ) -> Result<(), ClusterError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let usual = &DeleteParams::default();
        self.request(&format!("delete {what}"), |_| async move {
            match api.delete(name, usual).await {
                Ok(_) => Ok(()),
                Err(error) if is_absent(&error) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client(), namespace)
    }

    /// The texts of a ConfigMap; none if it does not exist.
    pub(crate) fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, String>, ClusterError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client(), namespace);
        let doing = format!("get ConfigMap {namespace}/{name}");
        let found = self.request(&doing, |_| api.get_opt(name))?;
        Ok(found.and_then(|map| map.data).unwrap_or_default())
    }

    /// A Secret; `None`: it does not exist.
    pub(crate) fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Secret>, ClusterError> {
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        let doing = format!("get Secret {namespace}/{name}");
        self.request(&doing, |_| api.get_opt(name))
    }

    /// The events of a namespace.
    pub(crate) fn events(&self, namespace: &str) -> Result<Vec<Event>, ClusterError> {
        let api: Api<Event> = Api::namespaced(self.client(), namespace);
        self.list(&api, &format!("list events in {namespace}"), "")
    }

    /// All pods of a namespace.
    pub(crate) fn list_pods(&self, namespace: &str) -> Result<Vec<Pod>, ClusterError> {
        let doing = format!("list pods in {namespace}");
        self.list(&self.pods(namespace), &doing, "")
    }

    /// Removes all pods of a namespace at once, and waits until they are gone.
    pub(crate) fn remove_pods(&self, namespace: &str) -> Result<(), ClusterError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let api = self.pods(namespace);
        let now = DeleteParams::default().grace_period(0);
        let doing = format!("delete pods in {namespace}");
        let all = ListParams::default();
        self.request(&doing, |_| api.delete_collection(&now, &all))?;
        let is_gone = || Ok(self.list_pods(namespace)?.is_empty());
        wait(PATIENCE, &format!("a pod in {namespace}"), is_gone)
    }

    /// The last lines of a container's log; empty if there is none.
    pub(crate) fn log(&self, namespace: &str, pod: &str, container: &str) -> Vec<String> {
        const LINES: i64 = 40;
        let params = LogParams {
            container: Some(container.to_owned()),
            tail_lines: Some(LINES),
            ..LogParams::default()
        };
        let api = self.pods(namespace);
        let text = self.request("read a log", |_| api.logs(pod, &params));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// The namespaces of meshtax: all, or those of one run.
    pub(crate) fn namespaces(&self, run: Option<&str>) -> Result<Vec<Namespace>, ClusterError> {
        let (key, value) = MANAGED_BY;
        let labels = match run {
            None => format!("{key}={value},{RUN}"),
            Some(run) => format!("{key}={value},{RUN}={run}"),
        };
        let api: Api<Namespace> = Api::all(self.client());
        self.list(&api, "list namespaces", &labels)
    }

    /// Removes namespaces with everything in them, and waits until they are gone. Returns those that remain.
    pub(crate) fn remove_namespaces(&self, run: Option<&str>) -> Result<Vec<String>, ClusterError> {
        const PATIENCE: Duration = Duration::from_secs(180);
        let api: Api<Namespace> = Api::all(self.client());
        let usual = DeleteParams::default();
        let mut failed = None;
        for namespace in self.namespaces(run)? {
            let name = namespace.metadata.name.unwrap_or_default();
            let doing = format!("delete namespace {name}");
            let (api, name, usual) = (&api, &name, &usual);
            let deleted = self.request(&doing, |_| async move {
                match api.delete(name, usual).await {
                    Ok(_) => Ok(()),
                    Err(error) if is_absent(&error) || is_being_deleted(&error) => Ok(()),
                    Err(error) => Err(error),
                }
            });
            match deleted {
                Ok(()) | Err(ClusterError::Rejected { .. }) => {}
                // The others are removed all the same.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let is_gone = || Ok(self.namespaces(run)?.is_empty());
        match wait(PATIENCE, "a namespace", is_gone) {
            Ok(()) => Ok(Vec::new()),
            Err(ClusterError::NotRemoved { .. }) => {
                let left = self.namespaces(run)?.into_iter();
                Ok(left.filter_map(|n| n.metadata.name).collect())
            }
            Err(e) => Err(e),
        }
    }

    /// The rules that this user lacks, each in words. Asked again for a moment: rules that were just created take effect with
    /// a delay.
    pub(crate) fn missing_permissions(
        &self,
        rules: &[Permission],
    ) -> Result<Vec<String>, ClusterError> {
        let begin = Instant::now();
        let mut missing: Vec<Permission> = rules.to_vec();
        loop {
            let mut still = Vec::new();
            for rule in missing {
                if !self.is_permitted(&rule)? {
                    still.push(rule);
                }
            }
            missing = still;
            if missing.is_empty() || begin.elapsed() + FIRST_PAUSE > SECOND_THOUGHTS {
                return Ok(missing.iter().map(Permission::to_string).collect());
            }
            std::thread::sleep(FIRST_PAUSE);
        }
    }

    fn is_permitted(&self, rule: &Permission) -> Result<bool, ClusterError> {
        use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client());
        let (resource, subresource) = match rule.resource.split_once('/') {
            Some((resource, subresource)) => (resource, subresource),
            None => (rule.resource, ""),
        };
        let attributes = json!({
            "verb": rule.verb, "group": rule.group, "resource": resource, "subresource": subresource,
        });
        let review = json!({"spec": {"resourceAttributes": attributes}});
        let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap_or_default();
        let asked = self.request("ask for permissions", |_| {
            let (api, review) = (api.clone(), review.clone());
            async move { api.create(&PostParams::default(), &review).await }
        })?;
        Ok(asked.status.is_some_and(|status| status.allowed))
    }
}

/// A rule of RBAC that the engine needs in all namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
}

impl Permission {
    pub(crate) const fn new(
        verb: &'static str,
        group: &'static str,
        resource: &'static str,
    ) -> Self {
        Self {
            verb,
            group,
            resource,
        }
    }
}

impl std::fmt::Display for Permission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            verb,
            group,
            resource,
        } = self;
        match *group {
            "" => write!(f, "{verb} {resource}"),
            group => write!(f, "{verb} {resource}.{group}"),
        }
    }
}

async fn config(access: &Access) -> Result<Config, ClusterError> {
    let options = KubeConfigOptions {
        context: access.context.clone(),
        ..KubeConfigOptions::default()
    };
    // Errors of YAML quote the file on further lines, secrets and all.
    let failed = |cause: &dyn std::fmt::Display| ClusterError::Kubeconfig {
        cause: cause.to_string().lines().next().unwrap_or_default().into(),
    };
    let mut config = match &access.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path);
            let read = read.map_err(|e| failed(&format!("{}: {e}", path.display())))?;
            Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(|e| failed(&e))?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            // In a pod.
            Err(e) if access.context.is_none() => Config::incluster().map_err(|_| failed(&e))?,
            Err(e) => return Err(failed(&e)),
        },
    };
    // Port-forwards stay open for a whole run.
    config.read_timeout = None;
    config.write_timeout = None;
    Ok(config)
}

/// How long the same request is tried again after this error.
fn patience(error: &kube::Error) -> Duration {
    match error {
        kube::Error::Api(status) => match status.code {
            429 | 500 | 502..=504 => PATIENCE,
            403 if is_terminating(status) => Duration::ZERO,
            401 | 403 | 409 => SECOND_THOUGHTS,
            _ => Duration::ZERO,
        },
        kube::Error::HyperError(_) | kube::Error::Service(_) => PATIENCE,
        _ => Duration::ZERO,
    }
}

/// Whether the namespace is being removed, in which nothing can be created any more.
fn is_terminating(status: &Status) -> bool {
    /// The cause's reason.
    const TERMINATING: &str = "NamespaceTerminating";
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == TERMINATING)
}

/// Whether there is no such object.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether an object that was to be deleted is being deleted already.
fn is_being_deleted(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn classified(doing: &str, error: kube::Error) -> ClusterError {
    let doing = doing.to_owned();
    match error {
        kube::Error::Api(status) if status.code < 500 => {
            let message = status.message.clone();
            match status.code {
                401 => ClusterError::Unauthenticated { doing, message },
                404 => ClusterError::Gone { doing, message },
                403 if is_terminating(&status) => ClusterError::Gone { doing, message },
                403 => ClusterError::Forbidden { doing, message },
                _ => ClusterError::Rejected { doing, message },
            }
        }
        other => ClusterError::Unreachable {
            doing,
            cause: with_sources(&other),
        },
    }
}

/// An error and what caused it: the client's own text ends before "connection refused".
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// Waits until something is so.
pub(crate) fn wait(
    patience: Duration,
    what: &str,
    is_so: impl Fn() -> Result<bool, ClusterError>,
) -> Result<(), ClusterError> {
    const PAUSE: Duration = Duration::from_millis(100);
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > patience {
            return Err(ClusterError::NotRemoved {
                what: what.to_owned(),
                waited: patience,
            });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::fake_api::{Answer, FakeApi};

    fn answered(code: u16) -> kube::Error {
        let status = Status {
            code,
            ..Status::default()
        };
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn only_what_does_not_exist_counts_as_deleted() {
        assert!(is_absent(&answered(404)));
        for code in [400, 403, 405, 409, 422, 500] {
            assert!(!is_absent(&answered(code)), "{code}");
        }
        let unreachable = kube::Error::Service("refused".into());
        assert!(!is_absent(&unreachable));
    }

    /// Lists the pods of a namespace where the first requests get this answer. Returns how many were sent.
    fn listed(first: usize, answer: Answer) -> (usize, Result<Vec<Pod>, ClusterError>) {
        let api = FakeApi::start(move |_, earlier| match earlier < first {
            true => answer.clone(),
            false => Answer::list(&[]),
        });
        let pods = api.cluster().list_pods("n");
        (api.requests().len(), pods)
    }

    #[test]
    fn refusal_that_passes_is_no_error() {
        for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (409, "Conflict")] {
            let (requests, pods) = listed(2, Answer::failure(code, reason, "not yet ready"));
            assert!(pods.is_ok(), "{code}: {pods:?}");
            assert_eq!(requests, 3, "{code}");
        }
    }

    #[test]
    fn refusal_that_stays_is_the_same_error_after_a_moment() {
        let begin = Instant::now();
        let (requests, pods) = listed(
            usize::MAX,
            Answer::failure(403, "Forbidden", "user a cannot"),
        );
        match pods {
            Err(ClusterError::Forbidden { doing, message }) => {
                assert_eq!(
                    (doing.as_str(), message.as_str()),
                    ("list pods in n", "user a cannot")
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(requests > 1, "{requests}");
        assert!(begin.elapsed() < SECOND_THOUGHTS * 2);
        let (_, pods) = listed(usize::MAX, Answer::failure(401, "Unauthorized", "expired"));
        assert!(
            matches!(pods, Err(ClusterError::Unauthenticated { .. })),
            "{pods:?}"
        );
    }

    #[test]
    fn namespace_that_is_gone_or_going_is_not_asked_again() {
        let mut going = Answer::failure(403, "Forbidden", "being terminated");
        going.body["details"] = json!({"causes": [{"reason": "NamespaceTerminating"}]});
        for answer in [going, Answer::failure(404, "NotFound", "no n")] {
            let (requests, pods) = listed(usize::MAX, answer);
            assert_eq!(requests, 1);
            assert!(matches!(&pods, Err(error @ ClusterError::Gone { .. }) if !error.may_pass()));
        }
    }

    #[test]
    fn permission_that_takes_effect_with_a_delay_is_not_missing() {
        let late = AtomicUsize::new(0);
        let api = FakeApi::start(move |request, _| {
            let allowed = match request.body["spec"]["resourceAttributes"]["verb"].as_str() {
                Some("get") => late.fetch_add(1, Ordering::Relaxed) > 1,
                Some("list") => true,
                _ => false,
            };
            Answer::ok(json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "metadata": {}, "spec": {}, "status": {"allowed": allowed},
            }))
        });
        let rules = ["get", "list", "delete"].map(|verb| Permission::new(verb, "", "pods"));
        let missing = api.cluster().missing_permissions(&rules).unwrap();
        assert_eq!(missing, ["delete pods"]);
    }
}
