//! The lab's init: the first process in the new namespaces. When it ends, for whatever reason, the
//! kernel removes every process, namespace, link and rule of the run.

mod apps;
mod calls;
mod capture;
mod carries;
mod client_identity;
mod component;
mod control;
mod ends;
mod every_node;
mod features;
mod gateway;
mod hbone;
mod http;
mod netlink;
mod netns;
mod network;
mod nft;
mod options;
mod packet_socket;
mod past_the_proxy;
mod path;
mod probes;
mod round;
mod setup;
mod trial;
mod window;
mod wire_probes;

use std::io::{self, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use crate::protocol::{Reply, Request, receive, send};
pub use apps::wait;
use round::Round;
use setup::Lab;

/// Runs the lab's init until its parent closes the control socket on descriptor 0.
///
/// # Errors
/// If the control socket breaks. What the machine refuses is a reply, not an error.
pub fn lab_main() -> io::Result<()> {
    let control = control_socket()?;
    watch_parent(control.try_clone()?);
    let mut requests = BufReader::new(control.try_clone()?);
    let mut server = Server {
        lab: None,
        round: None,
    };
    while let Some(request) = receive::<Request>(&mut requests)? {
        let reply = server.handle(request);
        send(&control, &reply)?;
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "descriptor 0 was put there by the parent and is nobody else's"
)]
fn control_socket() -> io::Result<UnixStream> {
    // SAFETY: see the reason above; the duplicate leaves descriptor 0 itself alone.
    let inherited = unsafe { OwnedFd::from_raw_fd(0) };
    let control = UnixStream::from(inherited.try_clone()?);
    std::mem::forget(inherited);
    Ok(control)
}

/// The parent's death is seen as end-of-file, at any moment, also in the middle of a trial.
fn watch_parent(control: UnixStream) {
    thread::spawn(move || {
        loop {
            let mut gone = [PollFd::new(&control, PollFlags::RDHUP)];
            let _ = poll(&mut gone, None);
            let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            if gone[0].revents().intersects(closed) {
                end();
            }
        }
    });
}

#[expect(
    clippy::exit,
    reason = "the end of this process is what removes the lab"
)]
fn end() -> ! {
    std::process::exit(0)
}

/// What was built so far.
struct Server {
    lab: Option<Lab>,
    round: Option<Round>,
}

impl Server {
    fn handle(&mut self, request: Request) -> Reply {
        match (request, &mut self.lab) {
            (Request::Prepare(setup), _) => match Lab::build(*setup) {
                Ok(lab) => {
                    self.lab = Some(lab);
                    Reply::Prepared
                }
                Err(refusal) => Reply::Refused {
                    step: refusal.step,
                    not_permitted: refusal.cause.kind() == io::ErrorKind::PermissionDenied,
                    cause: refusal.cause.to_string(),
                },
            },
            (Request::StartRound { round, variants }, Some(lab)) => {
                self.round = None;
                let (started, reports) = Round::start(lab, round, &variants);
                self.round = Some(started);
                Reply::RoundStarted(reports)
            }
            (Request::Trial { trial, load_point }, Some(lab)) => match &mut self.round {
                Some(round) => round.measure(lab, &trial, &load_point),
                None => out_of_order("a trial outside a round"),
            },
            (Request::EndRound { prove }, Some(lab)) => {
                let (mut died, mut lost) = (Vec::new(), Vec::new());
                if let Some(mut round) = self.round.take() {
                    died = round.died();
                    if prove {
                        lost = round.lost(lab);
                    }
                }
                Reply::RoundEnded { died, lost }
            }
            (_, None) => out_of_order("a request before the lab was prepared"),
        }
    }
}

fn out_of_order(what: &str) -> Reply {
    Reply::Refused {
        step: what.into(),
        cause: "out of order".into(),
        not_permitted: false,
    }
}
