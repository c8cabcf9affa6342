//! The lab's init: the first process in the new namespaces. When it ends, for whatever reason, the
//! kernel removes every process, namespace, link and rule of the run.

mod apps;
mod component;
mod control;
mod deployed;
mod error;
mod instance;
mod load;
mod netlink;
mod netns;
mod network;
mod round;
mod setup;
mod trial;
mod vantage;

use std::io::{self, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::cgroups::{CgroupDirectories, REMOVED_WITHIN};
use crate::protocol::{LabReply, LabRequest, Reply, Request, receive, send};
use meshtax_agent::{AGENT_PROTOCOL, AgentReply, AgentRequest};
use round::Round;
use setup::Lab;
use trial::measure_trial;

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

/// The cgroup of the run, for the thread that ends the lab.
static CGROUP: OnceLock<CgroupDirectories> = OnceLock::new();

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
    let began = Instant::now();
    if let Some(run) = CGROUP.get() {
        // Nobody else is left to do it. The processes in it must end first; the others end with this one.
        loop {
            run.kill();
            if run.remove(Duration::from_millis(50)) || began.elapsed() > REMOVED_WITHIN {
                break;
            }
        }
    }
    std::process::exit(0)
}

/// What was built so far.
struct Server {
    lab: Option<Lab>,
    round: Option<Round>,
}

impl Server {
    fn handle(&mut self, request: Request) -> Reply {
        match request {
            Request::Lab(request) => Reply::Lab(self.build(request)),
            Request::Agent(request) => Reply::Agent(self.measure(&request)),
        }
    }

    fn build(&mut self, request: LabRequest) -> LabReply {
        match (request, &mut self.lab) {
            (LabRequest::Prepare(setup), _) => match Lab::build(*setup) {
                Ok(lab) => {
                    if let Some(run) = &lab.setup.limits {
                        let _ = CGROUP.set(run.clone());
                    }
                    self.lab = Some(lab);
                    LabReply::Prepared
                }
                Err(refusal) => LabReply::Refused {
                    step: refusal.step,
                    not_permitted: refusal.cause.kind() == io::ErrorKind::PermissionDenied,
                    cause: refusal.cause.to_string(),
                },
            },
            (LabRequest::SetWork { topology, timing }, Some(lab)) => {
                lab.setup.topology = *topology;
                lab.setup.timing = timing;
                LabReply::WorkSet
            }
            (LabRequest::StartRound { round, variants }, Some(lab)) => {
                self.round = None;
                let (started, reports) = Round::start(lab, round, &variants);
                self.round = Some(started);
                LabReply::RoundStarted(reports)
            }
            (LabRequest::EndRound { prove }, Some(lab)) => {
                let (mut ended, mut lost) = (Vec::new(), Vec::new());
                if let Some(round) = self.round.take() {
                    ended = round.ended();
                    if prove {
                        lost = round.lost(lab);
                    }
                }
                LabReply::RoundEnded { ended, lost }
            }
            (_, None) => LabReply::OutOfOrder,
        }
    }

    fn measure(&mut self, request: &AgentRequest) -> AgentReply {
        if request.version != AGENT_PROTOCOL {
            return AgentReply::Version {
                spoken: AGENT_PROTOCOL,
            };
        }
        match (&self.lab, &mut self.round) {
            (Some(lab), Some(round)) => {
                measure_trial(round, lab, &request.trial, &request.load_point)
            }
            _ => AgentReply::NotReady,
        }
    }
}
