//! Experiments and topologies, from files and from what ships with meshtax.

use std::fs;
use std::path::Path;

use meshtax_model::experiment::Experiment;
use meshtax_spec::{Lengths, Preset, TopologySpec, ValueError};

use crate::exit::{Failure, SPEC_INVALID, USAGE};
use crate::terminal;

/// The text of a spec, and its name in errors.
pub(crate) struct SpecText {
    pub(crate) name: String,
    text: String,
}

impl SpecText {
    pub(crate) fn of_file(path: &Path, fix: &str) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|e| {
            let message = format!("cannot read the spec {}: {e}", path.display());
            Failure::with_fix(SPEC_INVALID, message, fix)
        })?;
        let name = path.display().to_string();
        Ok(Self { name, text })
    }

    pub(crate) fn of_preset(preset: &Preset) -> Self {
        Self {
            name: preset.name.to_owned(),
            text: preset.yaml.to_owned(),
        }
    }

    /// The experiment of the spec.
    pub(crate) fn experiment(&self) -> Result<Experiment, Failure> {
        let experiment = meshtax_spec::parse(&self.name, &self.text)
            .map_err(|e| Failure::new(SPEC_INVALID, e))?;
        self.check(&experiment)?;
        Ok(experiment)
    }

    /// The experiments of the spec, one for each of its topologies.
    pub(crate) fn experiments(&self, lengths: Lengths) -> Result<Vec<Experiment>, Failure> {
        let all = meshtax_spec::parse_all(&self.name, &self.text, lengths)
            .map_err(|e| Failure::new(SPEC_INVALID, e))?;
        for experiment in &all {
            self.check(experiment)?;
        }
        Ok(all)
    }

    /// What the grammar of specs cannot know.
    fn check(&self, experiment: &Experiment) -> Result<(), Failure> {
        self.expect_known_study(experiment)?;
        let Some(settings) = &experiment.kubernetes else {
            return Ok(());
        };
        meshtax_kube::check_settings(settings).map_err(|error| {
            let steps = error.path.iter().map(String::as_str);
            let path: Vec<&str> = std::iter::once("kubernetes").chain(steps).collect();
            let value = ValueError::new(error.problem.clone(), error.fix.clone());
            let placed = meshtax_spec::error_at(&self.name, &self.text, &path, value);
            Failure::new(SPEC_INVALID, placed)
        })
    }

    fn expect_known_study(&self, experiment: &Experiment) -> Result<(), Failure> {
        match &experiment.study {
            Some(study) if meshtax_published::find(study).is_none() => {
                let message = format!("{}: `study`: no published result `{study}`", self.name);
                let fix = "name one of `meshtax published`, or omit the key";
                Err(Failure::with_fix(SPEC_INVALID, message, fix))
            }
            _ => Ok(()),
        }
    }
}

/// The preset of this name.
pub(crate) fn find_preset(name: &str) -> Result<&'static Preset, Failure> {
    meshtax_spec::preset(name).ok_or_else(|| {
        let known: Vec<_> = meshtax_spec::presets().iter().map(|p| p.name).collect();
        Failure::unknown_name("preset", name, &known)
    })
}

/// The experiment of a preset.
pub(crate) fn preset(name: &str) -> Result<Experiment, Failure> {
    SpecText::of_preset(find_preset(name)?).experiment()
}

/// A topology by its name, or from a file. Features of the file that are not supported are reported.
pub(crate) fn topology(name: &str) -> Result<TopologySpec, Failure> {
    let path = Path::new(name);
    let is_file = path.extension().is_some() || name.contains('/');
    if !is_file {
        return meshtax_spec::named_topology(name)
            .map_err(|e| Failure::with_fix(USAGE, e.problem, e.fix));
    }
    let text = fs::read_to_string(path).map_err(|e| {
        let message = format!("cannot read the topology {name}: {e}");
        let fix = "name a YAML file of services, or one of `meshtax topologies`";
        Failure::with_fix(SPEC_INVALID, message, fix)
    })?;
    let topology =
        meshtax_spec::topology(name, &text).map_err(|e| Failure::new(SPEC_INVALID, e))?;
    for feature in &topology.unsupported {
        terminal::say(&format!("{name}: not supported and ignored: {feature}"));
    }
    Ok(topology)
}
