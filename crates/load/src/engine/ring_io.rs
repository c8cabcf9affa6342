//! Closed loops on persistent connections use io_uring: all sends since the last wait are submitted to
//! the kernel together with the next wait.
//!
//! Connections are opened and reopened by epoll, and move to io_uring once they are open. Open loops
//! stay with epoll: each of their requests is sent at its own instant.

use std::time::Duration;

use rustix::event::epoll;

use super::batch::Batch;
use super::{Engine, look};
use crate::connection::{InRing, Phase};
use crate::error::LoadError;
use crate::ring::{Filled, Happening, LARGEST_SEND, Token};
use crate::wire::Failure;

impl Engine<'_> {
    /// A connection that is open is io_uring's from now on, if that is used.
    pub(super) fn put_in_batch(&mut self, index: u32) {
        // One that cannot leave epoll stays there, and is served as well.
        if self.batch.is_some() && self.is_open(index) && self.pool.leave_epoll(index).is_ok() {
            self.rearm(index);
        }
    }

    /// Something was written on a connection: it goes with the next batch.
    pub(super) fn list_for_batch(&mut self, index: u32) {
        let connection = &mut self.pool.connections[index as usize];
        let (Some(batch), Some(in_ring)) = (&mut self.batch, &mut connection.ring) else {
            return;
        };
        if !in_ring.listed && !in_ring.full {
            in_ring.listed = true;
            batch.written.push(index);
        }
    }

    /// Queues what is to be received and sent. Until the next look nothing may be opened or
    /// closed: sockets are named by their descriptors.
    pub(super) fn hand_over(&mut self) -> Result<(), LoadError> {
        let Some(mut batch) = self.batch.take() else {
            return Ok(());
        };
        let handed_over = self.queue(&mut batch);
        self.batch = Some(batch);
        handed_over.map_err(|source| LoadError::Ring { source })
    }

    fn queue(&mut self, batch: &mut Batch) -> std::io::Result<()> {
        if !batch.watches_epoll {
            batch.ring.watch_epoll(self.pool.epoll())?;
            batch.watches_epoll = true;
        }
        for index in batch.unarmed.drain(..) {
            let connection = &self.pool.connections[index as usize];
            if let (Some(_), Some((socket, _))) = (connection.ring, connection.outgoing()) {
                batch.ring.receive(socket, connection.ring_token(index))?;
            }
        }
        for at in 0..batch.written.len() {
            let index = batch.written[at];
            self.queue_sends(batch, index)?;
        }
        batch.written.clear();
        Ok(())
    }

    fn queue_sends(&mut self, batch: &mut Batch, index: u32) -> std::io::Result<()> {
        let connection = &mut self.pool.connections[index as usize];
        if let Some(in_ring) = &mut connection.ring {
            in_ring.listed = false;
        }
        let token = connection.ring_token(index);
        let Some((socket, bytes)) = connection.outgoing().filter(|(_, bytes)| !bytes.is_empty())
        else {
            return Ok(());
        };
        if bytes.len() <= LARGEST_SEND && batch.ring.send(socket, token, bytes)? {
            connection.handed_over();
            return Ok(());
        }
        // A failure shows in what is received.
        let _ = connection.flush();
        batch.ring.written += std::mem::take(&mut connection.written);
        self.await_room(batch, index)
    }

    /// Has io_uring tell when a socket takes what it did not take now.
    fn await_room(&mut self, batch: &mut Batch, index: u32) -> std::io::Result<()> {
        let connection = &mut self.pool.connections[index as usize];
        let token = connection.ring_token(index);
        if connection.is_flushed() {
            return Ok(());
        }
        connection.ring = connection.ring.map(|in_ring| InRing {
            full: true,
            ..in_ring
        });
        match connection.outgoing() {
            Some((socket, _)) => batch.ring.watch(socket, token),
            None => Ok(()),
        }
    }

    /// Looks at the sockets until the deadline; `None` does not wait at all. `true`: io_uring has
    /// brought something.
    pub(super) fn look(
        &mut self,
        events: &mut Vec<epoll::Event>,
        now_ns: u64,
        deadline_ns: Option<u64>,
    ) -> Result<bool, LoadError> {
        let Some(batch) = &mut self.batch else {
            return look(&self.pool, events, now_ns, deadline_ns).map(|()| false);
        };
        let timeout = deadline_ns.map_or(0, |deadline_ns| deadline_ns.saturating_sub(now_ns));
        batch
            .ring
            .turn(Duration::from_nanos(timeout), &mut batch.happened)
            .map_err(|source| LoadError::Ring { source })?;
        self.recorder
            .sent(std::mem::take(&mut batch.ring.written), now_ns);
        let ready =
            |(_, happening): &(Token, Happening)| matches!(happening, Happening::EpollReady);
        events.clear();
        if batch.happened.iter().any(ready) {
            batch.watches_epoll = false;
            look(&self.pool, events, now_ns, None)?;
        }
        Ok(!batch.happened.is_empty())
    }

    /// Takes the completions of io_uring.
    pub(super) fn take_batch(&mut self, woke_ns: u64) {
        let Some(batch) = &mut self.batch else {
            return;
        };
        let mut happened = std::mem::take(&mut batch.happened);
        for (token, happening) in happened.drain(..) {
            self.take_happening(token, happening, woke_ns);
        }
        if let Some(batch) = &mut self.batch {
            batch.happened = happened;
        }
    }

    fn take_happening(&mut self, token: Token, happening: Happening, woke_ns: u64) {
        let index = token.index;
        let connection = &mut self.pool.connections[index as usize];
        let is_current = connection.ring_token(index) == token
            && connection.phase == Phase::Open
            && connection.ring.is_some();
        match happening {
            Happening::EpollReady => {}
            Happening::Received(filled) => self.take_bytes(index, filled, is_current, woke_ns),
            _ if !is_current => {}
            Happening::Unarmed => self.rearm(index),
            Happening::Closed => self.peer_closed(index, woke_ns),
            Happening::Broken => self.connection_failed(index, Failure::Reset, woke_ns),
            Happening::Unsent(rest) => {
                if let Some(mut batch) = self.batch.take() {
                    connection.put_back(batch.ring.unsent(&rest));
                    let asked = self.await_room(&mut batch, index);
                    self.batch = Some(batch);
                    if asked.is_err() {
                        self.connection_failed(index, Failure::Reset, woke_ns);
                    }
                }
            }
            Happening::Writable => {
                connection.ring = Some(InRing::default());
                self.list_for_batch(index);
            }
        }
    }

    fn rearm(&mut self, index: u32) {
        if let Some(batch) = &mut self.batch {
            batch.unarmed.push(index);
        }
    }

    fn take_bytes(&mut self, index: u32, filled: Filled, is_current: bool, woke_ns: u64) {
        let Some(batch) = &mut self.batch else {
            return;
        };
        let armed = filled.armed;
        if !is_current {
            return batch.ring.give_back(filled);
        }
        let bytes = batch.ring.received(&filled);
        let count = bytes.len();
        let connection = &mut self.pool.connections[index as usize];
        let fed = connection.feed(&self.pool.dial, bytes, &mut self.plain, &mut self.news);
        batch.ring.give_back(filled);
        if self.fed(index, count, fed, woke_ns) && !armed {
            self.rearm(index);
        }
    }
}
