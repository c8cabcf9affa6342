//! The way that clients' requests take to the services that they call: answered, and through the proxies.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use meshtax_dataplane::ALLOWED_PATH;
use meshtax_model::evidence::{ProbeResult, probe as names};

use super::component::Component;
use super::http::{Ask, Heard, ask, connect};
use super::netns::NetNs;
use super::probes::{Subject, canaries, one_request, refused, result};

/// A service as clients call it, or the gateway before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The name that its requests are for, without the port.
    pub(crate) host: &'a str,
    pub(crate) to: (Ipv4Addr, u16),
    /// Size of its answers.
    pub(crate) response_bytes: u32,
}

impl<'a> Asked<'a> {
    /// A GET that every policy allows.
    pub(crate) fn usual(&self) -> Ask<'a> {
        Ask {
            host: self.host,
            ..Ask::get(ALLOWED_PATH)
        }
    }
}

/// A request to the first service that clients call.
pub(crate) fn through_the_path(subject: &Subject<'_>, request: &Ask<'_>) -> Heard {
    one_request(subject.client, subject.service(), request)
}

/// A request to each service that clients call: whether all of them were answered.
pub(crate) fn each_answers(subject: &Subject<'_>) -> bool {
    let heard = |asked: Asked<'_>| one_request(subject.client, asked.to, &asked.usual());
    // Each is asked, whatever became of the one before.
    let all: Vec<Heard> = subject.services().into_iter().map(heard).collect();
    all.iter().all(Heard::is_ok)
}

pub(crate) fn permitted(subject: &mut Subject<'_>) -> ProbeResult {
    match each_permitted(subject) {
        Ok(seen) => result(names::PERMITTED, true, seen),
        Err(seen) => result(names::PERMITTED, false, seen),
    }
}

fn each_permitted(subject: &mut Subject<'_>) -> Result<String, String> {
    let (client, services) = (subject.client, subject.services());
    let mut sent = 0;
    for asked in &services {
        let of_it = |seen| match services.len() {
            1 => seen,
            _ => format!("{}: {seen}", asked.host),
        };
        ready(subject, client, asked).map_err(of_it)?;
        sent += send_canaries(subject, client, asked).map_err(of_it)?;
    }
    Ok(match services.len() {
        1 => format!("HTTP 200, {sent} of {sent}"),
        several => format!("HTTP 200, {sent} of {sent}, by {several} services"),
    })
}

/// A request through the whole path that every service that clients call must refuse.
pub(crate) fn refused_by_each(
    subject: &Subject<'_>,
    name: &str,
    what: &str,
    request: &Ask<'_>,
) -> ProbeResult {
    let services = subject.services();
    let answers = services.iter().map(|asked| {
        let request = Ask {
            host: asked.host,
            ..request.clone()
        };
        let who = match services.len() {
            1 => what.to_owned(),
            _ => format!("{what} at {}", asked.host),
        };
        let heard = one_request(subject.client, asked.to, &request);
        refused(name, &who, &heard)
    });
    let told: Vec<ProbeResult> = answers.collect();
    let seen: Vec<&str> = told.iter().map(|one| one.seen.as_str()).collect();
    match told.iter().find(|one| !one.passed) {
        Some(failed) => failed.clone(),
        None => result(name, true, seen.join("; ")),
    }
}

