//! Which role runs on which cores.
//!
//! Whole physical cores of one NUMA node: of SMT siblings only the first is used, so that no two roles share a core's
//! execution units, and no memory is remote. A quota (cgroup) of fewer cores than allowed is what there is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use meshtax_model::environment::{Environment, Host, Node, NodeRole};
use meshtax_model::trial::ComponentRole;
use meshtax_observe::{LogicalCpu, SYSFS_CPUS};

/// The generator takes no more cores than this: with as many it is faster than the application.
const GENERATOR_CORES_MAX: usize = 4;

/// The CPUs that this process may use, and how much of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// Allowed by affinity and cpuset.
    pub cpus: Vec<LogicalCpu>,
    /// Cores' worth of time that a cgroup grants; `None`: no limit.
    pub quota: Option<f64>,
}

impl Capacity {
    /// That of the calling process.
    #[must_use]
    pub fn here() -> Self {
        let allowed = meshtax_observe::allowed_cores();
        Self {
            cpus: meshtax_observe::cpus(Path::new(SYSFS_CPUS), &allowed),
            quota: meshtax_observe::cpu_quota(),
        }
    }

    /// The CPUs to use, one for each physical core of the NUMA node that has most of them, ascending. A machine with a
    /// single core and siblings has nothing better than these.
    fn usable(&self) -> Vec<u32> {
        let mut nodes: BTreeMap<u32, BTreeMap<(u32, u32), u32>> = BTreeMap::new();
        for cpu in &self.cpus {
            let cores = nodes.entry(cpu.numa_node).or_default();
            let first = cores.entry(cpu.core).or_insert(cpu.number);
            *first = cpu.number.min(*first);
        }
        // Of equals, the node with the lowest number.
        let largest = nodes.values().rev().max_by_key(|cores| cores.len());
        let mut usable: Vec<u32> = match largest {
            Some(cores) if cores.len() > 1 => cores.values().copied().collect(),
            _ => self.cpus.iter().map(|cpu| cpu.number).collect(),
        };
        usable.sort_unstable();
        if let Some(quota) = self.quota {
            usable.truncate((quota as usize).max(1));
        }
        usable
    }
}

/// The client's node and `server_nodes` others, which share the machine 0 and the servers' cores.
///
/// One core: all share it. Two: the generator has one to itself. Three: each node has one. With more, the proxies of both
/// sides and the waypoint have cores of their own, one for each of `workers` where there are enough, and the application
/// has one; generator and application share what remains.
#[must_use]
pub fn nodes(capacity: &Capacity, workers: u32, server_nodes: u32) -> Vec<Node> {
    let cores = RoleCores::new(&capacity.usable(), workers as usize);
    let node = |name: String, role: NodeRole, cores: &[(ComponentRole, &Vec<u32>)]| Node {
        name,
        role,
        machine: 0,
        cores: cores
            .iter()
            .map(|(role, cores)| (*role, (*cores).clone()))
            .collect(),
    };
    // Services can be placed on the clients' node.
    let client = [
        (ComponentRole::Generator, &cores.generator),
        (ComponentRole::App, &cores.client_proxy),
        (ComponentRole::ClientProxy, &cores.client_proxy),
        (ComponentRole::ServerProxy, &cores.client_proxy),
        (ComponentRole::Gateway, &cores.client_proxy),
    ];
    let server = [
        (ComponentRole::App, &cores.app),
        (ComponentRole::ClientProxy, &cores.server_proxy),
        (ComponentRole::ServerProxy, &cores.server_proxy),
        (ComponentRole::Waypoint, &cores.waypoint),
    ];
    let servers = (1..=server_nodes.max(1))
        .map(|number| node(format!("server-{number}"), NodeRole::Server, &server));
    std::iter::once(node("client".into(), NodeRole::Client, &client))
        .chain(servers)
        .collect()
}

struct RoleCores {
    generator: Vec<u32>,
    client_proxy: Vec<u32>,
    server_proxy: Vec<u32>,
    app: Vec<u32>,
    waypoint: Vec<u32>,
}

impl RoleCores {
    fn new(usable: &[u32], workers: usize) -> Self {
        let on = |client: &[u32], server: &[u32], generator: u32| Self {
            generator: vec![generator],
            client_proxy: client.to_vec(),
            server_proxy: server.to_vec(),
            app: server.to_vec(),
            waypoint: server.to_vec(),
        };
        match usable {
            [] => on(&[0], &[0], 0),
            [only] => on(&[*only], &[*only], *only),
            [first, second] => on(&[*second], &[*second], *first),
            [first, second, third] => on(&[*second], &[*third], *first),
            [first, rest @ ..] => Self::separate(*first, rest, workers),
        }
    }

    /// `rest`: the cores without the generator's first one, at least three.
    fn separate(generator: u32, rest: &[u32], workers: usize) -> Self {
        let width = workers.clamp(1, rest.len() / 3);
        let mut rest = rest.iter().copied();
        let mut take = |count: usize| -> Vec<u32> { rest.by_ref().take(count).collect() };
        let (client_proxy, server_proxy, mut app) = (take(width), take(width), take(1));
        let own = take(width);
        let mut generator = vec![generator];
        for core in rest {
            match generator.len() <= app.len() {
                true if generator.len() < GENERATOR_CORES_MAX => generator.push(core),
                _ if app.len() < GENERATOR_CORES_MAX => app.push(core),
                _ => break,
            }
        }
        Self {
            generator,
            client_proxy,
            server_proxy,
            // The application has the least work of all.
            waypoint: if own.is_empty() { app.clone() } else { own },
            app,
        }
    }
}

