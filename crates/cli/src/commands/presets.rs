//! `meshtax presets`.

use crate::args::{PresetsAction, PresetsArgs};
use crate::exit::{Outcome, SUCCESS};
use crate::experiments::find_preset;
use crate::terminal;

pub(crate) fn presets(args: &PresetsArgs) -> Outcome {
    match &args.action {
        None => {
            for preset in meshtax_spec::presets() {
                terminal::print(&format!("{:<16} {}\n", preset.name, preset.summary));
            }
        }
        Some(PresetsAction::Show { name }) => terminal::print(find_preset(name)?.yaml),
    }
    Ok(SUCCESS)
}
