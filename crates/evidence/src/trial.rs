//! What a trial's own readings say: whether they contradict the evidence, and what the applications counted.

use meshtax_app::AppStats;
use meshtax_model::experiment::{Inject, LoadPoint, Protocol, Variant};
use meshtax_model::failure::LostEvidence;
use meshtax_model::trial::{
    ComponentRole, ComponentUsage, InjectedTime, LoadResult, ProxyConnections,
};

use crate::requests::{StatsError, app_stats};
use crate::subject::Subject;
use crate::traffic::LoadPath;

/// Contradictions between a trial's own readings and the evidence: the proxies did not work, or were not
/// connected to each other.
#[must_use]
pub fn contradictions(
    point: &LoadPoint,
    components: &[ComponentUsage],
    load: &LoadResult,
    proxy_connections: Option<ProxyConnections>,
) -> Vec<LostEvidence> {
    let idle = idle_proxies(components, load.completed).into_iter();
    let mut lost: Vec<LostEvidence> = idle.map(|role| LostEvidence::IdleProxy { role }).collect();
    // Connections that end need not be open just now.
    let has_none = proxy_connections.is_some_and(|connections| connections.after == 0);
    if point.requests_per_connection.is_none() && load.completed > 0 && has_none {
        lost.push(LostEvidence::NoProxyConnection);
    }
    lost
}

/// The roles of proxies that used less CPU than so many requests take.
fn idle_proxies(components: &[ComponentUsage], completed: u64) -> Vec<ComponentRole> {
    /// Nothing serves or forwards a request in less CPU.
    const AT_WORK_NS: u64 = 300;
    let is_idle = |role: &ComponentRole| {
        let of_role = || components.iter().filter(|of| of.role == *role);
        let used_ns: u64 = of_role().map(|component| component.cpu_ns).sum();
        of_role().count() > 0 && used_ns < completed.saturating_mul(AT_WORK_NS)
    };
    // If the application that answered used nothing either, both readings came at one end of the window, as on overloaded
    // cores: they say nothing of the proxies.
    if is_idle(&ComponentRole::App) {
        return Vec::new();
    }
    let proxies = [
        ComponentRole::ClientProxy,
        ComponentRole::ServerProxy,
        ComponentRole::Waypoint,
        ComponentRole::Gateway,
    ];
    proxies.into_iter().filter(is_idle).collect()
}

/// The applications' counters at one time, read past any proxy.
#[derive(Clone, Debug, Default)]
pub struct AppCounters {
    /// The time that an injected cost has taken, over all pods that clients call; `None`: no time is injected.
    injected: Option<AppStats>,
    /// The requests that each replica has received; `None` with one replica, and where the program does not count.
    replicas: Option<Vec<u64>>,
}

impl AppCounters {
    /// Reads them.
    ///
    /// # Errors
    /// If an injected time cannot be read.
    pub fn read(
        subject: &Subject<'_>,
        path: LoadPath<'_>,
        variant: &Variant,
    ) -> Result<Self, StatsError> {
        Ok(Self {
            injected: injected(subject, path, variant)?,
            replicas: replicas(subject, path),
        })
    }

    /// What an injected cost has taken since `before`.
    #[must_use]
    pub fn injected_since(&self, before: &Self) -> Option<InjectedTime> {
        let (before, after) = (before.injected?, self.injected?);
        let time = |count: fn(&AppStats) -> u64, sum_ns: fn(&AppStats) -> u64| {
            let counted = count(&after).checked_sub(count(&before))?;
            let passed_ns = sum_ns(&after).saturating_sub(sum_ns(&before));
            (counted > 0).then(|| (counted, passed_ns as f64 / counted as f64))
        };
        let spun = time(|s| s.delayed, |s| s.delay_sum_ns);
        let (count, mean_ns) = spun.or_else(|| time(|s| s.burned, |s| s.burned_ns))?;
        Some(InjectedTime {
            asked_ns: after.configured_delay_ns,
            count,
            mean_ns,
        })
    }

    /// The requests that each replica has received since `before`; empty where they are not counted.
    #[must_use]
    pub fn replicas_since(&self, before: &Self) -> Vec<u64> {
        let (Some(before), Some(after)) = (&before.replicas, &self.replicas) else {
            return Vec::new();
        };
        let pairs = after.iter().zip(before);
        pairs
            .map(|(after, before)| after.saturating_sub(*before))
            .collect()
    }
}

fn replicas(subject: &Subject<'_>, path: LoadPath<'_>) -> Option<Vec<u64>> {
    let pods = &subject.site.entry_point().pods;
    if pods.len() < 2 || !path.apps_count {
        return None;
    }
    let stats = |pod| app_stats(subject.at(pod), path.port).ok();
    pods.iter().map(|pod| Some(stats(pod)?.requests)).collect()
}

fn injected(
    subject: &Subject<'_>,
    path: LoadPath<'_>,
    variant: &Variant,
) -> Result<Option<AppStats>, StatsError> {
    let takes_time = variant.inject.is_some_and(|inject| match inject {
        Inject::DelayNs(_)
        | Inject::DelayShareOfP50(_)
        | Inject::DelaySome { .. }
        | Inject::BurnSteps(_) => true,
        Inject::HoldBytes(_) | Inject::CapPerS(_) | Inject::LeakBytes(_) => false,
    });
    if !takes_time || path.point.protocol == Protocol::Tcp {
        return Ok(None);
    }
    let mut sum = AppStats::default();
    for pod in subject
        .site
        .entry_points()
        .flat_map(|service| &service.pods)
    {
        let stats = app_stats(subject.at(pod), path.port)?;
        sum.configured_delay_ns = stats.configured_delay_ns;
        sum.delayed += stats.delayed;
        sum.delay_sum_ns += stats.delay_sum_ns;
        sum.burned += stats.burned;
        sum.burned_ns += stats.burned_ns;
    }
    Ok(Some(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(role: ComponentRole, cpu_ns: u64) -> ComponentUsage {
        ComponentUsage {
            cpu_ns,
            ..ComponentUsage::new("", role)
        }
    }

    #[test]
    fn proxy_that_used_nothing_while_the_application_answered_is_idle() {
        use ComponentRole::{App, ClientProxy, ServerProxy};
        let of = |app_ns, client_ns, server_ns| {
            let all = [
                usage(App, app_ns),
                usage(ClientProxy, client_ns),
                usage(ServerProxy, server_ns),
            ];
            idle_proxies(&all, 100)
        };
        assert_eq!(of(500_000, 400_000, 0), [ServerProxy]);
        assert_eq!(of(500_000, 29_999, 30_000), [ClientProxy]);
        assert!(of(500_000, 400_000, 400_000).is_empty());
        // Nothing was read.
        assert!(of(0, 0, 0).is_empty());
        // An application outside the run is not read at all.
        let proxies = [usage(ClientProxy, 0), usage(ServerProxy, 400_000)];
        assert_eq!(idle_proxies(&proxies, 100), [ClientProxy]);
    }
}