/// All cores that nodes use on a machine, ascending: what is measured there.
#[must_use]
pub fn cores_in_use(nodes: &[Node]) -> Vec<u32> {
    let all = nodes.iter().flat_map(|node| node.cores.values()).flatten();
    let cores: BTreeSet<u32> = all.copied().collect();
    cores.into_iter().collect()
}

/// The core of the system under test whose speed is measured: the server proxy's.
#[must_use]
pub fn probed_core(nodes: &[Node]) -> Option<u32> {
    let servers = nodes.iter().filter(|node| node.role == NodeRole::Server);
    let cores = servers.flat_map(|node| node.cores_of(ComponentRole::ServerProxy));
    cores.copied().next()
}

/// The environment of a run on this machine, without its programs.
#[must_use]
pub fn environment(host: Host, nodes: Vec<Node>, rootless: bool) -> Environment {
    Environment {
        engine: "local".into(),
        machines: vec![host],
        nodes,
        kubernetes: None,
        cluster_run: None,
        rootless,
        meshtax: None,
        artifacts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use std::fmt::Write as _;
    use std::fs;

    /// A machine's CPUs, written to a directory as sysfs shows them: `(package, core_id, numa_node)` of each.
    fn machine(cpus: &[(u32, u32, u32)]) -> Vec<LogicalCpu> {
        let sysfs = tempfile::tempdir().unwrap();
        for (number, (package, core, numa)) in cpus.iter().enumerate() {
            let cpu = sysfs.path().join(format!("cpu{number}"));
            fs::create_dir_all(cpu.join("topology")).unwrap();
            fs::create_dir(cpu.join(format!("node{numa}"))).unwrap();
            let topology = |name: &str, value: &u32| {
                fs::write(cpu.join("topology").join(name), format!("{value}\n")).unwrap();
            };
            topology("physical_package_id", package);
            topology("core_id", core);
        }
        let numbers: Vec<u32> = (0..cpus.len() as u32).collect();
        meshtax_observe::cpus(sysfs.path(), &numbers)
    }

    fn cores(count: u32) -> Vec<LogicalCpu> {
        machine(&(0..count).map(|core| (0, core, 0)).collect::<Vec<_>>())
    }

    /// Linux numbers the first thread of every core before the second ones.
    fn with_siblings(cores: u32) -> Vec<LogicalCpu> {
        let all = (0..2).flat_map(|_| (0..cores).map(|core| (0, core, 0)));
        machine(&all.collect::<Vec<_>>())
    }

    /// 16 cores with siblings in each of two packages, each a NUMA node.
    fn two_numa_nodes() -> Vec<LogicalCpu> {
        let all = (0..2).flat_map(|_| (0..32).map(|core| (core / 16, core % 16, core / 16)));
        machine(&all.collect::<Vec<_>>())
    }

    fn row(name: &str, cpus: Vec<LogicalCpu>, quota: Option<f64>, workers: u32) -> String {
        let placed = nodes(&Capacity { cpus, quota }, workers, 1);
        let mut text = format!("{name}:");
        for (role, cores) in placed.iter().flat_map(|node| &node.cores) {
            let _ = write!(text, " {role:?} {cores:?}");
        }
        text
    }

    #[test]
    fn layouts_of_known_machines() {
        let allowed: Vec<LogicalCpu> = two_numa_nodes()
            .into_iter()
            .filter(|cpu| (14..20).contains(&cpu.number))
            .collect();
        let rows = [
            row("1 core", cores(1), None, 1),
            row("2 cores", cores(2), None, 1),
            row("1 core, SMT", with_siblings(1), None, 1),
            row("3 cores", cores(3), None, 1),
            row("4 cores", cores(4), None, 1),
            row("4 cores, 2 workers", cores(4), None, 2),
            row("4 cores, SMT", with_siblings(4), None, 1),
            row("8 cores", cores(8), None, 1),
            row("8 cores, SMT", with_siblings(8), None, 1),
            row("8 cores, SMT, 2 workers", with_siblings(8), None, 2),
            row("2 x 16 cores, SMT", two_numa_nodes(), None, 1),
            row("2 x 16 cores, SMT, 4 workers", two_numa_nodes(), None, 4),
            row("2 x 16 cores, SMT, CPUs 14-19 allowed", allowed, None, 1),
            row("2 x 16 cores, SMT, quota 2", two_numa_nodes(), Some(2.0), 1),
            row("8 cores, quota 0.5", cores(8), Some(0.5), 1),
        ];
        assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn no_two_roles_share_a_physical_core_where_there_are_enough() {
        let cpus = two_numa_nodes();
        let capacity = Capacity {
            cpus: cpus.clone(),
            quota: None,
        };
        let environment = environment(meshtax_observe::host(), nodes(&capacity, 2, 3), true);
        assert!(!environment.ends_share_cores() && !environment.generator_shares_core());
        let in_use = cores_in_use(&environment.nodes);
        let used = cpus.iter().filter(|cpu| in_use.contains(&cpu.number));
        let physical: BTreeSet<_> = used.clone().map(|cpu| cpu.core).collect();
        let numa: BTreeSet<_> = used.map(|cpu| cpu.numa_node).collect();
        assert_eq!((physical.len(), numa.len()), (in_use.len(), 1));
    }
}
