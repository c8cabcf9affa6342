//! What a machine may refuse, and what its owner can do.

use std::fs;
use std::io::ErrorKind;

use meshtax_engine::EngineError;
use nix::errno::Errno;

use crate::cgroups::LimitError;
use crate::protocol::LabStep;
use crate::sandbox::SandboxError;

/// No namespaces could be made.
pub(crate) fn no_namespaces(error: &SandboxError) -> EngineError {
    let kind = if error.user_namespace {
        "user namespaces"
    } else {
        "namespaces"
    };
    let what = format!(
        "the lab needs {kind}, and this machine refuses them: cannot {}: {}",
        error.step,
        error.errno.desc()
    );
    EngineError::Missing {
        what,
        fix: namespace_fix(error),
    }
}

fn namespace_fix(error: &SandboxError) -> String {
    if let Some(limit) = exhausted_limit()
        && error.errno != Errno::EPERM
    {
        return format!("{limit} is 0: `sudo sysctl {limit}=65536`, or run as root");
    }
    match error.errno {
        Errno::ENOSPC | Errno::EUSERS => {
            "a limit on namespaces is reached: see `sysctl user` and raise the \
            user.max_*_namespaces that are low, or run as root"
                .into()
        }
        Errno::EPERM | Errno::EACCES | Errno::ENOSYS => forbidden_fix(),
        _ => "see user_namespaces(7); as root no user namespace is needed".into(),
    }
}

/// The limits on namespaces that are zero, as visible here.
fn exhausted_limit() -> Option<&'static str> {
    [
        (
            "user.max_user_namespaces",
            "/proc/sys/user/max_user_namespaces",
        ),
        (
            "user.max_net_namespaces",
            "/proc/sys/user/max_net_namespaces",
        ),
        (
            "user.max_pid_namespaces",
            "/proc/sys/user/max_pid_namespaces",
        ),
        (
            "user.max_mnt_namespaces",
            "/proc/sys/user/max_mnt_namespaces",
        ),
        (
            "user.max_ipc_namespaces",
            "/proc/sys/user/max_ipc_namespaces",
        ),
    ]
    .into_iter()
    .find(|(_, path)| setting(path).as_deref() == Some("0"))
    .map(|(name, _)| name)
}

fn forbidden_fix() -> String {
    if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "`sudo sysctl kernel.unprivileged_userns_clone=1`, or run as root".into();
    }
    if let Some(fix) = apparmor_fix() {
        return fix;
    }
    "a seccomp filter or a container forbids them: outside the container run meshtax on the machine itself, \
     or start the container with `--privileged` (Docker: at least \
     `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined`)"
        .into()
}

fn apparmor_fix() -> Option<String> {
    let path = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    (setting(path).as_deref() == Some("1")).then(|| {
        "AppArmor removes the privileges in user namespaces (Ubuntu 24.04 and later): \
         `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
            .into()
    })
}

/// The lab was made, and something inside it was refused.
pub(crate) fn refused_inside(step: LabStep, cause: &str, not_permitted: bool) -> EngineError {
    let fix = if step == LabStep::MountProc {
        "this /proc is masked, as in containers: run outside the container, or start it with \
         `--security-opt systempaths=unconfined` (Docker) or `procMount: Unmasked` (Kubernetes)"
            .into()
    } else if not_permitted {
        apparmor_fix().unwrap_or_else(forbidden_fix)
    } else {
        "the kernel may lack a feature: `meshtax doctor` shows which".into()
    };
    EngineError::Missing {
        what: format!("the lab cannot {step}: {cause}"),
        fix,
    }
}

/// The limits of a variant's proxies cannot be enforced.
pub(crate) fn no_limits(error: &LimitError) -> EngineError {
    let fix = match error {
        LimitError::NoController(_) => {
            "mount it, or remove `limits` from the variants: other variants need no cgroups"
        }
        LimitError::Refused { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied => {
                "run as root, or in a cgroup that is delegated to you with the controllers cpu and memory \
                 (`systemd-run --user --scope meshtax run ...`), or remove `limits` from the variants"
            }
            ErrorKind::ReadOnlyFilesystem => {
                "/sys/fs/cgroup is read-only, as in containers: run outside the container, or start it with `--privileged`"
            }
            ErrorKind::ResourceBusy => {
                "a cgroup with processes has no controllers for its children: start meshtax in a cgroup of its own \
                 (`systemd-run --scope meshtax run ...`), or remove `limits` from the variants"
            }
            ErrorKind::InvalidInput => {
                "the cgroup that meshtax runs in may allow less: lower the variant's limits, or raise those of that cgroup"
            }
            _ => {
                "see cgroups(7), or remove `limits` from the variants: other variants need no cgroups"
            }
        },
    };
    EngineError::Missing {
        what: format!(
            "`limits` need a cgroup for each proxy, and this machine refuses it: {error}"
        ),
        fix: fix.to_owned(),
    }
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn cgroup_that_has_processes_is_told_apart_with_a_fix_of_its_own() {
        let refused = |source: io::Error| {
            let path = PathBuf::from("/sys/fs/cgroup/cgroup.subtree_control");
            let action = "write to";
            no_limits(&LimitError::Refused {
                action,
                path,
                source,
            })
            .to_string()
        };
        let busy = refused(io::Error::from_raw_os_error(libc::EBUSY));
        assert!(busy.contains("systemd-run --scope"), "{busy}");
        let other = refused(io::Error::from_raw_os_error(libc::EIO));
        assert!(!other.contains("systemd-run"), "{other}");
    }
}
