//! The engine's end of the control socket: one request at a time, given up soon after the user asks the run to stop.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::protocol::{Reply, Request, receive, send};

/// How long requests may go on after the user asked the run to stop, all together: short ones end by themselves.
const GRACE: Duration = Duration::from_secs(1);
/// How often that is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) enum NoReply {
    /// The user asked the run to stop, and the reply did not come soon. The lab may still carry out the request.
    Interrupted,
    /// The socket failed, or the lab did not reply in time.
    Broken(io::Error),
}

impl From<io::Error> for NoReply {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The socket and what is known of the user's wish to stop.
#[derive(Debug)]
pub(crate) struct Link {
    control: UnixStream,
    replies: BufReader<UnixStream>,
    /// After this a lab that has not replied counts as lost.
    patience: Duration,
    interrupted: Arc<AtomicBool>,
    /// When that was first seen.
    interrupted_at: Option<Instant>,
    /// The lab still carries out a request for which nobody waits: it is asked for nothing more.
    is_given_up: bool,
}

impl Link {
    pub(crate) fn new(
        control: &UnixStream,
        patience: Duration,
        interrupted: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let control = control.try_clone()?;
        control.set_read_timeout(Some(patience))?;
        Ok(Self {
            replies: BufReader::new(control.try_clone()?),
            control,
            patience,
            interrupted,
            interrupted_at: None,
            is_given_up: false,
        })
    }

    pub(crate) fn exchange(&mut self, request: &Request) -> Result<Reply, NoReply> {
        if self.is_given_up {
            return Err(NoReply::Interrupted);
        }
        send(&self.control, request)?;
        if !self.reply_begins()? {
            self.is_given_up = true;
            return Err(NoReply::Interrupted);
        }
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "it closed its socket");
        receive(&mut self.replies)?.ok_or_else(|| closed().into())
    }

    /// Waits until a reply begins; `false`: the user asked the run to stop, and it does not come soon.
    fn reply_begins(&mut self) -> io::Result<bool> {
        self.control.set_read_timeout(Some(POLL_INTERVAL))?;
        let begun = self.first_byte();
        self.control.set_read_timeout(Some(self.patience))?;
        begun
    }

    fn first_byte(&mut self) -> io::Result<bool> {
        let start = Instant::now();
        loop {
            match self.replies.fill_buf() {
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if start.elapsed() > self.patience {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
            if self.interrupted.load(Ordering::Relaxed) {
                let since = self.interrupted_at.get_or_insert_with(Instant::now);
                if since.elapsed() > GRACE {
                    return Ok(false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::protocol::{LabReply, LabRequest};

    const END: Request = Request::Lab(LabRequest::EndRound { prove: false });

    /// A link to a lab that replies after `delay` each time.
    fn to_lab(delay: Duration, interrupted: bool) -> (Link, JoinHandle<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let lab = thread::spawn(move || {
            let mut requests = BufReader::new(theirs.try_clone().unwrap());
            while let Ok(Some(_)) = receive::<Request>(&mut requests) {
                thread::sleep(delay);
                let _ = send(&theirs, &Reply::Lab(LabReply::WorkSet));
            }
        });
        let interrupted = Arc::new(AtomicBool::new(interrupted));
        let link = Link::new(&ours, Duration::from_secs(60), interrupted).unwrap();
        (link, lab)
    }

    #[test]
    fn any_request_is_given_up_a_second_after_an_interruption_and_no_other_follows() {
        let (mut link, lab) = to_lab(Duration::from_millis(2500), true);
        let start = Instant::now();
        assert!(matches!(link.exchange(&END), Err(NoReply::Interrupted)));
        assert!(start.elapsed() > GRACE);
        // Not even after the late reply, which belongs to another request.
        thread::sleep(Duration::from_millis(2500).saturating_sub(start.elapsed()));
        assert!(matches!(link.exchange(&END), Err(NoReply::Interrupted)));
        drop(link);
        lab.join().unwrap();
    }

    #[test]
    fn requests_after_an_interruption_share_the_second() {
        let (mut link, lab) = to_lab(Duration::from_millis(400), true);
        let replies = (0..10).take_while(|_| link.exchange(&END).is_ok());
        let count = replies.count();
        assert!((1..5).contains(&count), "{count}");
        drop(link);
        lab.join().unwrap();
    }

    #[test]
    fn slow_reply_is_awaited_without_an_interruption() {
        let (mut link, lab) = to_lab(Duration::from_millis(1300), false);
        assert!(link.exchange(&END).is_ok());
        drop(link);
        lab.join().unwrap();
    }

    #[test]
    fn lab_that_closes_its_socket_is_not_an_interruption() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut link = Link::new(&ours, Duration::from_secs(60), interrupted).unwrap();
        let lab = thread::spawn(move || {
            let mut requests = BufReader::new(theirs);
            receive::<Request>(&mut requests).unwrap();
        });
        assert!(matches!(link.exchange(&END), Err(NoReply::Broken(_))));
        lab.join().unwrap();
    }
}
