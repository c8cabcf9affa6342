//! Do the intervals of this crate hold what they claim? Simulations and replays, with fixed seeds.
//!
//! ```text
//! cargo run --release -p meshtax-stats --example coverage            bench: synthetic, then replay
//! cargo run --release -p meshtax-stats --example coverage synthetic  whole experiments on a made-up machine
//! cargo run --release -p meshtax-stats --example coverage replay     real trials of identical servers, relabelled
//! cargo run --release -p meshtax-stats --example coverage choices    the simulations behind single choices
//! cargo run --release -p meshtax-stats --example coverage pool RUN   a run directory's trials, as the replay reads them
//! ```
//!
//! After `synthetic` or `replay`, a part of a setting's name measures only such settings.
//! The bench exits with 1 if a requirement is not met. Its figures are quoted in `docs/method.md`,
//! those of the choices in the modules that they are about.

#![expect(clippy::print_stdout, reason = "a program for a person to run")]
#![expect(clippy::print_stderr, reason = "a program for a person to run")]

mod bench;
mod choices;
mod noise;
mod pool;
mod records;
mod replay;
mod score;
mod setting;
mod synthetic;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match words.as_slice() {
        [] => {
            let synthetic = bench::synthetic("");
            bench::replay("") && synthetic
        }
        ["synthetic"] => bench::synthetic(""),
        ["synthetic", name] => bench::synthetic(name),
        ["replay"] => bench::replay(""),
        ["replay", name] => bench::replay(name),
        ["choices"] => {
            choices::all();
            true
        }
        ["pool", run] => match pool::from_run(Path::new(run)) {
            Ok(text) => {
                print!("{text}");
                true
            }
            Err(why) => {
                eprintln!("{run}: {why}");
                false
            }
        },
        _ => {
            eprintln!("parts: synthetic, replay, choices, pool RUN; none of them is the bench");
            return ExitCode::from(2);
        }
    };
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
