//! Short experiments.

use std::path::Path;

use crate::support::envoy;

/// A spec of these variants (`data-plane level id`), load points and design.
pub(crate) fn spec(name: &str, variants: &[String], load: &str, design: &str) -> String {
    let variants: String = variants.iter().map(|v| format!("  - {v}\n")).collect();
    format!(
        "name: {name}\nworkload: {{response: 1 KiB, connections: 8}}\nvariants:\n{variants}\
         load:\n{load}design: {{{design}}}\n"
    )
}

pub(crate) const SATURATED: &str = "  - saturated: {}\n";
pub(crate) const BOTH: &str = "  - steady: {rate: 500}\n  - saturated: {}\n";

/// One variant as a line of a spec.
pub(crate) fn variant(data_plane: &str, level: &str, id: &str) -> String {
    format!("{{data-plane: {data_plane}, level: {level}, id: {id}}}")
}

/// The ids of the candidates of [`candidates`].
pub(crate) fn candidate_ids() -> Vec<&'static str> {
    let mut ids = vec!["limit-mtls"];
    if envoy().is_some() {
        ids.extend(["envoy-sidecar-mtls", "envoy-sidecar-l7"]);
    }
    ids
}

/// The candidates of the preset `quick` whose programs are available.
pub(crate) fn candidates() -> Vec<String> {
    candidate_ids()
        .into_iter()
        .map(|id| {
            let (data_plane, level) = match id {
                "envoy-sidecar-l7" => ("envoy-sidecar", "l7"),
                "envoy-sidecar-mtls" => ("envoy-sidecar", "mtls"),
                _ => ("limit-mtls", "mtls"),
            };
            variant(data_plane, level, id)
        })
        .collect()
}

/// `run SPEC --out OUT`, offline, with the tests' Envoy if there is one.
pub(crate) fn run_arguments<'a>(spec: &'a Path, out: &'a Path) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().expect("a path in UTF-8");
    let mut arguments = vec!["run", text(spec), "--out", text(out), "--offline"];
    if let Some(envoy) = envoy() {
        arguments.extend(["--envoy", text(envoy)]);
    }
    arguments
}
