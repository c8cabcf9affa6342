//! What a probe found.

use std::io;

use meshtax_model::evidence::{ProbeId, ProbeResult};
use meshtax_model::failure::ComponentFailure;

use crate::deployment::NoCertificate;
use crate::http::HttpOutcome;

/// Whether a check passed, and what it observed, for a person.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) passed: bool,
    pub(crate) seen: String,
}

impl Finding {
    pub(crate) fn new(passed: bool, seen: impl Into<String>) -> Self {
        Self {
            passed,
            seen: seen.into(),
        }
    }

    pub(crate) fn passed(seen: impl Into<String>) -> Self {
        Self::new(true, seen)
    }

    pub(crate) fn failed(seen: impl Into<String>) -> Self {
        Self::new(false, seen)
    }

    /// All of these together: the first that failed, or what all observed.
    pub(crate) fn all(findings: &[Self]) -> Self {
        match findings.iter().find(|finding| !finding.passed) {
            Some(failed) => failed.clone(),
            None => {
                let seen: Vec<&str> = findings.iter().map(|f| f.seen.as_str()).collect();
                Self::passed(seen.join("; "))
            }
        }
    }

    /// The findings of several subjects, with their names: those that failed, or what the first observed.
    pub(crate) fn of_each(mut findings: Vec<(&str, Self)>) -> Self {
        if findings.len() == 1 {
            return findings.remove(0).1;
        }
        let failed = findings.iter().filter(|(_, finding)| !finding.passed);
        let failed: Vec<String> = failed
            .map(|(name, finding)| format!("{name}: {}", finding.seen))
            .collect();
        match (failed.is_empty(), findings.first()) {
            (false, _) => Self::failed(failed.join("; ")),
            (true, None) => Self::failed("there is nobody to observe it"),
            (true, Some((name, first))) => {
                let count = findings.len();
                Self::passed(format!("{count} clients; {name}: {}", first.seen))
            }
        }
    }

    pub(crate) fn of(self, probe: ProbeId) -> ProbeResult {
        ProbeResult {
            probe,
            passed: self.passed,
            seen: self.seen,
        }
    }
}

impl From<Result<String, ProbeError>> for Finding {
    fn from(result: Result<String, ProbeError>) -> Self {
        match result {
            Ok(seen) => Self::passed(seen),
            Err(error) => Self::failed(error.to_string()),
        }
    }
}

/// Why a probe could not observe what it needs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("{0}")]
    Unexpected(HttpOutcome),
    #[error("{service}: {source}")]
    AtService { service: String, source: Box<Self> },
    #[error("no 200: {outcome}{}", appended(.last_output))]
    NotReady {
        outcome: HttpOutcome,
        last_output: Vec<String>,
    },
    #[error("{0}")]
    Ended(ComponentFailure),
    #[error("the response is not the application's: {0} bytes")]
    ForeignResponse(usize),
    #[error("the application's page cannot be parsed: {0}")]
    UnreadablePage(#[from] serde_json::Error),
    #[error("the pods' sockets cannot be listed: {0}")]
    Sockets(#[source] io::Error),
    #[error("{}", bypasses(.0))]
    Bypassed(Vec<(String, u16)>),
    #[error("the load cannot be offered: {0}")]
    Load(#[source] io::Error),
    #[error("{succeeded} of {requests} succeeded: {others}")]
    FewSucceeded {
        succeeded: u64,
        requests: u64,
        others: String,
    },
    #[error("a proxy's page: {0}")]
    ProxyPage(HttpOutcome),
    #[error("a proxy's page has no number for {0}")]
    NoCounter(String),
    #[error("the application received no {0}: no client identity was verified")]
    NoHeader(String),
    #[error("no URI in x-forwarded-client-cert: {0}")]
    NoUri(String),
    #[error("the server's side reported no client identity, expected {0}")]
    NoIdentity(String),
    #[error("no proxy runs that could have verified it")]
    NoVerifier,
    #[error(transparent)]
    NoCertificate(#[from] NoCertificate),
    #[error("the contract has no ingress")]
    NoIngress,
    #[error("{switch} is {}, expected {expected}", .seen.as_deref().unwrap_or("not set"))]
    Switch {
        switch: String,
        expected: String,
        seen: Option<String>,
    },
}

fn appended(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => format!("; last output: {}", lines.join(" | ")),
    }
}

fn bypasses(holders: &[(String, u16)]) -> String {
    let holder = |(who, port): &(String, u16)| {
        format!("{who} holds no connection at port {port}: the traffic bypasses it")
    };
    let all: Vec<String> = holders.iter().map(holder).collect();
    all.join("; ")
}

/// The kernel drops packets of a capture that are not read in time: then absence proves nothing.
pub(crate) fn dropped(packets: u64) -> Option<Finding> {
    (packets > 0).then(|| {
        Finding::failed(format!(
            "the capture is incomplete, and proves nothing (packets dropped by the kernel: {packets}): the machine is too busy"
        ))
    })
}
