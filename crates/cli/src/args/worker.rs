//! The arguments of load generators that work together.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use http::uri::Authority;
use meshtax_spec::ValueError;

use crate::exit::{Failure, USAGE};

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Distribute the load over several generators: a number of processes, or HOST:PORT,... of `meshtax worker`s.
    /// Connections and rate are totals
    #[arg(long, value_name = "N|HOST:PORT,...", value_parser = workers)]
    pub(crate) workers: Option<Workers>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SecretArgs {
    /// Secret shared by the workers and `meshtax load`
    #[arg(
        long = "worker-secret",
        env = "MESHTAX_WORKER_SECRET",
        hide_env_values = true,
        hide = true
    )]
    secret: Option<String>,
    /// File with the shared secret [default: MESHTAX_WORKER_SECRET]
    #[arg(long = "worker-secret-file", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl SecretArgs {
    /// The secret, if there is one.
    pub(crate) fn read(&self) -> Result<Option<String>, Failure> {
        let secret = match &self.file {
            None => self.secret.clone(),
            Some(path) => Some(std::fs::read_to_string(path).map_err(|e| {
                Failure::new(
                    USAGE,
                    format!("--worker-secret-file {}: {e}", path.display()),
                )
            })?),
        };
        let Some(secret) = secret.map(|s| s.trim().to_owned()) else {
            return Ok(None);
        };
        if secret.len() < 16 {
            return Err(Failure::with_fix(
                USAGE,
                "the shared secret has fewer than 16 characters",
                "start `meshtax worker` without a secret: it generates one",
            ));
        }
        Ok(Some(secret))
    }
}

/// The generators of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// This number of processes on this machine.
    Processes(u32),
    /// Workers at these addresses.
    At(Vec<String>),
}

fn workers(text: &str) -> Result<Workers, ValueError> {
    if let Ok(count) = text.parse() {
        return match count {
            1..=256 => Ok(Workers::Processes(count)),
            _ => Err(ValueError::new(
                format!("{count} processes are out of range"),
                "allowed: 1 to 256",
            )),
        };
    }
    let addresses: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    for address in &addresses {
        let port = address.parse::<Authority>().ok();
        if !matches!(port.and_then(|address| address.port_u16()), Some(1..)) {
            let problem = format!("`{address}` is not an address");
            return Err(ValueError::new(problem, "write it as HOST:PORT"));
        }
    }
    Ok(Workers::At(addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_processes_and_everything_else_addresses() {
        assert_eq!(workers("3"), Ok(Workers::Processes(3)));
        let at = Workers::At(vec!["a:1".into(), "[::1]:7070".into()]);
        assert_eq!(workers("a:1, [::1]:7070"), Ok(at));
        for bad in ["0", "257", "a", "a:", "a:0", "a:1,", "a:b"] {
            assert!(workers(bad).is_err(), "{bad}");
        }
    }
}
