//! `meshtax presets`.

use meshtax_spec::{preset, presets as all};

use crate::args::{PresetsAction, PresetsArgs};
use crate::exit::{Failure, Outcome, SUCCESS, USAGE};
use crate::terminal;

pub(crate) fn presets(args: &PresetsArgs) -> Outcome {
    match &args.action {
        None => {
            for preset in all() {
                terminal::print(&format!("{:<10} {}\n", preset.name, preset.summary));
            }
        }
        Some(PresetsAction::Show { name }) => terminal::print(find(name)?.yaml),
    }
    Ok(SUCCESS)
}

/// The preset of this name.
pub(crate) fn find(name: &str) -> Result<&'static meshtax_spec::Preset, Failure> {
    preset(name).ok_or_else(|| {
        let known: Vec<_> = all().iter().map(|p| p.name).collect();
        let message = format!("no preset is called {name:?}");
        Failure::with_fix(USAGE, message, &format!("use one of: {}", known.join(", ")))
    })
}
