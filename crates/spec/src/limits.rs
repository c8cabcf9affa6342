//! Limits of a variant's proxies on CPU and memory.

use std::collections::BTreeMap;

use meshtax_model::catalogue::DataPlane;
use meshtax_model::pods::{ProxyRole, Quantities};

use crate::grammar::{ValueError, cpu_millis, memory_bytes, one_of};
use crate::yaml::{Fields, Node, Problem};

/// The key of a variant.
pub(crate) const KEY: &str = "limits";

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const KEYS: [&str; 2] = [CPU, MEMORY];

const EXAMPLE: &str =
    "`limits: {cpu: 500m, memory: 256Mi}` or `limits: {waypoint: {cpu: 2, memory: 1Gi}}`";

/// The kernel grants at least 1 ms of each period of 100 ms.
const MIN_CPU_MILLIS: u64 = 10;

/// The limits of a variant by the role of its proxies; empty: it has none.
pub(crate) fn read(
    variant: &Fields<'_>,
    data_plane: &DataPlane,
) -> Result<BTreeMap<ProxyRole, Quantities>, Problem> {
    let Some(node) = variant.get(KEY) else {
        return Ok(BTreeMap::new());
    };
    let roles = roles_of(data_plane);
    if roles.is_empty() {
        let problem = format!("`{}` has no proxy to limit", data_plane.name);
        return Err(Problem::new(node.at, problem, "remove `limits`"));
    }
    let is_of_all = KEYS.iter().any(|key| node.entry(key).is_some());
    if is_of_all {
        let of_all = quantities(node, "`limits` of all proxies")?;
        return Ok(roles.into_iter().map(|role| (role, of_all)).collect());
    }
    let known: Vec<&'static str> = roles.iter().map(|role| role.key()).chain(KEYS).collect();
    let fields = Fields::of(node, "`limits`", &known, EXAMPLE)?;
    let given = roles
        .iter()
        .filter_map(|role| Some((*role, fields.get(role.key())?)));
    let limits: BTreeMap<ProxyRole, Quantities> = given
        .map(|(role, node)| Ok((role, quantities(node, "the limits of a role")?)))
        .collect::<Result<_, Problem>>()?;
    match limits.is_empty() {
        true => Err(nothing(node)),
        false => Ok(limits),
    }
}

/// The places at which a data plane has proxies.
fn roles_of(data_plane: &DataPlane) -> Vec<ProxyRole> {
    let has = |role: &ProxyRole| match role {
        ProxyRole::ClientProxy | ProxyRole::ServerProxy => data_plane.placement.is_some(),
        ProxyRole::Waypoint => data_plane.has_waypoint(),
    };
    ProxyRole::ALL.into_iter().filter(has).collect()
}

fn quantities(node: &Node, what: &'static str) -> Result<Quantities, Problem> {
    let fields = Fields::of(node, what, &KEYS, EXAMPLE)?;
    let quantities = Quantities {
        cpu_millis: fields.optional(CPU, enough_cpu)?,
        memory_bytes: fields.optional(MEMORY, memory_bytes)?,
    };
    match quantities == Quantities::default() {
        true => Err(nothing(node)),
        false => Ok(quantities),
    }
}

fn nothing(node: &Node) -> Problem {
    let fix = format!("give {}, as in {EXAMPLE}", one_of(KEYS));
    Problem::new(node.at, "`limits` limits nothing", fix)
}

fn enough_cpu(text: &str) -> Result<u64, ValueError> {
    let millis = cpu_millis(text)?;
    match millis < MIN_CPU_MILLIS {
        true => Err(ValueError::out_of_range(text, "10m to 1024, as in 500m")),
        false => Ok(millis),
    }
}

/// `+cpu-500m-memory-256Mi`, with the role where it is not all of them: `+waypoint-cpu-2`.
pub(crate) fn in_an_id(limits: &BTreeMap<ProxyRole, Quantities>, data_plane: &DataPlane) -> String {
    let mut each = limits.values();
    let first = each.next();
    let is_of_all = limits.len() == roles_of(data_plane).len();
    match first.filter(|first| is_of_all && each.all(|other| other == *first)) {
        Some(of_all) => format!("+{}", quantities_in_an_id(of_all)),
        None => limits
            .iter()
            .map(|(role, of_role)| format!("+{}-{}", role.key(), quantities_in_an_id(of_role)))
            .collect(),
    }
}

fn quantities_in_an_id(quantities: &Quantities) -> String {
    let cpu = quantities.cpu_millis.map(|millis| match millis % 1000 {
        0 => format!("cpu-{}", millis / 1000),
        _ => format!("cpu-{millis}m"),
    });
    let memory = quantities.memory_bytes.map(|bytes| {
        let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")].into_iter();
        let mut whole = units.filter(|(shift, _)| bytes % (1 << shift) == 0);
        match whole.next() {
            Some((shift, unit)) => format!("memory-{}{unit}", bytes >> shift),
            None => format!("memory-{bytes}"),
        }
    });
    let all: Vec<String> = cpu.into_iter().chain(memory).collect();
    all.join("-")
}

#[cfg(test)]
mod tests {
    use crate::parse;

    fn limited(limits: &str, data_plane: &str) -> meshtax_model::experiment::Variant {
        let spec = format!("variants: [{{data-plane: {data_plane}, limits: {limits}}}]\n");
        let experiment = parse("spec.yaml", &spec).unwrap();
        experiment.variants.last().unwrap().clone()
    }

    #[test]
    fn limits_of_all_proxies_are_those_of_each_role() {
        let variant = limited("{cpu: 500m, memory: 256Mi}", "limit-mtls");
        let roles: Vec<&str> = variant.limits.keys().map(|role| role.key()).collect();
        assert_eq!(roles, ["client-proxy", "server-proxy"]);
        for limits in variant.limits.values() {
            assert_eq!(limits.cpu_millis, Some(500));
            assert_eq!(limits.memory_bytes, Some(256 << 20));
        }
        assert_eq!(variant.id.0, "limit-mtls+cpu-500m-memory-256Mi");
        assert!(!variant.is_plain());
    }

    #[test]
    fn id_names_the_role_where_not_all_proxies_are_limited_alike() {
        let waypoint = limited("{waypoint: {cpu: 2, memory: 1Gi}}", "ztunnel-waypoint");
        assert_eq!(waypoint.limits.len(), 1);
        assert_eq!(waypoint.id.0, "ztunnel-waypoint+waypoint-cpu-2-memory-1Gi");
        let sides = limited(
            "{client-proxy: {cpu: 1}, server-proxy: {memory: 100000}}",
            "limit-mtls",
        );
        assert_eq!(
            sides.id.0,
            "limit-mtls+client-proxy-cpu-1+server-proxy-memory-100000"
        );
    }
}
