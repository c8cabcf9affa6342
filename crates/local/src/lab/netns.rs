//! Network namespaces, held by file descriptors and never by names.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace that lives as long as this descriptor or a process in it.
#[derive(Debug)]
pub(crate) struct NetNs {
    descriptor: OwnedFd,
}

impl NetNs {
    /// A new, empty namespace. It is created by a separate thread, so that no other thread changes its namespace.
    pub(crate) fn create() -> io::Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let descriptor = File::open("/proc/thread-self/ns/net")?.into();
            Ok(Self { descriptor })
        })
    }

    /// Runs `work` on a thread that is inside the namespace.
    ///
    /// Sockets made there stay in the namespace wherever they are used afterwards.
    pub(crate) fn run<T: Send>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        on_own_thread(|| {
            setns(self.descriptor.as_fd(), CloneFlags::CLONE_NEWNET)?;
            work()
        })
    }

    /// Another descriptor of it, to be given away.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    pub(crate) fn raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The namespace is a property of the thread: a separate thread leaves all others unaffected.
fn on_own_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread in a network namespace panicked")))
    })
}
