//! io_uring, as far as small messages need it: receives that stay armed and fill shared buffers,
//! and sends of messages that never change.
//!
//! `unsafe` because the kernel reads and writes memory whose lifetime no compiler sees. All of it is
//! leaked: it outlives the ring.
#![expect(unsafe_code, reason = "the kernel shares memory with io_uring's user")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{IoUring, cqueue, opcode};

/// Buffers for what is received; a power of two.
const BUFFERS: u16 = 512;
const BUFFER_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;

/// A receive found no buffer free: it must be armed again.
pub(crate) const NO_BUFFER: i32 = -105;

/// The token of sends that are of interest only when they fail.
pub(crate) const SENT: u64 = u64::MAX;

/// A page, for the kernel wants the list of buffers to begin at one.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE_BYTES]);

/// A socket, by its place among those that were registered, or as usual.
#[derive(Clone, Copy)]
pub(crate) enum Socket {
    Registered(u32),
    Plain(RawFd),
}

/// Something has happened.
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    /// A length, a descriptor, or an error below zero.
    pub(crate) result: i32,
    buffer: Option<u16>,
    /// Whether more of the same will come.
    pub(crate) armed: bool,
}

pub(crate) struct Ring {
    ring: IoUring,
    messages: &'static [Vec<u8>],
    buffers: *const u8,
    list: *mut BufRingEntry,
    tail: u16,
}

impl Ring {
    /// A ring that can send these messages.
    pub(crate) fn new(messages: Vec<Vec<u8>>) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(4096)
            .build(1024)?;
        let list_bytes = usize::from(BUFFERS) * size_of::<BufRingEntry>();
        let pages = vec![Page([0; PAGE_BYTES]); list_bytes.div_ceil(PAGE_BYTES)];
        let list: *mut BufRingEntry = pages.leak().as_mut_ptr().cast();
        // SAFETY: the list is leaked, begins at a page, and has room for this many entries.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(list as u64, BUFFERS, 0, 0)?;
        }
        let mut this = Self {
            ring,
            messages: messages.leak(),
            buffers: vec![0; usize::from(BUFFERS) * BUFFER_BYTES].leak().as_ptr(),
            list,
            tail: 0,
        };
        for buffer in 0..BUFFERS {
            this.put(buffer);
        }
        this.publish();
        Ok(this)
    }

    /// Lets these sockets be named by their place, which is a little cheaper.
    pub(crate) fn register(&self, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sockets: Vec<RawFd> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
        self.ring.submitter().register_files(&sockets)
    }

    /// Takes every connection that comes.
    pub(crate) fn accept(&mut self, listener: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.push(
            opcode::AcceptMulti::new(Fd(listener.as_raw_fd()))
                .build()
                .user_data(token),
        )
    }

    /// Tells once when there is something to read.
    pub(crate) fn watch(&mut self, input: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        const READABLE: u32 = 1;
        self.push(
            opcode::PollAdd::new(Fd(input.as_raw_fd()), READABLE)
                .build()
                .user_data(token),
        )
    }

    /// Receives until further notice.
    pub(crate) fn receive(&mut self, socket: Socket, token: u64) -> io::Result<()> {
        let entry = match socket {
            Socket::Registered(place) => opcode::RecvMulti::new(Fixed(place), 0).build(),
            Socket::Plain(fd) => opcode::RecvMulti::new(Fd(fd), 0).build(),
        };
        self.push(entry.user_data(token))
    }

    /// Sends a message. Success is told only where there is a token.
    pub(crate) fn send(
        &mut self,
        socket: Socket,
        message: usize,
        token: Option<u64>,
    ) -> io::Result<()> {
        let bytes = &self.messages[message];
        let (start, length) = (bytes.as_ptr(), bytes.len() as u32);
        let entry = match socket {
            Socket::Registered(place) => opcode::Send::new(Fixed(place), start, length).build(),
            Socket::Plain(fd) => opcode::Send::new(Fd(fd), start, length).build(),
        };
        self.push(match token {
            Some(token) => entry.user_data(token),
            None => entry.flags(Flags::SKIP_SUCCESS).user_data(SENT),
        })
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        // SAFETY: entries name sockets, which the kernel checks, and messages, which are leaked.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Hands over what was asked for, waits until something has happened, and says what.
    pub(crate) fn turn(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        self.publish();
        done.clear();
        match self.ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        done.extend(self.ring.completion().map(|entry| Completion {
            token: entry.user_data(),
            result: entry.result(),
            buffer: cqueue::buffer_select(entry.flags()),
            armed: cqueue::more(entry.flags()),
        }));
        Ok(())
    }

    /// What was received. Its buffer is the kernel's again at the next turn: call this once, and
    /// be done with the bytes before.
    pub(crate) fn take(&mut self, completion: &Completion) -> &[u8] {
        let Some(buffer) = completion.buffer else {
            return &[];
        };
        let length = usize::try_from(completion.result).unwrap_or(0);
        self.put(buffer);
        // SAFETY: the kernel has filled so much of this buffer, and does not touch it until it is
        // published, which needs `self` while the bytes borrow it.
        unsafe {
            let start = self.buffers.add(usize::from(buffer) * BUFFER_BYTES);
            std::slice::from_raw_parts(start, length.min(BUFFER_BYTES))
        }
    }

    /// Puts a buffer on the list; the kernel sees it when it is published.
    fn put(&mut self, buffer: u16) {
        let place = usize::from(self.tail & (BUFFERS - 1));
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: both places are inside what was leaked, and the kernel reads the entry only
        // after the tail has moved past it.
        unsafe {
            let start = self.buffers.add(usize::from(buffer) * BUFFER_BYTES);
            let entry = &mut *self.list.add(place);
            entry.set_addr(start as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
        }
    }

    fn publish(&self) {
        // SAFETY: the tail is in the first entry of the list, and shared as an atomic.
        unsafe {
            let tail = BufRingEntry::tail(self.list).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

/// The socket that `accept` brought.
pub(crate) fn accepted(completion: &Completion) -> io::Result<OwnedFd> {
    if completion.result < 0 {
        return Err(io::Error::from_raw_os_error(-completion.result));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(completion.result) })
}
