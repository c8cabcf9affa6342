//! Settings that differ between the plans, machines and programs of runs.

use meshtax_model::analysis::RunSide;
use meshtax_model::comparison::{ComparisonNote, Differing, ServiceSetting, Setting, SettingValue};
use meshtax_model::environment::Host;
use meshtax_model::event::Ending;
use meshtax_model::experiment::{Experiment, LoadPointId};
use meshtax_model::trial::TrialOutcome;

use crate::run_data::RunData;
use crate::sides::{Options, Runs, candidates, pairs};

/// Each setting that is not the same in all runs, machines first.
pub(crate) fn differing(runs: Runs<'_>) -> Vec<Differing> {
    let single = SETTINGS.iter();
    let single = single
        .filter_map(|(setting, value)| differs(setting.clone(), runs, |data| vec![value(data)]));
    let machines = MACHINE_SETTINGS.iter().filter_map(|(setting, value)| {
        differs(setting.clone(), runs, |data| {
            data.environment.machines.iter().map(value).collect()
        })
    });
    let layout = differs(Setting::CoreLayout, runs, |data| {
        let nodes = data.environment.nodes.iter();
        nodes.cloned().map(SettingValue::Node).collect()
    });
    let named = [programs, variants, load_points];
    let named = named.into_iter().flat_map(|values| by_name(runs, values));
    machines.chain(layout).chain(single).chain(named).collect()
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
    (Setting::ResponseBytes, |d| {
        SettingValue::Bytes(d.experiment.workload.response_bytes.into())
    }),
    (Setting::Connections, |d| {
        count(d.experiment.workload.connections)
    }),
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
/// baselines. The load generator is a part of meshtax.
pub(crate) fn prevents_comparison(setting: &Setting) -> bool {
    matches!(
        setting,
        Setting::MeshtaxVersion
            | Setting::Engine
            | Setting::Kernel
            | Setting::CoreLayout
            | Setting::Generator
    )
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

/// The programs, variants or load points of a run.
type ReadAll = fn(&RunData<'_>) -> Vec<(Setting, SettingValue)>;

fn programs(data: &RunData<'_>) -> Vec<(Setting, SettingValue)> {
    let all = data.environment.artifacts.iter();
    all.map(|artifact| {
        let setting = Setting::Program {
            data_plane: artifact.data_plane.clone(),
        };
        let value = SettingValue::Program {
            version: artifact.version.clone(),
            sha256: artifact.sha256.clone(),
        };
        (setting, value)
    })
    .collect()
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
fn values(
    side: &[RunData<'_>],
    read: impl Fn(&RunData<'_>) -> Vec<SettingValue>,
) -> Vec<SettingValue> {
    let mut values: Vec<SettingValue> = Vec::new();
    for value in side.iter().flat_map(read) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn differs(
    setting: Setting,
    runs: Runs<'_>,
    read: impl Fn(&RunData<'_>) -> Vec<SettingValue>,
) -> Option<Differing> {
    let mut all = runs.base.iter().chain(runs.new).map(&read);
    let first = all.next()?;
    if all.all(|other| other == first) {
        return None;
    }
    let (base, new) = (values(runs.base, &read), values(runs.new, &read));
    Some(Differing { setting, base, new })
}

fn by_name(runs: Runs<'_>, read: ReadAll) -> Vec<Differing> {
    let mut settings: Vec<Setting> = Vec::new();
    for data in runs.base.iter().chain(runs.new) {
        for (setting, _) in read(data) {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
    }
    let of_run = |data: &RunData<'_>, setting: &Setting| {
        let own = read(data).into_iter().find(|(other, _)| other == setting);
        own.map_or(SettingValue::Absent, |(_, value)| value)
    };
    settings
        .into_iter()
        .filter_map(|setting| differs(setting.clone(), runs, |data| vec![of_run(data, &setting)]))
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
        let incomplete = all.iter().filter(|data| {
            !matches!(
                data.run.ending,
                Some(Ending::TimeUsed | Ending::PrecisionReached)
            )
        });
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
