//! Access logs and tracing of Envoys, as Istio configures them.

use serde_json::{Value, json};

use crate::control::ControlService;
use crate::envoy::{LINES_LOGGED, PORT_ADMIN, on_loopback, typed};
use crate::names::{EMULATED_NAMESPACE, TRUST_DOMAIN};
use crate::probe::Counter;
use crate::site::Pod;

/// Istio's fields of a request's line, in its order (its documentation, "Default access log format").
const LOGGED: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" \
    %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \
    \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% \
    %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
    \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER% \
    %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% \
    %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n";

/// Logs a line per request to standard output, as Istio's proxies do. The cost of processing the log further is not
/// attributed to the proxy.
pub(crate) fn access_log() -> Value {
    let mut log = typed("envoy.extensions.access_loggers.file.v3.FileAccessLog");
    log["path"] = json!("/dev/stdout");
    log["log_format"] = json!({"text_format_source": {"inline_string": LOGGED}});
    json!([{"name": "envoy.access_loggers.file", "typed_config": log}])
}

/// The Envoy statistic that counts the access log lines written.
pub(crate) fn lines_logged() -> Counter {
    Counter {
        port: PORT_ADMIN,
        path: format!("/stats?filter={LINES_LOGGED}"),
        series: LINES_LOGGED.into(),
    }
}

/// The port of the pod's trace collector: the OpenTelemetry default.
const PORT_COLLECTOR: u16 = 4317;
const COLLECTOR: &str = "opentelemetry-collector";

/// What istiod sends to every sidecar, whether there is a tracer or not: each request is sampled, and has these tags.
pub(crate) fn sampling(pod: &Pod) -> Value {
    let dry_run = ["allow", "deny"].into_iter().flat_map(|action| {
        let tag = move |tag: &str, key: &str| {
            json!({
                "tag": format!("istio.authorization.dry_run.{action}_policy.{tag}"),
                "metadata": {
                    "kind": {"request": {}},
                    "metadata_key": {
                        "key": "envoy.filters.http.rbac",
                        "path": [{"key": format!("istio_dry_run_{action}_{key}")}],
                    },
                },
            })
        };
        [
            tag("name", "shadow_effective_policy_id"),
            tag("result", "shadow_engine_result"),
        ]
    });
    let literals = [
        ("istio.canonical_revision", "latest"),
        ("istio.canonical_service", &pod.service_account),
        ("istio.cluster_id", "Kubernetes"),
        ("istio.mesh_id", TRUST_DOMAIN),
        ("istio.namespace", EMULATED_NAMESPACE),
    ];
    let literals = literals.map(|(tag, value)| json!({"tag": tag, "literal": {"value": value}}));
    let tags: Vec<Value> = dry_run.chain(literals).collect();
    json!({
        "client_sampling": {"value": 100.0},
        "random_sampling": {"value": 1.0},
        "overall_sampling": {"value": 100.0},
        "custom_tags": tags,
    })
}

/// Traces a share of the requests with the OpenTelemetry protocol.
pub(crate) fn tracing(pod: &Pod, share: f64) -> Value {
    let mut tracer = typed("envoy.config.trace.v3.OpenTelemetryConfig");
    tracer["grpc_service"] = json!({"envoy_grpc": {"cluster_name": COLLECTOR}});
    tracer["service_name"] = json!(format!("{}.default", pod.service_account));
    let mut config = sampling(pod);
    config["provider"] = json!({"name": "envoy.tracers.opentelemetry", "typed_config": tracer});
    config["random_sampling"]["value"] = json!(share * 100.0);
    config
}

/// The collector's cluster.
pub(crate) fn collector_cluster() -> Value {
    on_loopback(COLLECTOR, PORT_COLLECTOR)
}

/// The service that runs the collector.
pub(crate) fn trace_collector() -> ControlService {
    ControlService::TraceCollector {
        port: PORT_COLLECTOR,
    }
}
