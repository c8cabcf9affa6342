//! Settings that differ between runs, in words.

use meshtax_model::comparison::{Differing, ServiceSetting, Setting, SettingValue};
use meshtax_model::environment::Node;
use meshtax_model::experiment::{Arrivals, Ingress, Inject, LoadPoint, Regime, Variant};
use meshtax_model::topology::ServiceAddress;
use meshtax_model::trial::ComponentRole;

use crate::format;

/// A setting's name: `kernel`, `variant ztunnel-l4`.
pub(crate) fn name(setting: &Setting) -> String {
    let fixed = match setting {
        Setting::MeshtaxVersion => "meshtax",
        Setting::Engine => "engine",
        Setting::Processor => "processor",
        Setting::Cores => "cores",
        Setting::MainMemory => "main memory",
        Setting::Kernel => "kernel",
        Setting::ClockSource => "clock source",
        Setting::VirtualMachine => "virtual machine",
        Setting::Rootless => "rootless",
        Setting::CoreLayout => "core layout",
        Setting::Generator => "load generator",
        Setting::Experiment => "experiment",
        Setting::Service => "service",
        Setting::ApplicationWork => "calibrated work of the application",
        Setting::Placement => "placement",
        Setting::PodSettings => "settings of pods",
        Setting::ResponseBytes => "responses",
        Setting::Connections => "connections",
        Setting::Clients => "client pods",
        Setting::ProxyWorkers => "workers of each proxy",
        Setting::TrialLength => "trial",
        Setting::WarmUp => "warm-up",
        Setting::TimeLimit => "time limit",
        Setting::Program { data_plane } => return format!("program {data_plane}"),
        Setting::Variant { variant } => return format!("variant {variant}"),
        Setting::LoadPoint { load_point } => return format!("load {load_point}"),
    };
    fixed.to_owned()
}

/// `kernel: 6.1 in BASE, 6.8 in NEW`.
pub(crate) fn difference(differing: &Differing) -> String {
    let (base, new) = (values(&differing.base), values(&differing.new));
    format!("{}: {base} in BASE, {new} in NEW", name(&differing.setting))
}

/// `kernel: 6.1 in the run, 6.8 now; boot the former`.
pub(crate) fn change(changed: &Differing) -> String {
    let (before, now) = (values(&changed.base), values(&changed.new));
    let remedy = remedy(&changed.setting);
    format!(
        "{}: {before} in the run, {now} now; {remedy}",
        name(&changed.setting)
    )
}

/// What restores a condition of a run.
fn remedy(setting: &Setting) -> &'static str {
    match setting {
        Setting::MeshtaxVersion => "use that version",
        Setting::Kernel => "start that kernel",
        Setting::ClockSource => "select that clock source",
        Setting::Processor | Setting::MainMemory | Setting::VirtualMachine => "use that machine",
        Setting::Cores | Setting::CoreLayout => {
            "use those nodes, and allow meshtax the same cores there"
        }
        Setting::Rootless => "run it as the same user",
        Setting::Program { .. } => "use that build",
        _ => "restore it",
    }
}

/// The values of a side, in sequence.
pub(crate) fn values(values: &[SettingValue]) -> String {
    let mut texts: Vec<String> = values.iter().map(value).collect();
    texts.sort();
    texts.join("; ")
}

fn value(value: &SettingValue) -> String {
    match value {
        SettingValue::Absent => "not there".to_owned(),
        SettingValue::Text(text) => text.clone(),
        SettingValue::Count(count) => count.to_string(),
        SettingValue::Bytes(bytes) => bytes_in_words(*bytes),
        SettingValue::DurationNs(ns) => milliseconds(*ns),
        SettingValue::Flag(is) => if *is { "yes" } else { "no" }.to_owned(),
        SettingValue::Node(placed) => node(placed),
        SettingValue::Generator {
            socket_io,
            congestion_control,
        } => {
            let parts = [socket_io, congestion_control];
            let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
            let known: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            known.join(", ")
        }
        SettingValue::Service(setting) => service(setting),
        SettingValue::Program { version, sha256 } => {
            let digest: String = sha256.chars().take(12).collect();
            match digest.as_str() {
                "" => version.clone(),
                digest => format!("{version} (sha256 {digest})"),
            }
        }
        SettingValue::Pods(settings) => serde_json::to_string(settings).unwrap_or_default(),
        SettingValue::Variant(configured) => variant(configured),
        SettingValue::LoadPoint(point) => load_point(point),
    }
}

