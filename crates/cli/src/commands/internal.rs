//! The parts of a run that are processes of their own.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use meshtax_agent::remote::{self, Agent, Token};
use meshtax_app::AppConfig;

use crate::args::InternalPart;
use crate::exit::{Failure, Outcome, SUCCESS, UNEXPECTED};

pub(crate) fn internal(part: InternalPart) -> Outcome {
    let failed = |e: &dyn std::fmt::Display| Failure::new(UNEXPECTED, e);
    match part {
        InternalPart::Lab => meshtax_local::lab_main().map_err(|e| failed(&e))?,
        InternalPart::Load => {
            meshtax_load::worker_main(io::stdin(), io::stdout()).map_err(|e| failed(&e))?;
        }
        InternalPart::App { config } => app(&config)?,
        InternalPart::Agent { port } => {
            let token = Token::of_environment().map_err(|e| failed(&e))?;
            let agent = Agent::listen(port).map_err(|e| failed(&e))?;
            agent.serve(&token, worker);
        }
        InternalPart::Container { name } => {
            remote::await_start(&name).map_err(|e| failed(&e))?;
        }
        InternalPart::LimitProxy { config } => {
            meshtax_limit_proxy::run(Path::new(&config)).map_err(|e| failed(&e))?;
        }
    }
    Ok(SUCCESS)
}

/// A worker of the load generator beside an agent.
fn worker() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("meshtax").args(["internal", "load"]);
    command
}

fn app(config: &str) -> Result<(), Failure> {
    let config: AppConfig =
        serde_json::from_str(config).map_err(|e| Failure::new(UNEXPECTED, e))?;
    // It runs until the lab ends it.
    meshtax_app::serve(&config, |_| {}, &AtomicBool::new(false))
        .map_err(|e| Failure::new(UNEXPECTED, e))
}