/// Readiness is the first permitted 200 through the whole path, not an open port.
///
/// # Errors
/// In words: what there was in its place until patience ended, or which component died.
pub(crate) fn ready(
    subject: &mut Subject<'_>,
    from: &NetNs,
    asked: &Asked<'_>,
) -> Result<(), String> {
    let deadline = subject.ready_until;
    loop {
        let heard = one_request(from, asked.to, &asked.usual());
        if heard.is_ok() {
            return Ok(());
        }
        if let Some(dead) = subject.components.iter_mut().find_map(Component::failure) {
            return Err(dead);
        }
        if Instant::now() > deadline {
            let words: String = subject
                .components
                .iter()
                .map(Component::last_words)
                .collect();
            return Err(format!("no 200: {}{words}", heard.describe()));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Redirected, a connection ends at the proxy's port in the pod's own namespace: there it must be seen
/// while it is open. Each service that clients call is looked at by itself.
pub(crate) fn in_the_path(
    subject: &Subject<'_>,
    client_port: u16,
    server_port: u16,
) -> ProbeResult {
    let near = match subject.site.has_outside_clients_only() {
        true => "the gateway's proxy",
        false => "the client's proxy",
    };
    let looked_at = |asked: Asked<'_>| {
        // Which of the replicas has the connection is the mesh's choice.
        let far = match subject.further(asked.host) {
            None => ("the server's proxy", subject.servers.clone(), server_port),
            Some(further) => (asked.host, further.pods.clone(), server_port),
        };
        let held = held_by(subject.client, &asked)?;
        let counted = holds(vec![(near, vec![subject.caller], client_port), far]);
        drop(held);
        through_all(&counted?)
    };
    let seen: Result<Vec<String>, String> = subject.services().into_iter().map(looked_at).collect();
    match seen {
        Ok(seen) => result(names::IN_THE_PATH, true, seen.join("; ")),
        Err(seen) => result(names::IN_THE_PATH, false, seen),
    }
}

/// A connection on which a permitted request was answered, still open.
pub(crate) fn held_by(from: &NetNs, asked: &Asked<'_>) -> Result<TcpStream, String> {
    let mut stream = connect(from, asked.to).map_err(|heard| heard.describe())?;
    let heard = ask(&mut stream, &asked.usual());
    match heard.is_ok() {
        true => Ok(stream),
        false => Err(heard.describe()),
    }
}

/// Something that should hold connections at a port, in one of some pods, and how many it does.
pub(crate) type Holds<'a> = (&'a str, u16, u32);

/// Counts the connections that each of these holds at its port.
pub(crate) fn holds<'a>(ends: Vec<(&'a str, Vec<&NetNs>, u16)>) -> Result<Vec<Holds<'a>>, String> {
    let counted: io::Result<Vec<_>> = ends
        .into_iter()
        .map(|(who, pods, port)| {
            let counts: io::Result<Vec<u32>> = pods
                .into_iter()
                .map(|pod| connections_at(pod, port))
                .collect();
            Ok((who, port, counts?.into_iter().sum()))
        })
        .collect();
    counted.map_err(|e| format!("the pods' sockets cannot be read: {e}"))
}

/// Connections whose own end in this pod has this port.
pub(crate) fn connections_at(pod: &NetNs, port: u16) -> io::Result<u32> {
    pod.run(|| meshtax_observe::established_connections_here(port).map_err(io::Error::other))
}

/// That each holds one at least.
///
/// # Errors
/// In words: which do not.
pub(crate) fn through_all(counted: &[Holds<'_>]) -> Result<String, String> {
    let around: Vec<String> = counted
        .iter()
        .filter(|(_, _, count)| *count == 0)
        .map(|(who, port, _)| {
            format!("{who} holds no connection at port {port}: traffic goes around it")
        })
        .collect();
    if !around.is_empty() {
        return Err(around.join("; "));
    }
    let seen: Vec<String> = counted
        .iter()
        .map(|(who, port, count)| format!("{count} at {who} (port {port})"))
        .collect();
    Ok(format!("connections: {}", seen.join(", ")))
}

/// Requests that carry the canary, for the capture. Returns how many were answered: all of them.
///
/// # Errors
/// In words: how one was answered that was not as the application answers.
pub(crate) fn send_canaries(
    subject: &Subject<'_>,
    from: &NetNs,
    asked: &Asked<'_>,
) -> Result<u64, String> {
    let request = Ask {
        canary: Some(subject.canary),
        ..asked.usual()
    };
    let mut stream = connect(from, asked.to).map_err(|heard| heard.describe())?;
    let count = canaries(asked.response_bytes);
    for _ in 0..count {
        let heard = ask(&mut stream, &request);
        let Heard::Answer {
            status: 200,
            body,
            echoed_canary,
        } = &heard
        else {
            return Err(heard.describe());
        };
        if body.len() != asked.response_bytes as usize
            || echoed_canary.as_deref() != Some(subject.canary)
        {
            return Err(format!(
                "the answer is not the application's: {} bytes",
                body.len()
            ));
        }
    }
    Ok(count)
}
