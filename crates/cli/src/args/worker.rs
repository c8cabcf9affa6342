//! Load generators that work together.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::exit::{Failure, USAGE};

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Where to listen for loads
    #[arg(long, default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Let several generators offer the load together: a number of processes, or HOST:PORT,... of
    /// `meshtax worker`s. Connections and rate are of all together
    #[arg(long, value_name = "N|HOST:PORT,...", value_parser = workers)]
    pub(crate) workers: Option<Workers>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SecretArgs {
    /// What the workers and their user know, and nobody else
    #[arg(
        long = "worker-secret",
        env = "MESHTAX_WORKER_SECRET",
        hide_env_values = true,
        hide = true
    )]
    secret: Option<String>,
    /// File with the secret of the workers [default: MESHTAX_WORKER_SECRET]
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
                "the workers' secret is shorter than 16 characters",
                "let `meshtax worker` make one: start it without a secret",
            ));
        }
        Ok(Some(secret))
    }
}

/// Who offers the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Workers {
    /// So many processes of this machine.
    Processes(u32),
    /// Workers at these addresses.
    At(Vec<String>),
}

fn workers(text: &str) -> Result<Workers, String> {
    if let Ok(count) = text.parse() {
        return match count {
            1..=256 => Ok(Workers::Processes(count)),
            _ => Err("use 1 to 256 processes".into()),
        };
    }
    let addresses: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    for address in &addresses {
        let port = address
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            return Err(format!("`{address}` is no HOST:PORT"));
        }
    }
    Ok(Workers::At(addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_processes_and_all_else_addresses() {
        assert_eq!(workers("3"), Ok(Workers::Processes(3)));
        let at = Workers::At(vec!["a:1".into(), "[::1]:7070".into()]);
        assert_eq!(workers("a:1, [::1]:7070"), Ok(at));
        for bad in ["0", "257", "a", "a:", "a:0", "a:1,", "a:b"] {
            assert!(workers(bad).is_err(), "{bad}");
        }
    }
}
