//! Clients outside the mesh, who come in through its gateway.

use meshtax_model::experiment::{Experiment, Ingress, Protocol, Variant};
use meshtax_model::graph::Graph;

use crate::KnownDataPlane;
use crate::error::Problem;
use crate::fields::word;
use crate::tree::Node;
use crate::value::ValueError;

/// The key in a workload, for all load points, and in a load point.
pub(crate) const KEY: &str = "ingress";

/// What is written in a spec.
const WORDS: [(&str, Option<Ingress>); 3] = [
    ("none", None),
    ("plaintext", Some(Ingress::Plaintext)),
    ("tls", Some(Ingress::Tls)),
];

/// How clients come to the service; `None`: from a pod of the mesh.
pub(crate) fn read(node: &Node) -> Result<Option<Ingress>, Problem> {
    word(node, KEY, &WORDS)
}

/// What is written on a command line: as in a spec, but not `none`.
///
/// # Errors
/// If it is another word.
pub fn ingress(text: &str) -> Result<Ingress, ValueError> {
    let found = WORDS.iter().find(|(word, _)| *word == text);
    found
        .and_then(|(_, ingress)| *ingress)
        .ok_or_else(|| ValueError {
            problem: format!("`{text}` is not what clients speak with a gateway"),
            fix: "allowed: plaintext or tls".to_owned(),
        })
}

/// Lets the clients of all load points come in through the gateway.
///
/// # Errors
/// If a variant has no gateway, or a load point speaks what gateways do not take.
pub fn enter_by_gateway(
    experiment: &mut Experiment,
    ingress: Ingress,
    known: &[KnownDataPlane],
) -> Result<(), ValueError> {
    for point in &mut experiment.load_points {
        point.ingress = Some(ingress);
    }
    fits(experiment, known)
}

/// Whether the rest of an experiment goes with the gateways of its load points.
pub(crate) fn fits(experiment: &Experiment, known: &[KnownDataPlane]) -> Result<(), ValueError> {
    if !experiment.has_ingress() {
        return Ok(());
    }
    let cannot = |variant: &&Variant| {
        let plane = known.iter().find(|k| k.name == variant.data_plane);
        plane.is_some_and(|plane| !plane.has_gateway)
    };
    if let Some(variant) = experiment.variants.iter().find(cannot) {
        let able = known.iter().filter(|k| k.has_gateway);
        let able: Vec<&str> = able.map(|k| k.name.as_str()).collect();
        return Err(ValueError {
            problem: format!(
                "the data plane `{}` has no gateway here for clients outside the mesh",
                variant.data_plane
            ),
            fix: format!("gateways stand on {} so far", able.join(", ")),
        });
    }
    if experiment.service.program.is_some() {
        return Err(ValueError {
            problem: "gateways lead to meshtax's own application only, and not to `server`"
                .to_owned(),
            fix: "leave `ingress` out, or `server`".to_owned(),
        });
    }
    let mut points = experiment.load_points.iter();
    let other = points.find(|point| {
        let usual = point.protocol == Protocol::Http1 && point.response_bytes.is_none();
        point.ingress.is_some() && !usual
    });
    if let Some(point) = other {
        return Err(ValueError {
            problem: format!(
                "the load point `{}` asks for another protocol or size of answers than gateways carry here",
                point.id
            ),
            fix: "by ingress leave `protocol` and `response` out; `workload: {response: 16 KiB}` holds for all"
                .to_owned(),
        });
    }
    leads_to_one(experiment)?;
    crate::service::room_for_all(experiment)
}

/// Gateways lead to one service; which of several a client outside means, they do not look at.
pub(crate) fn leads_to_one(experiment: &Experiment) -> Result<(), ValueError> {
    let graph = experiment.service.graph.as_ref();
    let called = graph.map_or(1, Graph::called);
    if called == 1 || !experiment.has_ingress() {
        return Ok(());
    }
    Err(ValueError {
        problem: format!(
            "gateways lead to one service here, and clients of this topology call {called}"
        ),
        fix:
            "leave `ingress` out, or take a topology of which clients call one service, as chain-3"
                .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use crate::presets::tests::known;

    fn read(text: &str) -> Result<meshtax_model::experiment::Experiment, String> {
        parse("mine.yaml", text, &known()).map_err(|e| e.to_string())
    }

    const VARIANT: &str = "variants: [{data-plane: limit-mtls}]\n";

    #[test]
    fn a_workload_says_it_for_all_load_points_and_a_load_point_for_itself() {
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
    fn what_gateways_do_not_carry_is_refused_with_the_fix() {
        let without = |data_plane: &str| format!("variants: [{{data-plane: {data_plane}}}]\n");
        let cases = [
            format!(
                "{}workload: {{ingress: tls}}\n",
                without("ztunnel, level: l4")
            ),
            format!("{VARIANT}load: [{{saturated: {{ingress: tls, protocol: http2}}}}]\n"),
            format!("{VARIANT}load: [{{saturated: {{ingress: tls, response: 9 B}}}}]\n"),
            format!("{VARIANT}load: [{{saturated: {{ingress: https}}}}]\n"),
            format!(
                "{VARIANT}workload: {{ingress: tls}}\nservice: {{server: {{command: [x], port: 9}}}}\n"
            ),
        ];
        let told: Vec<String> = cases
            .iter()
            .map(|case| read(case).expect_err(case))
            .collect();
        insta::assert_snapshot!(told.join("\n\n"));
    }
}
