//! Whether the process may open as many sockets as are asked for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::LoadError;

/// Descriptors in addition to the sockets and those already open: epoll, and a few that the
/// caller may open meanwhile.
const SPARE: u64 = 8;

/// Raises the soft limit if the hard one allows it and it is needed.
pub(crate) fn allow_connections(connections: u32) -> Result<(), LoadError> {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if let Some(raised) = plan(connections, open_files(), soft, hard)? {
        let new = Rlimit {
            current: Some(raised),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, new).map_err(LoadError::system("setrlimit(NOFILE)"))?;
    }
    Ok(())
}

/// `Ok(Some(n))`: the soft limit must be raised to n.
fn plan(connections: u32, open: u64, soft: u64, hard: u64) -> Result<Option<u64>, LoadError> {
    let others = open + SPARE;
    let needed = u64::from(connections) + others;
    if needed <= soft {
        return Ok(None);
    }
    if needed <= hard {
        return Ok(Some(hard));
    }
    Err(LoadError::OpenFiles {
        connections,
        needed,
        soft,
        hard,
        most: hard.saturating_sub(others),
    })
}

fn open_files() -> u64 {
    // Without /proc a usual number is assumed; a wrong guess shows as a connect error.
    std::fs::read_dir("/proc/self/fd").map_or(16, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_only_when_needed() {
        assert_eq!(plan(100, 10, 256, 4096).unwrap(), None);
        assert_eq!(plan(1000, 10, 256, 4096).unwrap(), Some(4096));
    }

    #[test]
    fn too_many_connections_name_the_limit_and_the_fix() {
        let text = plan(10_000, 10, 256, 256).unwrap_err().to_string();
        assert!(text.contains("the limit is 256"), "{text}");
        assert!(text.contains("ulimit -n 10018"), "{text}");
        assert!(text.contains("at most 238 connections"), "{text}");
    }
}
