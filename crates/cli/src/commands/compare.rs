//! `meshtax compare`: stored runs, one side against the other.

use std::path::PathBuf;

use meshtax_stats::RunData;
use meshtax_stats::between::{Common, NothingInCommon, Options, Runs};
use meshtax_store::RunOnDisk;

use crate::args::{CompareArgs, CompareFormat, RunsArgs};
use crate::exit::{Failure, Outcome, SUCCESS, USAGE};
use crate::runs::stored;
use crate::terminal;

pub(crate) fn compare(args: &CompareArgs) -> Outcome {
    let stored = Stored::read(&args.runs)?;
    let [base, new] = stored.data();
    let runs = Runs {
        base: &base,
        new: &new,
    };
    let comparison = meshtax_stats::between::compare(runs, &options(&args.runs))
        .map_err(|apart| apart_failure(&apart))?;
    terminal::print(&match args.format {
        CompareFormat::Terminal => {
            meshtax_report::comparison_terminal(&comparison, terminal::options())
        }
        CompareFormat::Html => meshtax_report::comparison_html(&comparison),
        CompareFormat::Markdown => meshtax_report::comparison_markdown(&comparison),
        CompareFormat::Json => meshtax_report::comparison_json(&comparison),
    });
    Ok(SUCCESS)
}

/// The stored runs of both sides.
pub(crate) struct Stored([Vec<RunOnDisk>; 2]);

impl Stored {
    pub(crate) fn read(args: &RunsArgs) -> Result<Self, Failure> {
        let [base, new] = args.sides();
        let read = |side: Vec<PathBuf>, name: &str| {
            if side.is_empty() {
                let message = format!("no run is given for {name}");
                let fix =
                    "name two directories, BASE and NEW; add more with --base DIR and --new DIR";
                return Err(Failure::with_fix(USAGE, message, fix));
            }
            let runs = side.iter().map(|path| stored::read(path));
            runs.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self([read(base, "BASE")?, read(new, "NEW")?]))
    }

    pub(crate) fn data(&self) -> [Vec<RunData<'_>>; 2] {
        self.0
            .each_ref()
            .map(|side| side.iter().map(stored::data).collect())
    }
}

pub(crate) fn options(args: &RunsArgs) -> Options {
    Options {
        between: args.between,
        pairs: args.pair.clone(),
    }
}

/// Names what each side has.
pub(crate) fn apart_failure(apart: &NothingInCommon) -> Failure {
    let list = |all: &[String]| match all {
        [] => "none but its baselines".to_owned(),
        all => all.join(", "),
    };
    let message = format!(
        "these runs have no {} in common\n  BASE has: {}\n  NEW has: {}",
        apart.what,
        list(&apart.base),
        list(&apart.new)
    );
    let fix = match apart.what {
        Common::Variant => {
            "name matching variants with --pair A=B, or compare runs of one experiment"
        }
        _ => "compare runs of one experiment",
    };
    Failure::with_fix(USAGE, message, fix)
}
