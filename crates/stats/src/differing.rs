//! Settings that differ between the plans, machines and programs of runs.

use std::collections::BTreeSet;

use meshtax_model::analysis::RunSide;
use meshtax_model::comparison::{ComparisonNote, Differing, ServiceSetting, Setting, SettingValue};
use meshtax_model::environment::{Artifact, Environment, Host};
use meshtax_model::event::Ending;
use meshtax_model::experiment::{Experiment, LoadPoint, LoadPointId, VariantId};
use meshtax_model::trial::TrialOutcome;

use crate::run_data::RunData;
use crate::sides::{Options, Runs, candidates, pairs};

/// Each setting that is not the same in all runs, machines first.
pub(crate) fn differing(runs: Runs<'_>) -> Vec<Differing> {
    let sides = [runs.base, runs.new];
    let single = SETTINGS.iter();
    let single = single
        .filter_map(|(setting, value)| differs(setting.clone(), sides, |data| vec![value(data)]));
    let machines = MACHINE_SETTINGS.iter().filter_map(|(setting, value)| {
        differs(setting.clone(), sides, |data| {
            of_machines(data.environment, value)
        })
    });
    let layout = differs(Setting::CoreLayout, sides, |data| layout(data.environment));
    let named = [programs, variants, load_points];
    let named = named.into_iter().flat_map(|values| by_name(sides, values));
    machines.chain(layout).chain(single).chain(named).collect()
}

/// Where and with what a run was measured, or is to be.
#[derive(Clone, Copy, Debug)]
pub struct Conditions<'a> {
    /// meshtax's version.
    pub meshtax_version: &'a str,
    /// The engine, the machines and the programs.
    pub environment: &'a Environment,
}

/// Each condition of a run that no longer holds, so that further trials would not be comparable with the recorded ones.
/// Programs count if a variant other than `excluded` runs them.
#[must_use]
pub fn changed_conditions(
    before: Conditions<'_>,
    now: Conditions<'_>,
    excluded: &BTreeSet<VariantId>,
) -> Vec<Differing> {
    let sides: Sides<'_, Conditions<'_>> = [&[before], &[now]];
    let machines = MACHINE_SETTINGS.iter();
    // How much memory the kernel leaves differs from boot to boot.
    let machines = machines.filter(|(setting, _)| *setting != Setting::MainMemory);
    let machines = machines.filter_map(|(setting, value)| {
        differs(setting.clone(), sides, |now| {
            of_machines(now.environment, value)
        })
    });
    let layout = differs(Setting::CoreLayout, sides, |now| layout(now.environment));
    let single: [(Setting, ReadCondition); 3] = [
        (Setting::MeshtaxVersion, |c| text(c.meshtax_version)),
        (Setting::Engine, |c| text(&c.environment.engine)),
        (Setting::Rootless, |c| {
            SettingValue::Flag(c.environment.rootless)
        }),
    ];
    let single = single
        .into_iter()
        .filter_map(|(setting, value)| differs(setting, sides, |now| vec![value(now)]));
    let programs = by_name(sides, |now| programs_in_use(now, excluded));
    machines
        .chain(layout)
        .chain(single)
        .chain(programs)
        .collect()
}

type ReadCondition = fn(&Conditions<'_>) -> SettingValue;

/// meshtax itself, and what the variants run.
fn programs_in_use(
    conditions: &Conditions<'_>,
    excluded: &BTreeSet<VariantId>,
) -> Vec<(Setting, SettingValue)> {
    let environment = conditions.environment;
    let own = environment.meshtax.iter().map(|own| {
        let setting = Setting::Program {
            data_plane: "meshtax".to_owned(),
        };
        let value = SettingValue::Program {
            version: conditions.meshtax_version.to_owned(),
            sha256: own.sha256.clone(),
        };
        (setting, value)
    });
    let artifacts = environment.artifacts.iter();
    let in_use = artifacts.filter(|artifact| {
        let mut variants = artifact.variants.iter();
        variants.any(|variant| !excluded.contains(variant))
    });
    own.chain(in_use.map(program)).collect()
}

/// What is compared: BASE's and NEW's.
type Sides<'a, T> = [&'a [T]; 2];

