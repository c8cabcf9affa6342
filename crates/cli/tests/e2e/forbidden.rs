//! A machine that forbids user namespaces to unprivileged users: exit code 11, with the fix.
#![expect(unsafe_code, reason = "the child is restricted between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::write;

use crate::support::{
    BINARY, NOBODY, Running, Scratch, beside_others, copy_program, is_root, meshtax, prepared,
    skipped,
};

const ENDS_WITHIN: std::time::Duration = std::time::Duration::from_secs(10);

/// System calls only: nothing may be allocated between fork and exec.
fn put(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    let file = open(path, OFlag::O_WRONLY, Mode::empty())?;
    write(&file, text)?;
    Ok(())
}

/// A user namespace that allows no nested one, in which the caller is unprivileged.
fn with_the_limit_at_zero(mut command: Command) -> Command {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let users = format!("1000 {user} 1");
    let groups = format!("1000 {group} 1");
    // SAFETY: system calls on data that was made before the fork.
    unsafe {
        command.pre_exec(move || {
            unshare(CloneFlags::CLONE_NEWUSER)?;
            put(c"/proc/self/setgroups", b"deny")?;
            put(c"/proc/self/uid_map", users.as_bytes())?;
            put(c"/proc/self/gid_map", groups.as_bytes())?;
            put(c"/proc/sys/user/max_user_namespaces", b"0")
        });
    }
    command
}

/// A seccomp filter as in containers: no clone or unshare with a new user namespace.
fn seccomp_filter() -> Vec<libc::sock_filter> {
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let load = |offset| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset,
    };
    let jump = |test: u32, k: u32, jt, jf| libc::sock_filter {
        code: (libc::BPF_JMP | test | libc::BPF_K) as u16,
        jt,
        jf,
        k,
    };
    let end = |k| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let number = 0;
    let first_argument = 16;
    vec![
        load(number),
        jump(libc::BPF_JEQ, libc::SYS_clone as u32, 2, 0),
        jump(libc::BPF_JEQ, libc::SYS_unshare as u32, 1, 0),
        end(ALLOW),
        load(first_argument),
        jump(libc::BPF_JSET, libc::CLONE_NEWUSER as u32, 0, 1),
        end(DENY),
        end(ALLOW),
    ]
}

fn with_a_filter(mut command: Command) -> Command {
    let filter = seccomp_filter();
    // SAFETY: system calls on data that was made before the fork; the kernel copies the filter.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).unwrap_or(0),
                filter: filter.as_ptr().cast_mut(),
            };
            let no_more_rights = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            if no_more_rights != 0 || libc::prctl(libc::PR_SET_SECCOMP, mode, &program) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}

/// Whether this machine allows the user namespace that the first test needs.
fn may_make_user_namespaces(scratch: &Scratch) -> bool {
    let probe = prepared(Command::new("/bin/true"), scratch, &[]);
    let made = with_the_limit_at_zero(probe).status();
    made.is_ok_and(|status| status.success())
}

/// Runs `run` and `doctor`; both must exit with 11 and print all of these.
fn check(run: &Path, made: impl Fn(&[&str]) -> Command, expected: &[&str]) {
    let out = run.to_str().expect("a path in UTF-8");
    for arguments in [
        &["run", "--preset", "noise", "--offline", "--out", out][..],
        &["doctor"][..],
    ] {
        let finished = Running::start(made(arguments)).finish(ENDS_WITHIN);
        finished.expect_code(11);
        let output = format!("{}{}", finished.stderr, finished.stdout);
        for words in expected {
            assert!(
                output.contains(words),
                "{arguments:?}: no {words:?} in:\n{output}"
            );
        }
        assert!(!run.exists(), "an empty run directory is left");
    }
}

#[test]
fn user_namespace_limit_of_zero_is_reported_with_the_sysctl() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    if !may_make_user_namespaces(&scratch) {
        assert!(!is_root(), "root can make a user namespace");
        return skipped(
            "user namespaces limited to zero",
            "this machine forbids them",
        );
    }
    let made = |arguments: &[&str]| with_the_limit_at_zero(meshtax(&scratch, arguments));
    let expected = [
        "user namespaces",
        "user.max_user_namespaces is 0",
        "sudo sysctl user.max_user_namespaces=",
        "fix: ",
    ];
    check(&scratch.path("run"), made, &expected);
}

#[test]
fn seccomp_filter_is_reported_with_a_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let copy = scratch.path("meshtax");
    copy_program(BINARY.as_ref(), &copy);
    let home = scratch.path("home");
    std::fs::create_dir(&home).expect("a home");
    if is_root() {
        std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).expect("a chown by root");
    }
    let made = |arguments: &[&str]| {
        let mut command = prepared(Command::new(&copy), &scratch, arguments);
        if is_root() {
            // Root needs no user namespace; the filter forbids nothing else.
            command.uid(NOBODY).gid(NOBODY);
        }
        command.env("HOME", &home).current_dir(&home);
        with_a_filter(command)
    };
    let expected = ["user namespaces", "Operation not permitted", "fix: "];
    check(&home.join("run"), made, &expected);
}
