//! The lab's process: a child in separate namespaces; when it ends, everything in them is removed.
//!
//! `clone` has no safe wrapper.
#![expect(
    unsafe_code,
    reason = "clone(2) and what its child may do before exec have no safe form"
)]

use std::ffi::{CString, c_char};
use std::fs;
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getegid, geteuid};

/// Where the lab finds the first of the programs that it is given, the others follow: descriptors,
/// because the files' paths may be hidden by the lab's own file systems.
pub(crate) const FIRST_PROGRAM: RawFd = 3;

/// Why no namespaces could be made.
#[derive(Debug)]
pub(crate) struct SandboxError {
    /// What failed.
    pub(crate) step: &'static str,
    /// The kernel's error.
    pub(crate) errno: Errno,
    /// Whether a user namespace was requested.
    pub(crate) user_namespace: bool,
}

/// The lab's init process as its parent sees it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pid: Pid,
    /// End-of-file here means that the lab has ended; closing it ends the lab.
    pub(crate) control: UnixStream,
    /// Whether it needed a user namespace.
    pub(crate) rootless: bool,
}

impl Sandbox {
    /// Starts `/proc/self/exe` with these arguments in new PID, mount, IPC and network namespaces,
    /// and in a new user namespace where that is needed. What is needed is tried, not guessed.
    pub(crate) fn start(arguments: &[&str], programs: &[&Path]) -> Result<Self, SandboxError> {
        if geteuid().is_root() {
            match Self::start_with(arguments, programs, false) {
                Err(e) if e.errno == Errno::EPERM => {}
                other => return other,
            }
        }
        Self::start_with(arguments, programs, true)
    }

    fn start_with(
        arguments: &[&str],
        programs: &[&Path],
        user_namespace: bool,
    ) -> Result<Self, SandboxError> {
        let fail = |step| {
            move |e: io::Error| SandboxError {
                step,
                errno: Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)),
                user_namespace,
            }
        };
        let (control, theirs) = UnixStream::pair().map_err(fail("make a control socket"))?;
        let (go, mut release) = io::pipe().map_err(fail("make a pipe"))?;
        let programs: Vec<OwnedFd> = programs
            .iter()
            .map(|path| fs::File::open(path).map(OwnedFd::from))
            .collect::<Result<_, _>>()
            .map_err(fail("open a proxy's program"))?;
        let image = Image::new(arguments, &theirs, &programs, &go);
        let pid = clone(&image, user_namespace).map_err(|errno| SandboxError {
            step: "make new namespaces",
            errno,
            user_namespace,
        })?;
        // From here on a failure drops `release` and `control`, and the child ends.
        drop((go, theirs));
        let sandbox = Self {
            pid,
            control,
            rootless: user_namespace,
        };
        if user_namespace {
            map_ids(pid).map_err(fail("map the user into the new namespace"))?;
        }
        release
            .write_all(b"g")
            .map_err(fail("release the lab's process"))?;
        Ok(sandbox)
    }

    /// How the lab's init ended; `None` if it runs.
    pub(crate) fn ended(&self) -> Option<String> {
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => None,
            Ok(status) => Some(describe(status)),
            Err(e) => Some(format!("unknown ({e})")),
        }
    }

    /// The process id in the namespace of the caller.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Its namespaces end with it; reaping confirms that.
        let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

pub(crate) fn describe(status: WaitStatus) -> String {
    match status {
        WaitStatus::Exited(_, code) => format!("exited with {code}"),
        WaitStatus::Signaled(_, signal, _) => {
            format!("was killed by signal {} ({signal})", signal as i32)
        }
        other => format!("{other:?}"),
    }
}

/// One user is mapped: the caller, to root inside.
fn map_ids(pid: Pid) -> io::Result<()> {
    // Without this an ordinary user may not map a group (user_namespaces(7)).
    fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    fs::write(format!("/proc/{pid}/uid_map"), format!("0 {} 1", geteuid()))?;
    fs::write(format!("/proc/{pid}/gid_map"), format!("0 {} 1", getegid()))
}

