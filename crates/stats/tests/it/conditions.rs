//! The conditions under which an interrupted run can be continued.

use std::collections::BTreeSet;

use meshtax_fixtures::environment::environment;
use meshtax_model::comparison::Setting;
use meshtax_model::environment::{Artifact, Environment, Host, OwnBuild};
use meshtax_model::experiment::VariantId;
use meshtax_stats::{Conditions, changed_conditions};

/// The fixtures' environment, with meshtax and a program of each of two variants.
fn conditions() -> Environment {
    let artifact = |variant: &str| Artifact {
        data_plane: variant.to_owned(),
        variants: vec![VariantId(variant.to_owned())],
        sha256: "aa".to_owned(),
        ..Artifact::default()
    };
    Environment {
        meshtax: Some(OwnBuild {
            sha256: "bb".to_owned(),
            image: None,
        }),
        pods: Vec::new(),
        artifacts: vec![artifact("measured"), artifact("excluded")],
        ..environment()
    }
}

/// The settings that this change makes differ.
fn changed_by(change: impl Fn(&mut Environment)) -> Vec<Setting> {
    let (before, mut now) = (conditions(), conditions());
    change(&mut now);
    let of = |environment| Conditions {
        meshtax_version: "1.0.0",
        environment,
    };
    let excluded = BTreeSet::from([VariantId("excluded".to_owned())]);
    let changed = changed_conditions(of(&before), of(&now), &excluded);
    changed.into_iter().map(|one| one.setting).collect()
}

#[test]
fn conditions_of_a_run_are_its_machine_layout_and_programs() {
    let program = |name: &str| Setting::Program {
        data_plane: name.to_owned(),
    };
    let machine = |change: fn(&mut Host)| changed_by(|now| change(&mut now.machines[0]));
    let kernel = machine(|host| host.kernel.push('1'));
    assert_eq!(kernel, [Setting::Kernel]);
    let layout = changed_by(|now| now.nodes.truncate(1));
    assert_eq!(layout, [Setting::CoreLayout]);
    let engine = changed_by(|now| now.engine.push('2'));
    assert_eq!(engine, [Setting::Engine]);
    let own = changed_by(|now| now.meshtax = Some(OwnBuild::default()));
    assert_eq!(own, [program("meshtax")]);
    let replaced = changed_by(|now| now.artifacts[0].sha256.push('c'));
    assert_eq!(replaced, [program("measured")]);
    let second = changed_by(|now| {
        let mut second = now.artifacts[0].clone();
        second.sha256.push('c');
        now.artifacts.push(second);
    });
    assert_eq!(second, [program("measured")]);
}

#[test]
fn restart_memory_and_programs_of_excluded_variants_are_no_conditions_of_a_run() {
    let changed = changed_by(|now| {
        now.machines[0].boot_id = Some("another".to_owned());
        now.machines[0].memory_bytes += 1;
        now.cluster_run = Some("another".to_owned());
        now.artifacts.truncate(1);
        now.artifacts[0].origin = "cache".to_owned();
    });
    assert_eq!(changed, []);
}
