//! What others publish, as people see it. A change here is a change of the product.

use meshtax_published::{find, meshes, results};
use meshtax_report::TerminalOptions;

fn at(width: usize) -> TerminalOptions {
    TerminalOptions {
        width,
        color: false,
    }
}

#[test]
fn list_of_results_matches_snapshot() {
    insta::assert_snapshot!(meshtax_report::published_list_terminal(results(), at(100)));
}

#[test]
fn result_sets_match_snapshots() {
    for name in [
        "livewyer-ingress",
        "pods-vegeta",
        "teastore-users",
        "linkerd-bench-2021-05",
        "istio-docs-latency",
    ] {
        let text = meshtax_report::published_terminal(find(name).unwrap(), at(100));
        insta::assert_snapshot!(format!("published_{name}"), text);
    }
}

#[test]
fn table_of_meshes_matches_snapshot() {
    insta::assert_snapshot!(meshtax_report::meshes_terminal(meshes(), at(100)));
}

#[test]
fn facts_of_one_mesh_match_snapshot() {
    let linkerd = meshes().mesh("linkerd").unwrap();
    insta::assert_snapshot!(meshtax_report::mesh_terminal(meshes(), linkerd, at(100)));
}

/// Lines may be longer only where a single word, an address, is.
#[test]
fn published_data_fits_the_terminal_width() {
    for width in [60, 80, 100, 140] {
        let mut texts = vec![
            meshtax_report::published_list_terminal(results(), at(width)),
            meshtax_report::meshes_terminal(meshes(), at(width)),
        ];
        texts.extend(
            results()
                .iter()
                .map(|set| meshtax_report::published_terminal(set, at(width))),
        );
        let facts = meshes().meshes.iter();
        texts.extend(facts.map(|mesh| meshtax_report::mesh_terminal(meshes(), mesh, at(width))));
        for line in texts.iter().flat_map(|text| text.lines()) {
            let is_address = line.trim_start().starts_with("https://");
            assert!(
                is_address || line.chars().count() <= width,
                "{width}: {line}"
            );
        }
    }
}

#[test]
fn environment_and_caveats_come_before_the_figures() {
    for set in results() {
        let text = meshtax_report::published_terminal(set, at(100));
        let place = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("{}: {what}", set.name))
        };
        assert!(place("where") < place("Before you read"), "{}", set.name);
        assert!(
            place("Before you read") < place("\nFigures"),
            "{}",
            set.name
        );
    }
}

#[test]
fn published_documents_have_a_format_version() {
    let set = find("livewyer-pod").unwrap();
    let cilium = meshes().mesh("cilium").unwrap();
    for text in [
        meshtax_report::published_list_json(results()),
        meshtax_report::published_json(set),
        meshtax_report::meshes_json(meshes()),
        meshtax_report::mesh_json(meshes(), cilium),
    ] {
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            json["format_version"],
            meshtax_model::FORMAT_VERSION,
            "{text}"
        );
    }
    let json = meshtax_report::published_json(set);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let p99 = &json["result"]["rows"][0]["figures"][4];
    assert_eq!(
        (&p99["published"], &p99["value"]),
        (&"0.3872".into(), &387_200_000.0.into())
    );
    assert_eq!(json["base_units"][4], "ns");
    assert_eq!(json["result"]["variants"][0]["data_plane"], "none");
    let json = meshtax_report::mesh_json(meshes(), cilium);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["facts"][0]["feature"], "observability");
    assert_eq!(json["facts"][0]["fact"]["answer"], "yes");
}