/// All that the child needs, laid out before `clone`, after which it may not allocate.
struct Image {
    program: CString,
    _arguments: Vec<CString>,
    argument_pointers: Vec<*const c_char>,
    _environment: Vec<CString>,
    environment_pointers: Vec<*const c_char>,
    control: RawFd,
    programs: Vec<RawFd>,
    go: RawFd,
}

impl Image {
    fn new(
        arguments: &[&str],
        control: &UnixStream,
        programs: &[OwnedFd],
        go: &PipeReader,
    ) -> Self {
        let text = |s: &str| CString::new(s).unwrap_or_default();
        let arguments: Vec<CString> = std::iter::once("meshtax")
            .chain(arguments.iter().copied())
            .map(text)
            .collect();
        let environment: Vec<CString> = std::env::vars_os()
            .filter_map(|(key, value)| {
                let mut pair = std::os::unix::ffi::OsStringExt::into_vec(key);
                pair.push(b'=');
                pair.extend(std::os::unix::ffi::OsStringExt::into_vec(value));
                CString::new(pair).ok()
            })
            .collect();
        let pointers = |strings: &[CString]| {
            strings
                .iter()
                .map(|s| s.as_ptr())
                .chain(std::iter::once(ptr::null()))
                .collect()
        };
        Self {
            program: text("/proc/self/exe"),
            argument_pointers: pointers(&arguments),
            _arguments: arguments,
            environment_pointers: pointers(&environment),
            _environment: environment,
            control: control.as_raw_fd(),
            programs: programs.iter().map(AsRawFd::as_raw_fd).collect(),
            go: go.as_raw_fd(),
        }
    }
}

fn clone(image: &Image, user_namespace: bool) -> Result<Pid, Errno> {
    let mut flags = libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWNET
        | libc::SIGCHLD;
    if user_namespace {
        flags |= libc::CLONE_NEWUSER;
    }
    // SAFETY: without CLONE_VM and with a null stack this is fork(2): the child has a copy of
    // everything. The kernel reads no more than the flags.
    let result = unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0, 0, 0, 0) };
    match result {
        -1 => Err(Errno::last()),
        0 => child(image),
        pid => Ok(Pid::from_raw(pid as i32)),
    }
}

/// A program, a loader and libraries for each of the most variants that an experiment can have, and the default ones.
const MOST_PROGRAMS: usize = 128;
/// Above all descriptors that are to be set.
const SCRATCH: RawFd = FIRST_PROGRAM + MOST_PROGRAMS as RawFd;

/// The child between `clone` and `exec`: system calls only, no allocation, no locks.
fn child(image: &Image) -> ! {
    let mut byte = 0_u8;
    // SAFETY: async-signal-safe calls on descriptors and pointers that `image` keeps alive. The
    // copies are made high up first, so that no source is overwritten before it is used.
    unsafe {
        let read = libc::read(image.go, ptr::addr_of_mut!(byte).cast(), 1);
        if read != 1 {
            libc::_exit(0); // The parent is gone or gave up.
        }
        // A separate process group: Ctrl-C at the terminal is for the parent, which takes the lab
        // down. Not a separate session: the kernel's scheduler groups tasks by session
        // (autogroup), and of two runs at once one starved for hundreds of milliseconds.
        libc::setpgid(0, 0);
        let control = libc::fcntl(image.control, libc::F_DUPFD, SCRATCH);
        let mut copies = [-1; MOST_PROGRAMS];
        for (copy, program) in copies.iter_mut().zip(&image.programs) {
            *copy = libc::fcntl(*program, libc::F_DUPFD, SCRATCH);
        }
        libc::dup2(control, 0);
        libc::dup2(2, 1);
        for (copy, place) in copies.iter().zip(FIRST_PROGRAM..) {
            if *copy >= 0 {
                libc::dup2(*copy, place);
                libc::close(*copy);
            }
        }
        libc::close(control);
        libc::execve(
            image.program.as_ptr(),
            image.argument_pointers.as_ptr(),
            image.environment_pointers.as_ptr(),
        );
        libc::_exit(126)
    }
}