fn bytes_in_words(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mib => format!("{mib} MiB"),
    }
}

fn milliseconds(ns: u64) -> String {
    match ns / 1_000_000 {
        ms if ms >= 10_000 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

fn node(node: &Node) -> String {
    let generator = node.cores_of(ComponentRole::Generator);
    let tested: Vec<u32> = node.tested_cores().into_iter().collect();
    let cores = |cores: &[u32]| match cores {
        [] => "not pinned".to_owned(),
        cores => format::cores(cores),
    };
    match generator {
        [] => format!("{} {}", node.name, cores(&tested)),
        own => format!("generator {}, {} {}", cores(own), node.name, cores(&tested)),
    }
}

fn service(service: &ServiceSetting) -> String {
    let address = match service.address {
        ServiceAddress::Pod => "pod",
        ServiceAddress::Virtual => "service",
    };
    let topology = service.topology.as_ref();
    let mut text = topology.map_or_else(String::new, |(name, services)| {
        format!("topology {name} ({services} services), ")
    });
    let replicas = service.replicas;
    text.push_str(&format!("{replicas} behind the {address}'s address"));
    if service.nodes > 1 {
        text.push_str(&format!(", on {} nodes", service.nodes));
    }
    if let Some(program) = &service.program {
        let command = program.command.join(" ");
        text.push_str(&format!(
            ", `{command}` at {}{}",
            program.port, program.path
        ));
    }
    text
}

fn variant(variant: &Variant) -> String {
    let mut text = variant.data_plane.clone();
    if let Some(level) = variant.level {
        text.push_str(&format!(" {level}"));
    }
    match variant.inject {
        None => {}
        // How long a share of the p50 is, a pilot measured: it is never twice the same.
        Some(Inject::DelayNs(ns)) => text.push_str(&format!(" with a delay of {ns} ns")),
        Some(Inject::DelayShareOfP50(share)) => {
            text.push_str(&format!(" with a delay of {} % of p50", share * 100.0));
        }
        Some(Inject::DelaySome { delay_ns, share }) => text.push_str(&format!(
            " with a delay of {delay_ns} ns for {} % of the requests",
            share * 100.0
        )),
        Some(Inject::BurnSteps(steps)) => text.push_str(&format!(" with {steps} steps of work")),
        Some(Inject::HoldBytes(bytes)) => text.push_str(&format!(" holding {bytes} bytes")),
        Some(Inject::CapPerS(rate)) => text.push_str(&format!(" capped at {rate}/s")),
        Some(Inject::LeakBytes(bytes)) => text.push_str(&format!(" leaking {bytes} bytes")),
    }
    if let Some(extra) = variant.options.extra_endpoints {
        let (all, each) = (extra.endpoints, extra.per_service);
        text.push_str(&format!(" with {all} extra endpoints, {each} of a service"));
        if let Some(rate) = extra.changes_per_s {
            text.push_str(&format!(", of which {rate}/s change"));
        }
    }
    if variant.options.access_log {
        text.push_str(" with an access log");
    }
    if let Some(share) = variant.options.tracing {
        text.push_str(&format!(" tracing {} % of the requests", share * 100.0));
    }
    if variant.options.all_stats {
        text.push_str(" keeping all statistics");
    }
    text
}

fn load_point(point: &LoadPoint) -> String {
    let mut text = match point.load {
        Regime::Steady {
            rate_per_s,
            arrivals,
        } => {
            let arrivals = match arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "Poisson",
            };
            format!("{rate_per_s}/s {arrivals}")
        }
        Regime::Saturated => "closed loop".to_owned(),
    };
    text.push_str(&format!(", {}", point.protocol));
    if let Some(connections) = point.connections {
        let what = if point.by_users {
            "users"
        } else {
            "connections"
        };
        text.push_str(&format!(", {connections} {what}"));
    }
    if let Some(most) = point.requests_per_connection {
        text.push_str(&format!(", {most} requests on a connection"));
    }
    if let Some(bytes) = point.response_bytes {
        text.push_str(&format!(", responses of {bytes} bytes"));
    }
    text.push_str(match point.ingress {
        None => "",
        Some(Ingress::Plaintext) => ", ingress",
        Some(Ingress::Tls) => ", ingress over TLS",
    });
    if point.cold {
        text.push_str(", cold");
    }
    text
}
