//! The test application of a service: its work, its injected cost, its listeners.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use meshtax_app::{AppConfig, Call, Listener, Page, Protocol, ServiceStep, Wait};
use meshtax_dataplane::{ALLOWED_PATH, APP_PORT, AppPort, AppProtocol, Site};
use meshtax_model::experiment::Inject;
use meshtax_model::topology::{self, Service, ServiceTime, WorkStep};

/// A process of the test application.
#[derive(Clone, Debug)]
pub struct Application {
    /// What distinguishes it from the service's other processes; empty for the one of the usual response size, which
    /// is first.
    pub suffix: String,
    /// What it does.
    pub config: AppConfig,
}

/// A delay is still relative to the p50, which the pilot determines before the first round.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a delay relative to the p50 must be resolved before the first round")]
pub struct UnresolvedDelay;

/// The processes of a service's application, one for each size of response bodies, so that the process that serves a
/// load is distinct from those that idle. They listen on all addresses; `usual_bytes` is the workload's response size,
/// `response_bytes` the service's own.
///
/// # Errors
/// If the injected delay is not resolved.
pub fn applications(
    service: &Service,
    inject: Option<Inject>,
    site: &Site,
    ports: &[AppPort],
    (usual_bytes, response_bytes): (u32, u32),
    threads: u32,
) -> Result<Vec<Application>, UnresolvedDelay> {
    let config = config(service, inject, site)?;
    let mut by_size: BTreeMap<(bool, u32), Vec<Listener>> = BTreeMap::new();
    for port in ports.iter().filter(|port| port.path.is_none()) {
        let is_other = port.response_bytes != usual_bytes;
        let listener = Listener {
            address: (Ipv4Addr::UNSPECIFIED, port.number).into(),
            protocol: match port.protocol {
                AppProtocol::Tcp => Protocol::TcpEcho,
                AppProtocol::Http1 | AppProtocol::Http2 => Protocol::Http,
            },
        };
        let listeners = by_size.entry((is_other, port.response_bytes)).or_default();
        listeners.push(listener);
    }
    let application = |((is_other, bytes), listeners)| {
        let (suffix, response_bytes) = match is_other {
            false => (String::new(), response_bytes),
            true => (format!("-{bytes}-bytes"), bytes),
        };
        Application {
            suffix,
            config: AppConfig {
                listeners,
                response_bytes,
                threads,
                ..config.clone()
            },
        }
    };
    Ok(by_size.into_iter().map(application).collect())
}

/// What a service does for each request, on whatever port.
fn config(
    service: &Service,
    inject: Option<Inject>,
    site: &Site,
) -> Result<AppConfig, UnresolvedDelay> {
    // An injected cost applies to every request of a client, whichever entry point it goes to.
    let mut config = with_cost(inject.filter(|_| service.entry_point))?;
    let work = &service.work;
    config.burn = config.burn.saturating_add(work.burn_steps);
    config.wait = work.time.map(wait);
    config.error_share = work.error_share;
    config.steps = steps(&work.steps, site);
    let page = |page: &topology::Page| Page {
        response_bytes: page.response_bytes,
        burn: page.burn_steps,
        steps: steps(&page.steps, site),
    };
    config.pages = service.pages.iter().map(page).collect();
    Ok(config)
}

/// A service's time, as the test application takes it.
#[must_use]
pub fn wait(time: ServiceTime) -> Wait {
    match time {
        ServiceTime::Exponential { mean_ns } => Wait::Exponential { mean_ns },
        ServiceTime::Uniform { from_ns, to_ns } => Wait::Uniform { from_ns, to_ns },
        ServiceTime::LogNormal { median_ns, sigma } => Wait::LogNormal { median_ns, sigma },
    }
}

fn steps(steps: &[WorkStep], site: &Site) -> Vec<ServiceStep> {
    let call = |call: &topology::Call| {
        let callee = site.service(&call.service)?;
        let (address, port) = callee.endpoint();
        Some(Call {
            address: (address, port).into(),
            host: format!("{}:{port}", callee.name),
            path: ALLOWED_PATH.to_owned(),
            share: call.share,
        })
    };
    let step = |step: &WorkStep| match step {
        WorkStep::Calls(calls) => ServiceStep::Calls(calls.iter().filter_map(call).collect()),
        WorkStep::SleepNs(ns) => ServiceStep::SleepNs(*ns),
    };
    steps.iter().map(step).collect()
}

/// The application with a known cost.
fn with_cost(inject: Option<Inject>) -> Result<AppConfig, UnresolvedDelay> {
    let mut config = AppConfig::new((Ipv4Addr::UNSPECIFIED, APP_PORT).into());
    match inject {
        None => {}
        Some(Inject::DelayNs(delay_ns)) => config.delay_ns = delay_ns,
        Some(Inject::DelayShareOfP50(_)) => return Err(UnresolvedDelay),
        Some(Inject::DelaySome { delay_ns, share }) => {
            config.delay_ns = delay_ns;
            config.delay_share = share;
        }
        Some(Inject::BurnSteps(steps)) => config.burn = steps,
        Some(Inject::HoldBytes(bytes)) => config.hold_bytes = bytes,
        Some(Inject::CapPerS(per_s)) => config.cap_per_s = Some(per_s),
        Some(Inject::LeakBytes(bytes)) => config.leak_bytes = bytes,
    }
    Ok(config)
}
