//! The minimal proxy: takes redirected connections, speaks mutual TLS to its like, parses nothing.
//!
//! One epoll per worker, edge-triggered, no runtime: what it costs is what the kernel's sockets and
//! the cipher cost, so that it can stand as the floor in every comparison.

mod link;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::{fs, thread};

use meshtax_dataplane::{LimitProxyConfig, LimitSide, LimitTls};
use meshtax_tls::{Credentials, TlsError};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::event::epoll;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustls::{ClientConfig, ServerConfig};

use crate::tls::{Expect, client_config, server_config};
use link::{CHUNK, Link, Side, State};

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 256;

/// Runs the proxy of this configuration file; returns only on failure.
///
/// # Errors
/// What could not be read, bound or polled, in words.
pub fn run(config_path: &Path) -> io::Result<()> {
    let at = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", config_path.display()));
    let text = fs::read_to_string(config_path).map_err(at)?;
    let config: LimitProxyConfig = serde_json::from_str(&text).map_err(|e| at(e.into()))?;
    let context = Arc::new(Context::new(&config)?);
    let others: Vec<_> = (1..config.workers.max(1))
        .map(|_| {
            let context = Arc::clone(&context);
            thread::spawn(move || Worker::new(context)?.serve())
        })
        .collect();
    Worker::new(context)?.serve()?;
    for other in others {
        other
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a worker panicked")))?;
    }
    Ok(())
}

/// What all connections share.
struct Context {
    config: LimitProxyConfig,
    tls: Tls,
}

enum Tls {
    Off,
    Client {
        usual: Arc<ClientConfig>,
        /// Whoever is called at one of these addresses has another identity.
        by_address: HashMap<Ipv4Addr, Arc<ClientConfig>>,
    },
    Server {
        config: Arc<ServerConfig>,
        peer_prefix: String,
    },
}

impl Context {
    fn new(config: &LimitProxyConfig) -> io::Result<Self> {
        let tls = match &config.tls {
            None => Tls::Off,
            Some(files) => Tls::new(config.side, files)?,
        };
        Ok(Self {
            config: config.clone(),
            tls,
        })
    }
}

impl Tls {
    fn new(side: LimitSide, files: &LimitTls) -> io::Result<Self> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))
        };
        let credentials = Credentials {
            chain_pem: read(&files.chain)?,
            key_pem: read(&files.key)?,
            root_pem: read(&files.root)?,
        };
        let invalid = |e: TlsError| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
        Ok(match side {
            LimitSide::Client => {
                let config = |peer: &String| {
                    let expect = Expect::Exactly(peer.clone());
                    let config = client_config(&credentials, expect, &[], false);
                    config.map(Arc::new).map_err(invalid)
                };
                let others = files.peers.iter();
                Self::Client {
                    usual: config(&files.peer)?,
                    by_address: others
                        .map(|(address, peer)| Ok((*address, config(peer)?)))
                        .collect::<io::Result<_>>()?,
                }
            }
            LimitSide::Server => Self::Server {
                config: Arc::new(server_config(&credentials).map_err(invalid)?),
                peer_prefix: files.peer.clone(),
            },
        })
    }
}

/// One thread's connections.
struct Worker {
    context: Arc<Context>,
    epoll: OwnedFd,
    listener: OwnedFd,
    links: Vec<Option<Box<Link>>>,
    free: Vec<usize>,
    /// What is being read: empty between two events.
    buffer: Box<[u8]>,
}

impl Worker {
    fn new(context: Arc<Context>) -> io::Result<Self> {
        let listener = listen(context.config.listen_port)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        watch(&epoll, &listener, LISTENER, epoll::EventFlags::IN)?;
        Ok(Self {
            context,
            epoll,
            listener,
            links: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; CHUNK].into(),
        })
    }

    fn serve(mut self) -> io::Result<()> {
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
        link.pump(side, &self.context, &mut self.buffer, &mut |stream| {
            watch_stream(epoll, stream, index, Side::Clear)
        })
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
        let index = self.free.pop().unwrap_or_else(|| {
            self.links.push(None);
            self.links.len() - 1
        });
        let (near, far) = match self.context.config.side {
            LimitSide::Client => (Side::Clear, Side::Wire),
            LimitSide::Server => (Side::Wire, Side::Clear),
        };
        watch_stream(&self.epoll, &accepted, index, near)?;
        match Link::new(accepted, &self.context) {
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

fn listen(port: u16) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    net::sockopt::set_socket_reuseaddr(&socket, true)?;
    net::sockopt::set_socket_reuseport(&socket, true)?;
    net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
    net::listen(&socket, 4096)?;
    Ok(socket)
}

/// Where a redirected connection was going.
fn original_destination(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let raw = getsockopt(stream, sockopt::OriginalDst)?;
    let address = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
    Ok(SocketAddrV4::new(address, u16::from_be(raw.sin_port)))
}

/// Begins a connection that redirection leaves alone.
fn dial(to: SocketAddrV4, config: &LimitProxyConfig) -> io::Result<TcpStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    setsockopt(&socket, sockopt::Mark, &config.mark)?;
    if let Some(source) = config.upstream_source {
        net::bind(&socket, &SocketAddrV4::new(source, 0))?;
    }
    match net::connect(&socket, &SocketAddr::V4(to)) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(e) => return Err(e.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}
