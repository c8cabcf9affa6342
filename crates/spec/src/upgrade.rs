//! Two builds of one data plane as the two sides of an experiment.

use meshtax_model::catalogue::{DataPlane, Program};
use meshtax_model::experiment::{
    Experiment, Inject, PolicyLevel, ProgramBuild, Protocol, Regime, Role, Variant,
};

use crate::grammar::ValueError;
use crate::sides::{SideError, Sides, interleave};
use crate::variants::candidate;

/// What is compared, and under which load. `None`: as the experiment has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Upgrade {
    /// The data plane of both sides.
    pub data_plane: &'static DataPlane,
    /// Which of its programs differs; `None`: its only one.
    pub program: Option<Program>,
    /// The build of side A.
    pub from: ProgramBuild,
    /// The build of side B.
    pub to: ProgramBuild,
    /// The level of both; `None`: `mtls`, or the data plane's first.
    pub level: Option<PolicyLevel>,
    /// The protocol of all load points.
    pub protocol: Option<Protocol>,
    /// The rate of steady load points, in requests per second.
    pub rate_per_s: Option<f64>,
    /// The size of responses, in bytes.
    pub response_bytes: Option<u32>,
    /// A known cost of side B, to see that it is found.
    pub inject: Option<Inject>,
}

/// Why an upgrade cannot be measured.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UpgradeError {
    /// The data plane, its program or its level.
    #[error("{}\n  fix: {}", .0.problem, .0.fix)]
    Invalid(ValueError),
    /// The sides cannot be combined.
    #[error(transparent)]
    Sides(#[from] SideError),
}

/// The experiment with the two builds as its only candidates, `a.NAME` and `b.NAME`.
///
/// # Errors
/// If the data plane has no such program or level.
pub fn upgrade(experiment: &Experiment, of: &Upgrade) -> Result<Sides, UpgradeError> {
    let level = level(of).map_err(UpgradeError::Invalid)?;
    let program = program(of).map_err(UpgradeError::Invalid)?;
    let side = |build: &ProgramBuild, inject: Option<Inject>| {
        let mut side = under_load(experiment, of);
        let variant = Variant {
            builds: [(program, build.clone())].into(),
            inject,
            ..candidate(of.data_plane, Some(level))
        };
        side.variants.retain(|v| v.role != Role::Candidate);
        side.variants.push(variant);
        side
    };
    Ok(interleave(
        &side(&of.from, None),
        &side(&of.to, of.inject),
        &[],
    )?)
}

fn under_load(experiment: &Experiment, of: &Upgrade) -> Experiment {
    let mut all = experiment.clone();
    if let Some(bytes) = of.response_bytes {
        all.workload.response_bytes = bytes;
    }
    for point in &mut all.load_points {
        if let Some(protocol) = of.protocol {
            point.protocol = protocol;
        }
        if let (Some(rate), Regime::Steady { rate_per_s, .. }) = (of.rate_per_s, &mut point.load) {
            *rate_per_s = rate;
        }
    }
    all
}

fn level(of: &Upgrade) -> Result<PolicyLevel, ValueError> {
    let plane = of.data_plane;
    let default = || {
        let usual = plane
            .levels
            .iter()
            .find(|level| **level == PolicyLevel::Mtls);
        usual.or(plane.levels.first()).copied()
    };
    match of.level {
        Some(level) if plane.levels.contains(&level) => Ok(level),
        Some(level) => Err(ValueError::new(
            format!("the data plane `{}` has no level `{level}`", plane.name),
            "`meshtax dataplanes` lists the levels of each",
        )),
        None => default().ok_or_else(|| {
            ValueError::new(
                format!("`{}` has no versions to compare", plane.name),
                "name a data plane with programs of its own, such as envoy-sidecar",
            )
        }),
    }
}

fn program(of: &Upgrade) -> Result<Program, ValueError> {
    let plane = of.data_plane;
    let programs: Vec<Program> = plane.foreign_programs().collect();
    match (of.program, &programs[..]) {
        (Some(named), all) if all.contains(&named) => Ok(named),
        (None, [only]) => Ok(*only),
        (_, []) => Err(ValueError::new(
            format!("`{}` is built in: it has no versions", plane.name),
            "name a data plane with programs of its own, such as envoy-sidecar",
        )),
        (_, all) => {
            let names: Vec<&str> = all.iter().map(|program| program.name()).collect();
            Err(ValueError::new(
                format!("`{}` runs {}", plane.name, names.join(" and ")),
                "name which of them differs with --program",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use meshtax_model::catalogue;
    use meshtax_model::experiment::VariantId;

    use super::*;

    fn of(data_plane: &str) -> Upgrade {
        let version = |text: &str| ProgramBuild::Version(text.to_owned());
        Upgrade {
            data_plane: catalogue::find(data_plane).unwrap(),
            program: None,
            from: version("1.36.4"),
            to: version("1.37.0"),
            level: None,
            protocol: Some(Protocol::Http2),
            rate_per_s: Some(200.0),
            response_bytes: None,
            inject: None,
        }
    }

    fn preset() -> Experiment {
        let preset = crate::preset(crate::UPGRADE).unwrap();
        crate::parse(preset.name, preset.yaml).unwrap()
    }

    #[test]
    fn both_builds_are_variants_of_one_experiment() {
        let sides = upgrade(&preset(), &of("envoy-sidecar")).unwrap();
        let ids: Vec<&str> = sides
            .experiment
            .variants
            .iter()
            .map(|v| v.id.0.as_str())
            .collect();
        let [a, b] = ["a.envoy-sidecar-mtls", "b.envoy-sidecar-mtls"];
        assert_eq!(ids, ["none", "none-again", a, b]);
        let pair = (Some(VariantId(a.into())), VariantId(b.into()));
        assert_eq!(sides.pairs, [pair]);
        let build = |at: usize| sides.experiment.variants[at].builds[&Program::Envoy].to_string();
        assert_eq!((build(2), build(3)), ("1.36.4".into(), "1.37.0".into()));
        let points = &sides.experiment.load_points;
        assert!(points.iter().all(|point| point.protocol == Protocol::Http2));
    }

    #[test]
    fn data_plane_without_versions_or_with_several_programs_is_rejected_with_a_fix() {
        for (data_plane, expected) in [
            ("none", "no versions"),
            ("limit-mtls", "built in"),
            ("ztunnel-waypoint", "--program"),
        ] {
            let error = upgrade(&preset(), &of(data_plane)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
