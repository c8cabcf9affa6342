//! meshtax: what a service mesh costs your traffic, what it provides, and how certain that is.
//!
//! Only this crate prints and exits. Results go to standard output, everything else to standard error.

mod args;
mod commands;
mod exit;
mod experiments;
mod interrupt;
mod progress;
mod random;
mod runs;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => match &args.resume {
            Some(run) => commands::resume::resume(&args, run),
            None => commands::run::run(&args),
        },
        Command::Calibrate(args) => commands::calibrate::calibrate(args),
        Command::Report(args) => commands::report::report(&args),
        Command::Compare(args) => commands::compare::compare(&args),
        Command::Gate(args) => commands::gate::gate(*args),
        Command::Advise(args) => commands::advise::advise(&args),
        Command::Load(args) => commands::load::load(&args),
        Command::Worker(args) => commands::worker::worker(&args),
        Command::Serve(args) => commands::serve::serve(&args),
        Command::Presets(args) => commands::presets::presets(&args),
        Command::Scale(args) => commands::scale::scale(&args),
        Command::Topologies(args) => commands::topologies::topologies(&args),
        Command::Dataplanes(args) => commands::dataplanes::dataplanes(&args),
        Command::Image(args) => commands::image::image(&args),
        Command::Published(args) => commands::published::published(&args),
        Command::Mesh(args) => commands::mesh::mesh(&args),
        Command::Doctor(args) => Ok(commands::doctor::doctor(&args)),
        Command::Cleanup(args) => commands::cleanup::cleanup(&args),
        Command::Internal { part } => commands::internal::internal(part),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            terminal::say(&format!("error: {failure}"));
            ExitCode::from(failure.code)
        }
    }
}
