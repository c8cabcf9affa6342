//! io_uring, as far as connections that stay open need it: receives that stay armed and fill
//! shared buffers, and sends that are handed over together with the wait for responses.
//!
//! It saves a system call for each send, one for each receive, and most of epoll's work.
//!
//! `unsafe` because the kernel reads and writes memory whose lifetime no compiler sees. That
//! memory lives until the kernel has said that it holds nothing of it any more; otherwise it is
//! never freed.
#![expect(unsafe_code, reason = "the kernel shares memory with io_uring's user")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

/// Entries of the submission queue: sends and receives that are handed over at a time.
const ENTRIES: u32 = 256;

/// Bytes of one buffer that is received into. Of each, only what came is ever touched, so that
/// small responses stay in the processor's cache.
const BUFFER_BYTES: usize = 16 * 1024;

/// As many buffers as connections, within these bounds: each may have one response at a time. A
/// power of two.
const BUFFERS: (u32, u32) = (16, 256);

/// Bytes that are handed over at a time.
const OUTBOX_BYTES: usize = 128 * 1024;

/// More than this on one connection is better handed over where it lies.
pub(crate) const LARGEST_SEND: usize = 16 * 1024;

/// The list of buffers must begin at a page.
const PAGE_BYTES: usize = 4096;

/// From `poll(2)`.
const POLLIN: u32 = 1;
const POLLOUT: u32 = 4;

/// `MSG_DONTWAIT | MSG_NOSIGNAL`: a send is over when it has been handed over, in full or not, so
/// that what it is sent from is ours again.
const SEND_FLAGS: i32 = 0x40 | 0x4000;

/// What happened to what was asked for.
#[derive(Debug)]
pub(crate) enum Happening {
    /// The connection of this token has received bytes: see [`Ring::received`].
    Received(Filled),
    /// Nothing more will be received until that is asked for again.
    Unarmed,
    /// The peer closed in good order.
    Closed,
    /// The connection is of no use any more.
    Broken,
    /// A send was over; so much of [`Ring::unsent`] the socket did not take.
    Unsent(Rest),
    /// The socket takes bytes again.
    Writable,
    /// The epoll set has something to tell.
    EpollReady,
}

/// A buffer with bytes in it. It is the kernel's again when it is given back.
#[derive(Debug)]
pub(crate) struct Filled {
    buffer: u16,
    length: u32,
    /// More will come without being asked for.
    pub(crate) armed: bool,
}

/// A part of what was last handed over.
#[derive(Debug)]
pub(crate) struct Rest {
    from: u32,
    to: u32,
}

/// Says which connection something is for: its index, and the low bits of its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) index: u32,
    generation: u32,
}

impl Token {
    const MASK: u32 = (1 << 29) - 1;

    pub(crate) fn new(index: u32, generation: u32) -> Self {
        let generation = generation & Self::MASK;
        Self { index, generation }
    }

    fn with(self, kind: Kind) -> u64 {
        (kind as u64) << 61 | u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn of(data: u64) -> Self {
        Self::new(data as u32, (data >> 32) as u32)
    }
}

/// What was asked for, in the token's upper bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Receive = 0,
    Send = 1,
    Writable = 2,
    Epoll = 3,
}

/// A send of the present turn.
#[derive(Clone, Copy, Debug)]
struct Send {
    token: Token,
    from: u32,
    to: u32,
}

/// The ring of one thread: it must be used where it was made.
pub(crate) struct Ring {
    ring: IoUring,
    inbox: Inbox,
    /// What is sent in the present turn. It never grows beyond its first capacity, since the
    /// kernel receives its address.
    outbox: Vec<u8>,
    sends: Vec<Send>,
    /// The outbox was handed over: it is empty when the next send comes.
    handed_over: bool,
    /// Bytes that sockets took since they were last counted.
    pub(crate) written: u64,
}

