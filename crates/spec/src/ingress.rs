//! Ingress: clients outside the mesh, whose requests enter through a gateway.

use meshtax_model::catalogue::{self, DATA_PLANES};
use meshtax_model::experiment::{Experiment, Ingress, Protocol, Variant};

use crate::grammar::ValueError;
use crate::yaml::{Node, Problem, keyword};

/// The key, of a workload for all its load points, and of a load point.
pub(crate) const KEY: &str = "ingress";

const WORDS: [(&str, Option<Ingress>); 3] = [
    ("none", None),
    ("plaintext", Some(Ingress::Plaintext)),
    ("tls", Some(Ingress::Tls)),
];

/// How clients reach the service; `None`: from a pod of the mesh.
pub(crate) fn read(node: &Node) -> Result<Option<Ingress>, Problem> {
    keyword(node, KEY, &WORDS)
}

/// The protocol between clients outside the mesh and the gateway: `plaintext` or `tls`.
///
/// # Errors
/// If it is neither.
pub fn ingress(text: &str) -> Result<Ingress, ValueError> {
    let found = WORDS.iter().find(|(word, _)| *word == text);
    found
        .and_then(|(_, ingress)| *ingress)
        .ok_or_else(|| ValueError::not(text, "an ingress protocol", "allowed: plaintext or tls"))
}

/// Routes the requests of all load points through the gateway.
///
/// # Errors
/// If a variant has no gateway, or a load point uses a protocol that gateways do not accept.
pub fn route_through_gateway(
    experiment: &mut Experiment,
    ingress: Ingress,
) -> Result<(), ValueError> {
    for point in &mut experiment.load_points {
        point.ingress = Some(ingress);
    }
    validate(experiment)
}

/// Rejects an experiment that gateways do not support.
pub(crate) fn validate(experiment: &Experiment) -> Result<(), ValueError> {
    if !experiment.has_ingress() {
        return Ok(());
    }
    if experiment.workload.clients > 1 {
        return Err(ValueError::new(
            format!(
                "there are {} clients, and clients outside the mesh have no proxies of their own",
                experiment.workload.clients
            ),
            "omit `clients`, or `ingress`",
        ));
    }
    let lacks_gateway = |variant: &&Variant| {
        catalogue::find(&variant.data_plane).is_some_and(|plane| !plane.gateway)
    };
    if let Some(variant) = experiment.variants.iter().find(lacks_gateway) {
        let able = DATA_PLANES.iter().filter(|plane| plane.gateway);
        let able: Vec<&str> = able.map(|plane| plane.name).collect();
        return Err(ValueError::new(
            format!(
                "the data plane `{}` has no gateway for clients outside the mesh yet",
                variant.data_plane
            ),
            format!("these have one: {}", able.join(", ")),
        ));
    }
    if experiment.topology.program().is_some() {
        return Err(ValueError::new(
            "gateways route to meshtax's own application only, not to `server`",
            "omit `ingress`, or `server`",
        ));
    }
    let mut points = experiment.load_points.iter();
    let other = points.find(|point| {
        let usual = point.protocol == Protocol::Http1 && point.response_bytes.is_none();
        point.ingress.is_some() && !usual
    });
    if let Some(point) = other {
        return Err(ValueError::new(
            format!(
                "the load point `{}` has a protocol or a response size that gateways do not support yet",
                point.id
            ),
            "with `ingress`, omit `protocol` and `response`; `workload: {response: 16 KiB}` applies to all load points",
        ));
    }
    routes_to_one_service(experiment)?;
    crate::service::room_for_all(experiment)
}

/// Gateways route to one service: they do not select by host or path.
pub(crate) fn routes_to_one_service(experiment: &Experiment) -> Result<(), ValueError> {
    let called = experiment.topology.entry_point_count();
    if called == 1 || !experiment.has_ingress() {
        return Ok(());
    }
    Err(ValueError::new(
        format!("gateways route to one service, and clients of this topology call {called}"),
        "omit `ingress`, or use a topology whose clients call one service, such as chain-3",
    ))
}

#[cfg(test)]
mod tests {
    use meshtax_model::experiment::Experiment;

    use crate::error::SpecError;

    fn read(text: &str) -> Result<Experiment, SpecError> {
        crate::parse("mine.yaml", text)
    }

    const VARIANT: &str = "variants: [{data-plane: limit-mtls}]\n";

    #[test]
    fn a_load_point_overrides_the_ingress_of_the_workload() {
        use super::Ingress::{Plaintext, Tls};
        let text = format!(
            "{VARIANT}workload: {{ingress: tls}}\nload:\n  - steady: {{rate: 100}}\n  \
             - steady: {{rate: 100, ingress: none}}\n  - saturated: {{ingress: plaintext}}\n"
        );
        let points = read(&text).unwrap().load_points;
        let seen: Vec<_> = points
            .iter()
            .map(|p| (p.id.0.as_str(), p.ingress))
            .collect();
        let expected = [
            ("steady", Some(Tls)),
            ("steady-from-pod", None),
            ("saturated-ingress", Some(Plaintext)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn unsupported_ingress_is_rejected_with_the_fix() {
        let without = |data_plane: &str| format!("variants: [{{data-plane: {data_plane}}}]\n");
        let cases = [
            format!(
                "{}workload: {{ingress: tls}}\n",
                without("ztunnel-dedicated, level: l4")
            ),
            format!("{VARIANT}load: [{{saturated: {{ingress: tls, protocol: http2}}}}]\n"),
            format!("{VARIANT}load: [{{saturated: {{ingress: tls, response: 9 B}}}}]\n"),
            format!("{VARIANT}load: [{{saturated: {{ingress: https}}}}]\n"),
            format!(
                "{VARIANT}workload: {{ingress: tls}}\nservice: {{server: {{command: [x], port: 9}}}}\n"
            ),
        ];
        let errors: Vec<String> = cases
            .iter()
            .map(|case| read(case).expect_err(case).to_string())
            .collect();
        insta::assert_snapshot!(errors.join("\n\n"));
    }
}