fn of_machines(environment: &Environment, value: &ReadMachine) -> Vec<SettingValue> {
    environment.machines.iter().map(value).collect()
}

fn layout(environment: &Environment) -> Vec<SettingValue> {
    let nodes = environment.nodes.iter();
    nodes.cloned().map(SettingValue::Node).collect()
}

type Read = fn(&RunData<'_>) -> SettingValue;

type ReadMachine = fn(&Host) -> SettingValue;

/// Settings of each machine of a run.
const MACHINE_SETTINGS: &[(Setting, ReadMachine)] = &[
    (Setting::Processor, |host| text(&host.cpu_model)),
    (Setting::Cores, |host| count(host.cores)),
    (Setting::MainMemory, |host| {
        SettingValue::Bytes(host.memory_bytes)
    }),
    (Setting::Kernel, |host| text(&host.kernel)),
    (Setting::ClockSource, |host| text(&host.clock_source)),
    (Setting::VirtualMachine, |host| {
        SettingValue::Flag(host.virtual_machine)
    }),
];

const SETTINGS: &[(Setting, Read)] = &[
    (Setting::MeshtaxVersion, |d| text(&d.run.meshtax_version)),
    (Setting::Engine, |d| text(&d.environment.engine)),
    (Setting::Rootless, |d| {
        SettingValue::Flag(d.environment.rootless)
    }),
    (Setting::Generator, generator),
    (Setting::Experiment, |d| text(&d.experiment.name)),
    (Setting::Service, service),
    (Setting::ApplicationWork, application_work),
    (Setting::Placement, |d| text(d.experiment.placement.word())),
    (Setting::PodSettings, pod_settings),
    (Setting::ResponseBytes, |d| {
        SettingValue::Bytes(d.experiment.workload.response_bytes.into())
    }),
    (Setting::Connections, |d| {
        count(d.experiment.workload.connections)
    }),
    (Setting::Clients, |d| count(d.experiment.workload.clients)),
    (Setting::ProxyWorkers, |d| {
        text(&d.experiment.workers.to_string())
    }),
    (Setting::TrialLength, |d| {
        SettingValue::DurationNs(d.experiment.design.trial_ns)
    }),
    (Setting::WarmUp, |d| {
        SettingValue::DurationNs(d.experiment.design.warmup_ns)
    }),
    (Setting::TimeLimit, |d| {
        SettingValue::DurationNs(d.experiment.design.time_limit_ns)
    }),
];

/// The settings that must be equal for a gate: what they do to an overhead does not cancel between a variant and its
/// baselines. The load generator is a part of meshtax. Of load points, those count that are compared.
pub(crate) fn prevents_comparison(one: &Differing) -> bool {
    match one.setting {
        Setting::MeshtaxVersion
        | Setting::Engine
        | Setting::Kernel
        | Setting::CoreLayout
        | Setting::Generator
        | Setting::Service
        | Setting::ApplicationWork
        | Setting::Placement
        | Setting::PodSettings
        | Setting::ResponseBytes
        | Setting::Connections
        | Setting::Clients
        | Setting::ProxyWorkers => true,
        Setting::LoadPoint { .. } => is_another_load(one),
        _ => false,
    }
}

/// Whether a load point with the same id is another load. One that only one side has, or that is steady on one side and
/// saturated on the other, is not compared.
fn is_another_load(one: &Differing) -> bool {
    let points = |side: &[SettingValue]| -> Vec<LoadPoint> {
        let points = side.iter().filter_map(|value| match value {
            SettingValue::LoadPoint(point) => Some(point.clone()),
            _ => None,
        });
        points.collect()
    };
    let [base, new] = [&one.base, &one.new].map(|side| points(side));
    let of_both = |regime: bool| {
        let of = |side: &[LoadPoint]| -> Vec<LoadPoint> {
            let points = side.iter().filter(|point| point.is_steady() == regime);
            points.cloned().collect()
        };
        let (base, new) = (of(&base), of(&new));
        let is_paired = !base.is_empty() && !new.is_empty();
        let first = base.first().cloned();
        is_paired
            && base
                .iter()
                .chain(&new)
                .any(|point| Some(point) != first.as_ref())
    };
    of_both(true) || of_both(false)
}

/// Of the first trial: the same machine gives the same to all of them.
fn generator(data: &RunData<'_>) -> SettingValue {
    let mut loads = data
        .trials
        .iter()
        .filter_map(|record| match &record.outcome {
            TrialOutcome::Measured { load, .. } => Some(load),
            TrialOutcome::Failed { .. } => None,
        });
    loads
        .next()
        .map_or(SettingValue::Absent, |load| SettingValue::Generator {
            socket_io: load.socket_io.clone(),
            congestion_control: load.congestion_control.clone(),
        })
}

fn text(text: &str) -> SettingValue {
    SettingValue::Text(text.to_owned())
}

fn count(count: impl Into<u64>) -> SettingValue {
    SettingValue::Count(count.into())
}

/// The first entry point, and the topology that it belongs to.
fn service(data: &RunData<'_>) -> SettingValue {
    let topology = &data.experiment.topology;
    let Some(service) = topology.entry_points().next() else {
        return SettingValue::Absent;
    };
    let services = u32::try_from(topology.services.len()).unwrap_or(u32::MAX);
    let name = topology.name.clone();
    SettingValue::Service(ServiceSetting {
        topology: name.map(|name| (name, services)),
        replicas: service.replicas,
        nodes: service.nodes,
        address: service.address,
        program: service.program.clone(),
    })
}

/// Steps over all services of a calibrated application, which each run chooses anew.
fn application_work(data: &RunData<'_>) -> SettingValue {
    let services = data.experiment.topology.services.iter();
    match data.experiment.saturation {
        Some(_) => count(services.map(|service| service.work.burn_steps).sum::<u64>()),
        None => SettingValue::Absent,
    }
}

fn pod_settings(data: &RunData<'_>) -> SettingValue {
    let settings = data.experiment.kubernetes.clone();
    settings.map_or(SettingValue::Absent, |settings| {
        SettingValue::Pods(Box::new(settings))
    })
}

fn programs(data: &RunData<'_>) -> Vec<(Setting, SettingValue)> {
    data.environment.artifacts.iter().map(program).collect()
}

fn program(artifact: &Artifact) -> (Setting, SettingValue) {
    let setting = Setting::Program {
        data_plane: artifact.data_plane.clone(),
    };
    let value = SettingValue::Program {
        version: artifact.version.clone(),
        sha256: artifact.sha256.clone(),
    };
    (setting, value)
}

fn variants(data: &RunData<'_>) -> Vec<(Setting, SettingValue)> {
    let all = data.experiment.variants.iter();
    all.map(|variant| {
        let id = variant.id.clone();
        let value = SettingValue::Variant(variant.clone());
        (Setting::Variant { variant: id }, value)
    })
    .collect()
}

fn load_points(data: &RunData<'_>) -> Vec<(Setting, SettingValue)> {
    let all = data.experiment.load_points.iter();
    all.map(|point| {
        let load_point = point.id.clone();
        let value = SettingValue::LoadPoint(point.clone());
        (Setting::LoadPoint { load_point }, value)
    })
    .collect()
}

/// The values of a side's runs, without repeats.
fn values<T>(side: &[T], read: impl Fn(&T) -> Vec<SettingValue>) -> Vec<SettingValue> {
    let mut values: Vec<SettingValue> = Vec::new();
    for value in side.iter().flat_map(read) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn differs<T>(
    setting: Setting,
    sides: Sides<'_, T>,
    read: impl Fn(&T) -> Vec<SettingValue>,
) -> Option<Differing> {
    let mut all = sides.into_iter().flatten().map(&read);
    let first = all.next()?;
    if all.all(|other| other == first) {
        return None;
    }
    let [base, new] = sides.map(|side| values(side, &read));
    Some(Differing { setting, base, new })
}

/// Settings that a side may have several of: programs, variants or load points.
fn by_name<T>(
    sides: Sides<'_, T>,
    read: impl Fn(&T) -> Vec<(Setting, SettingValue)>,
) -> Vec<Differing> {
    let mut settings: Vec<Setting> = Vec::new();
    for one in sides.into_iter().flatten() {
        for (setting, _) in read(one) {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
    }
    // Several builds of a data plane, or the programs of one that runs several, have the same name.
    let named = |one: &T, setting: &Setting| {
        let own = read(one).into_iter().filter(|(other, _)| other == setting);
        let own: Vec<SettingValue> = own.map(|(_, value)| value).collect();
        match own.is_empty() {
            true => vec![SettingValue::Absent],
            false => own,
        }
    };
    settings
        .into_iter()
        .filter_map(|setting| differs(setting.clone(), sides, |one| named(one, &setting)))
        .collect()
}

/// Variants and load points of one side only, incomplete runs, and runs that are on both sides.
pub(crate) fn notes(runs: Runs<'_>, options: &Options) -> Vec<ComparisonNote> {
    let mut notes = Vec::new();
    for data in runs.base {
        if runs.new.iter().any(|other| other.run.id == data.run.id) {
            let run = data.run.id.clone();
            notes.push(ComparisonNote::SameRun { run });
        }
    }
    if let (Some(base), Some(new)) = (runs.base.first(), runs.new.first()) {
        notes.extend(unpaired(base.experiment, new.experiment, options));
        if base.run.seed == new.run.seed && base.run.id != new.run.id {
            let seed = base.run.seed;
            notes.push(ComparisonNote::SameSeed { seed });
        }
    }
    for (side, all) in [(RunSide::Base, runs.base), (RunSide::New, runs.new)] {
        let is_complete = |data: &&RunData<'_>| {
            let ending = data.run.ending.as_ref();
            ending.is_some_and(Ending::is_complete)
        };
        let incomplete = all.iter().filter(|data| !is_complete(data));
        notes.extend(incomplete.map(|data| ComparisonNote::IncompleteRun {
            side,
            run: data.run.id.clone(),
            ending: data.run.ending.clone(),
        }));
    }
    notes
}

fn unpaired(base: &Experiment, new: &Experiment, options: &Options) -> Vec<ComparisonNote> {
    let pairs = pairs(base, new, options);
    let mut notes = Vec::new();
    let of_base = candidates(base).filter(|v| !pairs.iter().any(|(one, _)| one.id == v.id));
    let of_new = candidates(new).filter(|v| !pairs.iter().any(|(_, two)| two.id == v.id));
    let of_base: Vec<_> = of_base.map(|v| v.id.clone()).collect();
    let of_new: Vec<_> = of_new.map(|v| v.id.clone()).collect();
    for (side, variants) in [(RunSide::Base, of_base), (RunSide::New, of_new)] {
        if !variants.is_empty() {
            notes.push(ComparisonNote::UnpairedVariants { side, variants });
        }
    }
    for (side, own, other) in [(RunSide::Base, base, new), (RunSide::New, new, base)] {
        let load_points = only_in(own, other);
        if !load_points.is_empty() {
            notes.push(ComparisonNote::UnpairedLoadPoints { side, load_points });
        }
    }
    notes
}

fn only_in(own: &Experiment, other: &Experiment) -> Vec<LoadPointId> {
    let missing = own.load_points.iter().filter(|point| {
        let same = other.load_point(&point.id);
        same.is_none_or(|same| same.is_steady() != point.is_steady())
    });
    missing.map(|point| point.id.clone()).collect()
}