impl Ring {
    /// A ring for so many connections; an error where the kernel is too old for it (before 6.1),
    /// or forbids it.
    pub(crate) fn new(connections: u32) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(8 * ENTRIES)
            .build(ENTRIES)?;
        let mut inbox = Inbox::new(connections.next_power_of_two().clamp(BUFFERS.0, BUFFERS.1));
        let (list, count) = (inbox.list.as_ptr() as u64, inbox.count);
        // SAFETY: the list begins at a page, has room for this many entries, and outlives the
        // ring: `Inbox` says how.
        unsafe {
            ring.submitter()
                .register_buf_ring_with_flags(list, count, 0, 0)?;
        }
        inbox.is_ours = false;
        Ok(Self {
            ring,
            inbox,
            outbox: Vec::with_capacity(OUTBOX_BYTES),
            sends: Vec::with_capacity(ENTRIES as usize),
            handed_over: false,
            written: 0,
        })
    }

    /// Receives from now on, until [`Happening::Unarmed`].
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), 0).build();
        self.push(entry.user_data(token.with(Kind::Receive)))
    }

    /// Tells once when the socket takes bytes again.
    pub(crate) fn watch(&mut self, socket: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), POLLOUT).build();
        self.push(entry.user_data(token.with(Kind::Writable)))
    }

    /// Tells once when the epoll set has something to tell.
    pub(crate) fn watch_epoll(&mut self, epoll: BorrowedFd<'_>) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(epoll.as_raw_fd()), POLLIN).build();
        self.push(entry.user_data(Token::new(0, 0).with(Kind::Epoll)))
    }

    /// Sends these bytes with the next turn; `false`: there is no room for them in it. At most
    /// once for each socket in a turn: what a full socket leaves must not be overtaken.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        token: Token,
        bytes: &[u8],
    ) -> io::Result<bool> {
        if std::mem::take(&mut self.handed_over) {
            self.outbox.clear();
            self.sends.clear();
        }
        let from = self.outbox.len();
        if bytes.len() > OUTBOX_BYTES - from || self.sends.len() >= ENTRIES as usize {
            return Ok(false);
        }
        self.outbox.extend_from_slice(bytes);
        let place = Token::new(self.sends.len() as u32, 0);
        self.sends.push(Send {
            token,
            from: from as u32,
            to: self.outbox.len() as u32,
        });
        let start = self.outbox[from..].as_ptr();
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), start, bytes.len() as u32)
            .flags(SEND_FLAGS)
            .build();
        self.push(entry.user_data(place.with(Kind::Send)))?;
        Ok(true)
    }

    fn push(&mut self, entry: Entry) -> io::Result<()> {
        // SAFETY: entries name sockets, which the kernel checks, and the outbox, which stays where
        // it is until the send is over.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Hands over what was asked for, waits until something has happened or the time is over, and
    /// says what has. What a socket took whole is not worth a word.
    pub(crate) fn turn(
        &mut self,
        timeout: Duration,
        happened: &mut Vec<(Token, Happening)>,
    ) -> io::Result<()> {
        self.inbox.publish();
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => {}
            Err(error) if is_no_failure(&error) => {}
            Err(error) => return Err(error),
        }
        // What the kernel has not taken yet still lies in the outbox.
        self.handed_over = self.ring.submission().is_empty();
        let (sends, written) = (&self.sends, &mut self.written);
        happened.extend(
            self.ring
                .completion()
                .filter_map(|entry| read(&entry, sends, written)),
        );
        Ok(())
    }

    /// Bytes that a connection received.
    pub(crate) fn received(&self, filled: &Filled) -> &[u8] {
        let at = usize::from(filled.buffer) * BUFFER_BYTES;
        let length = (filled.length as usize).min(BUFFER_BYTES);
        // SAFETY: the kernel has filled so much of this buffer, and does not touch it before it is
        // given back, which takes `filled`.
        unsafe { std::slice::from_raw_parts(self.inbox.buffers.as_ptr().add(at), length) }
    }

    /// The bytes are of no use any more.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "they must not be read any more"
    )]
    pub(crate) fn give_back(&mut self, filled: Filled) {
        self.inbox.put(filled.buffer);
    }

    /// What a socket did not take of what was handed over.
    pub(crate) fn unsent(&self, rest: &Rest) -> &[u8] {
        &self.outbox[rest.from as usize..rest.to as usize]
    }

    /// Nothing is asked for any more, and no memory is the kernel's.
    pub(crate) fn quiesce(&mut self) {
        let cancelled = self
            .ring
            .submitter()
            .register_sync_cancel(None, CancelBuilder::any());
        let nothing_left = match &cancelled {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        self.inbox.is_ours = nothing_left;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.inbox.is_ours {
            std::mem::forget(std::mem::take(&mut self.outbox));
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// The time was over, a signal came, or the kernel wants its completions to be read first.
fn is_no_failure(error: &io::Error) -> bool {
    const ETIME: i32 = 62;
    const EBUSY: i32 = 16;
    error.kind() == io::ErrorKind::Interrupted
        || matches!(error.raw_os_error(), Some(ETIME | EBUSY))
}

/// What a completion says, if it says anything of interest.
fn read(entry: &cqueue::Entry, sends: &[Send], written: &mut u64) -> Option<(Token, Happening)> {
    let (data, result) = (entry.user_data(), entry.result());
    let token = Token::of(data);
    match data >> 61 {
        kind if kind == Kind::Receive as u64 => Some((token, arrival(entry))),
        kind if kind == Kind::Send as u64 => {
            let send = sends.get(token.index as usize)?;
            let took = u32::try_from(result).unwrap_or(0);
            *written += u64::from(took);
            let from = send.from + took;
            const EAGAIN: i32 = -11;
            if result < 0 && result != EAGAIN {
                return Some((send.token, Happening::Broken));
            }
            (from < send.to).then_some((send.token, Happening::Unsent(Rest { from, to: send.to })))
        }
        kind if kind == Kind::Writable as u64 => Some((token, Happening::Writable)),
        _ => Some((token, Happening::EpollReady)),
    }
}

/// What a receive says.
fn arrival(entry: &cqueue::Entry) -> Happening {
    const NO_BUFFER: i32 = -105;
    const CANCELLED: i32 = -125;
    let result = entry.result();
    let armed = cqueue::more(entry.flags());
    match (u32::try_from(result), cqueue::buffer_select(entry.flags())) {
        (Ok(length), Some(buffer)) if length > 0 => Happening::Received(Filled {
            buffer,
            length,
            armed,
        }),
        (Ok(_), _) => Happening::Closed,
        (Err(_), _) if matches!(result, NO_BUFFER | CANCELLED) => Happening::Unarmed,
        (Err(_), _) => Happening::Broken,
    }
}

/// Buffers that the kernel fills, and the list that passes them to it.
struct Inbox {
    buffers: NonNull<u8>,
    list: NonNull<BufRingEntry>,
    count: u16,
    tail: u16,
    /// The kernel has none of it. Otherwise it is never freed.
    is_ours: bool,
}

// SAFETY: it owns its memory, and is used by one thread at a time.
unsafe impl std::marker::Send for Inbox {}

impl Inbox {
    fn new(count: u32) -> Self {
        let count = count as u16;
        let mut this = Self {
            buffers: allocate(Self::buffers_layout(count)),
            list: allocate(Self::list_layout(count)).cast(),
            count,
            tail: 0,
            is_ours: true,
        };
        for buffer in 0..count {
            this.put(buffer);
        }
        this.publish();
        this
    }

    fn buffers_layout(count: u16) -> Layout {
        Layout::array::<[u8; BUFFER_BYTES]>(usize::from(count)).expect("a few megabytes")
    }

    fn list_layout(count: u16) -> Layout {
        Layout::array::<BufRingEntry>(usize::from(count))
            .and_then(|layout| layout.align_to(PAGE_BYTES))
            .expect("a few kilobytes")
    }

    /// Puts a buffer on the list; the kernel sees it when it is published.
    fn put(&mut self, buffer: u16) {
        let place = usize::from(self.tail & (self.count - 1));
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: both places are inside what was allocated, and the kernel reads the entry only
        // after the tail has moved past it.
        unsafe {
            let start = self.buffers.add(usize::from(buffer) * BUFFER_BYTES);
            let entry = self.list.add(place).as_mut();
            entry.set_addr(start.as_ptr() as u64);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(buffer);
        }
    }

    fn publish(&self) {
        // SAFETY: the tail is in the first entry of the list, and shared as an atomic.
        unsafe {
            let tail = BufRingEntry::tail(self.list.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if self.is_ours {
            // SAFETY: allocated with these layouts, and the kernel holds nothing of it.
            unsafe {
                dealloc(self.buffers.as_ptr(), Self::buffers_layout(self.count));
                dealloc(self.list.as_ptr().cast(), Self::list_layout(self.count));
            }
        }
    }
}

/// Zeroed memory. Pages of it that are never touched cost nothing.
fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not of size zero.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use rustix::net::sockopt;

    use super::*;

    /// Where the kernel gives one.
    fn ring() -> Option<Ring> {
        let ring = Ring::new(2);
        if let Err(error) = &ring {
            let _ = writeln!(io::stderr(), "SKIPPED: io_uring: {error}");
        }
        ring.ok()
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    fn turn(ring: &mut Ring) -> Vec<(Token, Happening)> {
        let mut happened = Vec::new();
        ring.turn(Duration::from_millis(20), &mut happened).unwrap();
        happened
    }

    #[test]
    fn bytes_that_a_full_socket_rejects_are_reported_and_sent_later() {
        let Some(mut ring) = ring() else {
            return;
        };
        let (ours, mut theirs) = pair();
        sockopt::set_socket_send_buffer_size(&ours, 20_000).unwrap();
        let token = Token::new(7, 3);
        let mut sent = Vec::new();
        let left = (0..2000u32).find_map(|number| {
            let piece: Vec<u8> = (0..4000)
                .map(|at| ((number * 31 + at) % 251) as u8)
                .collect();
            assert!(ring.send(ours.as_fd(), token, &piece).unwrap());
            sent.extend_from_slice(&piece);
            let happened = turn(&mut ring);
            match &happened[..] {
                [] => None,
                [(of, Happening::Unsent(rest))] if *of == token => Some(ring.unsent(rest).to_vec()),
                _ => panic!("{happened:?}"),
            }
        });
        let left = left.expect("the socket fills");
        let arrived = sent.len() - left.len();
        assert_eq!(left, sent[arrived..]);
        assert_eq!(ring.written, arrived as u64);
        ring.watch(ours.as_fd(), token).unwrap();
        assert!(turn(&mut ring).is_empty());
        let mut received = vec![0; arrived];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(received, sent[..arrived]);
        let happened = turn(&mut ring);
        assert!(matches!(happened[..], [(of, Happening::Writable)] if of == token));
        ring.quiesce();
        assert!(ring.inbox.is_ours);
    }

    #[test]
    fn a_receive_without_a_buffer_is_reported() {
        let Some(mut ring) = ring() else {
            return;
        };
        let (ours, theirs) = pair();
        let token = Token::new(u32::MAX, u32::MAX);
        ring.receive(ours.as_fd(), token).unwrap();
        let bytes = vec![5; 40 * BUFFER_BYTES];
        let writer = std::thread::spawn(move || {
            let mut theirs = theirs;
            theirs.write_all(&bytes).unwrap();
            theirs
        });
        // None is given back before all are taken.
        let (mut held, mut count, mut unarmed) = (Vec::new(), 0, false);
        while count < 40 * BUFFER_BYTES {
            for (of, happening) in turn(&mut ring) {
                assert_eq!(of, token);
                match happening {
                    Happening::Received(filled) => {
                        assert!(ring.received(&filled).iter().all(|byte| *byte == 5));
                        count += ring.received(&filled).len();
                        held.push(filled);
                    }
                    Happening::Unarmed => {
                        unarmed = true;
                        held.drain(..).for_each(|filled| ring.give_back(filled));
                        ring.receive(ours.as_fd(), token).unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(unarmed);
        held.drain(..).for_each(|filled| ring.give_back(filled));
        drop(writer.join().unwrap());
        let happened = turn(&mut ring);
        assert!(
            matches!(happened[..], [(_, Happening::Closed)]),
            "{happened:?}"
        );
        ring.quiesce();
    }

    #[test]
    fn the_peers_close_and_our_shutdown_are_reported() {
        let Some(mut ring) = ring() else {
            return;
        };
        let (ours, theirs) = pair();
        let (also, _open) = pair();
        ring.receive(ours.as_fd(), Token::new(0, 0)).unwrap();
        ring.receive(also.as_fd(), Token::new(1, 0)).unwrap();
        assert!(turn(&mut ring).is_empty());
        drop(theirs);
        also.shutdown(std::net::Shutdown::Both).unwrap();
        let mut happened = turn(&mut ring);
        happened.extend(turn(&mut ring));
        let closed = |(_, happening): &(Token, Happening)| matches!(happening, Happening::Closed);
        assert!(
            happened.len() == 2 && happened.iter().all(closed),
            "{happened:?}"
        );
        ring.quiesce();
    }
}
