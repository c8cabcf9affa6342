//! One thread of the proxy: its listener, its epoll and its connections.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use meshtax_dataplane::LimitSide;
use rustix::event::epoll;
use rustix::net::{self, SocketFlags};

use crate::context::Context;
use crate::link::{Link, Scratch, Side, State, Surroundings};
use crate::socket::{listen, original_destination};

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 256;

/// One thread's connections.
pub(crate) struct Worker {
    context: Arc<Context>,
    epoll: OwnedFd,
    listener: OwnedFd,
    links: Vec<Option<Box<Link>>>,
    free: Vec<usize>,
    /// Links to these destinations that can carry another connection.
    idle: HashMap<SocketAddrV4, Vec<usize>>,
    scratch: Scratch,
}

impl Worker {
    pub(crate) fn new(context: Arc<Context>) -> io::Result<Self> {
        let listener = listen(context.config.listen_port)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &listener, LISTENER, epoll::EventFlags::IN)?;
        Ok(Self {
            context,
            epoll,
            listener,
            links: Vec::new(),
            free: Vec::new(),
            idle: HashMap::new(),
            scratch: Scratch::new(),
        })
    }

    pub(crate) fn serve(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ended = Vec::new();
        loop {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                None,
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            for event in &events {
                let token = event.data.u64();
                if token == LISTENER {
                    self.accept_all();
                    continue;
                }
                let (index, side) = ((token >> 1) as usize, Side::from_bit(token & 1));
                if self.pump(index, side) == State::Ended {
                    ended.push(index);
                }
            }
            // Places are given away only now: an event of this batch may still name an ended link.
            for index in ended.drain(..) {
                if self.links[index].take().is_some() {
                    self.free.push(index);
                }
            }
        }
    }

    fn pump(&mut self, index: usize, side: Side) -> State {
        let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return State::Open;
        };
        let epoll = &self.epoll;
        let state = link.pump(
            side,
            &mut Surroundings {
                context: &self.context,
                scratch: &mut self.scratch,
                watch: &mut |stream| watch_stream(epoll, stream, index, Side::Plain),
            },
        );
        if state != State::Open {
            let idle = self.idle.entry(link.destination).or_default();
            idle.retain(|other| *other != index);
            if state == State::Idle {
                idle.push(index);
            }
        }
        state
    }

    fn accept_all(&mut self) {
        while let Ok(accepted) =
            net::accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
        {
            // One connection's failure is that connection's: the peer sees it closed.
            let _ = self.adopt(TcpStream::from(accepted));
        }
    }

    fn adopt(&mut self, accepted: TcpStream) -> io::Result<()> {
        accepted.set_nodelay(true)?;
        let destination = original_destination(&accepted)?;
        let idle = self.idle.get_mut(&destination).and_then(Vec::pop);
        if let Some((index, link)) = idle.and_then(|i| Some((i, self.links[i].as_mut()?))) {
            watch_stream(&self.epoll, &accepted, index, Side::Plain)?;
            return link.carry(accepted);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let (near, far) = match self.context.config.side {
            LimitSide::Client => (Side::Plain, Side::Wire),
            LimitSide::Server => (Side::Wire, Side::Plain),
        };
        watch_stream(&self.epoll, &accepted, index, near)?;
        match Link::new(accepted, destination, &self.context) {
            Ok(link) => {
                if let Some(upstream) = link.dialled() {
                    watch_stream(&self.epoll, upstream, index, far)?;
                }
                self.links[index] = Some(Box::new(link));
                Ok(())
            }
            Err(e) => {
                self.free.push(index);
                Err(e)
            }
        }
    }
}

fn watch_stream(epoll: &OwnedFd, stream: &TcpStream, index: usize, side: Side) -> io::Result<()> {
    let both = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
    let token = (index as u64) << 1 | side.bit();
    watch(epoll, stream, token, both | epoll::EventFlags::ET)
}

fn watch(epoll: &OwnedFd, what: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(
        epoll,
        what,
        epoll::EventData::new_u64(token),
        flags,
    )?)
}
