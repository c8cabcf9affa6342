//! What stands behind the service: meshtax's own application on as many ports as the load needs, and
//! the user's own program, if there is one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use meshtax_app::{AppConfig, Listener, Protocol as Spoken};
use meshtax_dataplane::{APP_PORT, AppPort, Speaks};
use meshtax_model::experiment::{Inject, LoadPoint, Protocol, Variant};
use meshtax_model::trial::ComponentRole;

use super::component::Component;
use super::netns::NetNs;
use super::setup::Lab;
use crate::protocol::Setup;

/// What a port of meshtax's application is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    /// TCP sends back what it gets, whatever the size of answers.
    response_bytes: Option<u32>,
    speaks: u8,
}

fn speaks(protocol: Protocol) -> Speaks {
    match protocol {
        Protocol::Http1 => Speaks::Http1,
        Protocol::Http2 | Protocol::Grpc => Speaks::Http2,
        Protocol::Tcp => Speaks::Tcp,
    }
}

fn usage(setup: &Setup, point: &LoadPoint) -> Use {
    let speaks = speaks(point.protocol);
    let bytes = point
        .response_bytes
        .unwrap_or(setup.workload.response_bytes);
    Use {
        response_bytes: (speaks != Speaks::Tcp).then_some(bytes),
        speaks: speaks as u8,
    }
}

/// Which port of meshtax's application serves a use; the first is there in any case.
fn own_ports(setup: &Setup) -> Vec<(Use, Speaks, u16)> {
    let taken = setup.service.program.as_ref().map(|program| program.port);
    let mut free = (APP_PORT..).filter(|port| Some(*port) != taken);
    let first = LoadPoint::new("", meshtax_model::experiment::Regime::Saturated);
    let mut ports: Vec<(Use, Speaks, u16)> = Vec::new();
    for point in std::iter::once(&first).chain(&setup.load_points) {
        let use_ = usage(setup, point);
        if ports.iter().all(|(other, ..)| *other != use_)
            && let Some(port) = free.next()
        {
            ports.push((use_, speaks(point.protocol), port));
        }
    }
    ports
}

/// The first port, where the probes ask.
pub(crate) fn first_port(setup: &Setup) -> u16 {
    own_ports(setup)
        .first()
        .map_or(APP_PORT, |(.., port)| *port)
}

/// All ports but the first: those of the application, and the one of the user's own program.
pub(crate) fn more_ports(setup: &Setup) -> Vec<AppPort> {
    let own = own_ports(setup).into_iter().skip(1);
    let own = own.map(|(use_, speaks, number)| AppPort {
        number,
        speaks,
        response_bytes: use_.response_bytes.unwrap_or_default(),
        path: None,
    });
    let program = setup.service.program.iter().map(|program| AppPort {
        number: program.port,
        speaks: Speaks::Http1,
        response_bytes: 0,
        path: Some(program.path.clone()),
    });
    own.chain(program).collect()
}

/// Where a load goes: the port, and the path if it is not the usual one.
pub(crate) fn target(setup: &Setup, point: &LoadPoint) -> (u16, Option<String>) {
    if let Some(program) = &setup.service.program {
        return (program.port, Some(program.path.clone()));
    }
    let use_ = usage(setup, point);
    let ports = own_ports(setup);
    let port = ports.iter().find(|(other, ..)| *other == use_);
    (port.map_or(APP_PORT, |(.., port)| *port), None)
}

/// A part of this binary, as a process of its own.
pub(crate) fn own_program(name: &str, arguments: &[String]) -> Command {
    // By this name it is found even if its path is hidden by the lab's own file systems.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("meshtax")
        .arg("internal")
        .arg(name)
        .args(arguments);
    command
}

/// Starts all that one replica runs. `number` counts from 0.
pub(crate) fn start(
    lab: &Lab,
    variant: &Variant,
    pod: &NetNs,
    number: usize,
) -> Result<Vec<Component>, String> {
    let suffix = match number {
        0 => String::new(),
        _ => format!("-{}", number + 1),
    };
    // One process for each size of answers: what serves a load is told apart from what idles.
    let mut by_size: BTreeMap<u32, Vec<Listener>> = BTreeMap::new();
    let usual = lab.setup.workload.response_bytes;
    for (use_, speaks, port) in own_ports(&lab.setup) {
        let listener = Listener {
            address: (Ipv4Addr::UNSPECIFIED, port).into(),
            protocol: match speaks {
                Speaks::Tcp => Spoken::TcpEcho,
                Speaks::Http1 | Speaks::Http2 => Spoken::Http,
            },
        };
        let bytes = use_.response_bytes.unwrap_or(usual);
        by_size.entry(bytes).or_default().push(listener);
    }
    let mut components = Vec::new();
    for (bytes, listeners) in by_size {
        let size = if bytes == usual {
            String::new()
        } else {
            format!("-{bytes}-bytes")
        };
        let name = format!("{}/app{suffix}{size}", variant.id);
        components.push(start_app(lab, variant, pod, name, bytes, listeners)?);
    }
    // The one that is asked for its figures, first.
    components.sort_by_key(|c| c.name != format!("{}/app{suffix}", variant.id));
    if let Some(first) = components.first_mut() {
        first.is_first_app = true;
    }
    if let Some(program) = &lab.setup.service.program {
        let name = format!("{}/own-program{suffix}", variant.id);
        components.push(start_program(lab, pod, name, &program.command)?);
    }
    Ok(components)
}

fn start_app(
    lab: &Lab,
    variant: &Variant,
    pod: &NetNs,
    name: String,
    response_bytes: u32,
    listeners: Vec<Listener>,
) -> Result<Component, String> {
    let delay_ns = match variant.inject {
        Some(Inject::DelayNs(delay_ns)) => delay_ns,
        Some(Inject::DelayShareOfP50(_)) => {
            return Err(
                "a delay relative to the p50 must be resolved before the first round".into(),
            );
        }
        None => 0,
    };
    let config = AppConfig {
        listeners,
        response_bytes,
        delay_ns,
        threads: app_threads(lab),
        ..AppConfig::new((Ipv4Addr::UNSPECIFIED, APP_PORT).into())
    };
    let config = serde_json::to_string(&config).map_err(|e| e.to_string())?;
    let command = own_program("app", &[config]);
    let cores = &lab.setup.layout.server_node;
    Component::start(name, ComponentRole::App, command, pod, cores)
        .map_err(|e| format!("cannot start the test application: {e}"))
}

/// One thread is as fast as the generator's one; on a node with cores to spare the application must
/// not be the bottleneck of a pair either.
fn app_threads(lab: &Lab) -> u32 {
    (lab.setup.layout.server_node.len() as u32).clamp(1, 4)
}

/// In the pod's network namespace, and with the files that there are outside the lab.
fn start_program(
    lab: &Lab,
    pod: &NetNs,
    name: String,
    words: &[String],
) -> Result<Component, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("the service's own program has no name".into());
    };
    let mut command = Command::new(program);
    command.args(arguments);
    lab.outside.enter(&mut command);
    let cores = &lab.setup.layout.server_node;
    Component::start(name, ComponentRole::App, command, pod, cores)
        .map_err(|e| format!("cannot start the service's own program `{program}`: {e}"))
}
