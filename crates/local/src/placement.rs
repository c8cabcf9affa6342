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
        let mut nodes: BTreeMap<u32, BTreeMap<u32, u32>> = BTreeMap::new();
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
        pods: Vec::new(),
        artifacts: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use std::fmt::Write as _;
    use std::fs;

    /// The CPUs of a machine whose topology was recorded, read from a sysfs tree that is written as the kernel shows it.
    /// Each line of a record: number, package, core, SMT siblings, NUMA node.
    fn recorded(machine: &str) -> Vec<LogicalCpu> {
        let sysfs = tempfile::tempdir().unwrap();
        let mut numbers = Vec::new();
        for line in machine.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [number, package, core, siblings, numa] = fields[..] else {
                panic!("not five fields: {line}")
            };
            let cpu = sysfs.path().join(format!("cpu{number}"));
            let topology = |name: &str, value: &str| {
                fs::write(cpu.join("topology").join(name), format!("{value}\n")).unwrap();
            };
            fs::create_dir_all(cpu.join("topology")).unwrap();
            fs::create_dir(cpu.join(format!("node{numa}"))).unwrap();
            topology("physical_package_id", package);
            topology("core_id", core);
            topology("thread_siblings_list", siblings);
            numbers.push(number.parse().unwrap());
        }
        meshtax_observe::cpus(sysfs.path(), &numbers)
    }

    /// Cores without siblings, of one package.
    fn cores(count: u32) -> Vec<LogicalCpu> {
        let lines = (0..count).map(|core| format!("{core} 0 {core} {core} 0\n"));
        recorded(&lines.collect::<String>())
    }

    const VIRTUALBOX: &str = include_str!("placement/recorded/virtualbox-2");
    const I5_M560: &str = include_str!("placement/recorded/core-i5-m560-2-smt");
    const I7_1165G7: &str = include_str!("placement/recorded/core-i7-1165g7-4-smt");
    const POWER7: &str = include_str!("placement/recorded/power7-16-smt4");
    const XEON_X7550: &str = include_str!("placement/recorded/xeon-x7550-32-smt-3-nodes");
    const EPYC_7451: &str = include_str!("placement/recorded/epyc-7451-48-smt-8-nodes");

    fn row(name: &str, cpus: Vec<LogicalCpu>, quota: Option<f64>, workers: u32) -> String {
        let placed = nodes(&Capacity { cpus, quota }, workers, 1);
        let mut text = format!("{name}:");
        for (role, cores) in placed.iter().flat_map(|node| &node.cores) {
            let _ = write!(text, " {role:?} {cores:?}");
        }
        text
    }

    #[test]
    fn layouts_of_recorded_machines() {
        let allowed: Vec<LogicalCpu> = recorded(XEON_X7550)
            .into_iter()
            .filter(|cpu| (28..36).contains(&cpu.number))
            .collect();
        let rows = [
            row("1 core", cores(1), None, 1),
            row("VirtualBox, 2 cores", recorded(VIRTUALBOX), None, 1),
            row("Core i5 M560, 2 cores, SMT", recorded(I5_M560), None, 1),
            row("3 cores", cores(3), None, 1),
            row("4 cores", cores(4), None, 1),
            row("4 cores, 2 workers", cores(4), None, 2),
            row("Core i7-1165G7, 4 cores, SMT", recorded(I7_1165G7), None, 1),
            row("8 cores", cores(8), None, 1),
            row(
                "POWER7, 16 cores, 4 threads each",
                recorded(POWER7),
                None,
                1,
            ),
            row("the same, 4 workers", recorded(POWER7), None, 4),
            row(
                "Xeon X7550, 32 cores, SMT, 3 nodes",
                recorded(XEON_X7550),
                None,
                1,
            ),
            row("the same, 4 workers", recorded(XEON_X7550), None, 4),
            row("the same, CPUs 28-35 allowed", allowed, None, 1),
            row("the same, quota 2", recorded(XEON_X7550), Some(2.0), 1),
            row(
                "EPYC 7451, 48 cores, SMT, 8 nodes",
                recorded(EPYC_7451),
                None,
                1,
            ),
            row("8 cores, quota 0.5", cores(8), Some(0.5), 1),
        ];
        assert_snapshot!(rows.join("\n"));
    }

    #[test]
    fn no_two_roles_share_a_physical_core_where_there_are_enough() {
        for machine in [POWER7, XEON_X7550, EPYC_7451] {
            let cpus = recorded(machine);
            let capacity = Capacity {
                cpus: cpus.clone(),
                quota: None,
            };
            let environment = environment(meshtax_observe::host(), nodes(&capacity, 1, 3), true);
            assert!(!environment.ends_share_cores() && !environment.generator_shares_core());
            let in_use = cores_in_use(&environment.nodes);
            let used = cpus.iter().filter(|cpu| in_use.contains(&cpu.number));
            let physical: BTreeSet<_> = used.clone().map(|cpu| cpu.core).collect();
            let numa: BTreeSet<_> = used.map(|cpu| cpu.numa_node).collect();
            assert_eq!((physical.len(), numa.len()), (in_use.len(), 1));
        }
    }
}
