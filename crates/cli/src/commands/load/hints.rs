//! What may be wrong where a load came to nothing, or to something that nobody wants to measure.

use meshtax_load::{LoadError, LoadSpec, Protocol};

use super::figures::Finished;

/// Statuses that, where nearly all answers have them, say that the request is wrong, and what to
/// look at.
const STATUSES: [(u16, &str); 13] = [
    (301, "redirects are not followed: give the final URL"),
    (302, "redirects are not followed: give the final URL"),
    (307, "redirects are not followed: give the final URL"),
    (308, "redirects are not followed: give the final URL"),
    (
        400,
        "the server takes the request for a bad one: check path, headers and -H Host",
    ),
    (401, "give credentials with -H 'Authorization: …'"),
    (
        403,
        "the server forbids it: check credentials, -H Host and the network's policies",
    ),
    (
        404,
        "check the path, and the host if the server tells hosts apart (-H Host)",
    ),
    (405, "the server takes another method (-m)"),
    (413, "the body is too large for the server"),
    (429, "a rate limit answers: what is measured is the limiter"),
    (502, "a proxy answers that what is behind it fails"),
    (503, "what answers is overloaded, or has nothing behind it"),
];

/// The share of answers from which one status is the story.
const NEARLY_ALL: f64 = 0.9;

/// What a person should look at; empty where all is well.
pub(super) fn hints(finished: &Finished<'_>) -> Vec<String> {
    let (spec, result) = (finished.spec, finished.result);
    let mut hints = Vec::new();
    hints.extend(of_status(finished));
    hints.extend(of_grpc(finished));
    if result.completed == 0 {
        hints.extend(of_no_answer(finished));
    } else if result.errors.total() == 0
        && result.queued * 2 > result.offered
        && !spec.model.is_closed()
    {
        hints.push(
            "most requests waited for a connection: the rate is above what these connections carry; \
             use more (-c) unless that is what you measure"
                .into(),
        );
    }
    hints
}

fn of_status(finished: &Finished<'_>) -> Option<String> {
    let result = finished.result;
    let answers: u64 = result.status.values().sum();
    let (status, count) = result.status.iter().max_by_key(|(_, count)| **count)?;
    let (_, hint) = STATUSES.iter().find(|(known, _)| known == status)?;
    let share = *count as f64 / answers as f64;
    (share >= NEARLY_ALL).then(|| {
        let how_many = if *count == answers {
            "every answer"
        } else {
            "nearly every answer"
        };
        format!("{how_many} has status {status}: {hint}")
    })
}

fn of_grpc(finished: &Finished<'_>) -> Option<String> {
    let codes = &finished.result.grpc_status;
    let answers: u64 = codes.values().sum();
    let (code, count) = codes.iter().find(|(code, _)| **code != 0)?;
    let hint = match code {
        3 | 13 => "the message may not be what the method takes (-D FILE or --body-hex)",
        7 | 16 => "the call is not allowed: check credentials",
        12 => "the server has no such method: check --grpc",
        14 => "the server is not available to what answers",
        _ => return None,
    };
    (*count as f64 / answers as f64 >= NEARLY_ALL).then(|| format!("gRPC status {code}: {hint}"))
}

/// The kind of error there was most of says where to look.
fn of_no_answer(finished: &Finished<'_>) -> Option<String> {
    let (spec, result) = (finished.spec, finished.result);
    let kinds = result.errors.by_kind();
    let (kind, count) = kinds.iter().max_by_key(|(_, count)| *count)?;
    if *count == 0 {
        let nothing =
            "no answer came in the window: give it longer (-z), or see what the server does";
        return Some(nothing.into());
    }
    let target = spec.target;
    Some(match *kind {
        "connect" => {
            format!("no connection to {target} could be made: see that a server listens there")
        }
        "reset" => format!(
            "{target} closes connections without an answer: {}",
            wrong_protocol(spec)
        ),
        "timeout" => {
            "no answer came in time: see what the server does, or give it longer (-t)".into()
        }
        "tls" => tls_fix(spec).into(),
        _ => format!("what {target} says is no answer: {}", wrong_protocol(spec)),
    })
}

fn wrong_protocol(spec: &LoadSpec) -> &'static str {
    match (spec.protocol, spec.tls.is_some()) {
        (Protocol::Http2 { .. } | Protocol::Grpc { .. }, false) => {
            "it may speak HTTP/2 only over TLS (https), or not at all (leave --http2 out)"
        }
        (Protocol::Tcp, _) => "it may be no echo",
        (_, false) => "it may speak TLS (https), or no HTTP",
        (_, true) => "it may want a certificate of ours (--cert, --key), or speak no HTTP",
    }
}

fn tls_fix(spec: &LoadSpec) -> &'static str {
    let own = spec
        .tls
        .as_ref()
        .is_some_and(|tls| tls.credentials.chain_pem.is_some());
    if own {
        "the TLS handshakes failed: the server may not trust --cert, or speak no TLS on this port"
    } else {
        "the TLS handshakes failed: trust the server's authority with --cacert, or any with --insecure; \
         it may also want a certificate (--cert, --key)"
    }
}

/// What the command line can do about a load that could not begin.
pub(super) fn of_error(error: &LoadError) -> Option<&'static str> {
    let LoadError::Connect { cause, .. } = error else {
        return None;
    };
    if cause.contains("certificate") {
        return Some(
            "--cacert FILE trusts its authority, --insecure any, --server-name another name",
        );
    }
    cause.contains("TLS handshake").then_some(
        "http:// for a port without TLS, --cert and --key where the server asks for them",
    )
}

#[cfg(test)]
mod tests {
    use meshtax_model::trial::{ErrorCounts, LoadResult};

    use super::super::figures::example;
    use super::*;

    fn of(change: impl FnOnce(&mut LoadSpec, &mut LoadResult)) -> String {
        example::written(change, |finished| hints(finished).join("\n"))
    }

    #[test]
    fn nothing_is_said_where_all_is_well() {
        assert_eq!(of(|_, _| {}), "");
    }

    #[test]
    fn a_status_that_all_answers_have() {
        let hint = of(|_, result| result.status = [(404, 10)].into());
        assert!(
            hint.starts_with("every answer has status 404: check the path"),
            "{hint}"
        );
        let hint = of(|_, result| result.status = [(200, 1), (302, 99)].into());
        assert!(
            hint.starts_with("nearly every answer has status 302"),
            "{hint}"
        );
        assert_eq!(
            of(|_, result| result.status = [(200, 50), (404, 50)].into()),
            ""
        );
    }

    #[test]
    fn grpc_statuses() {
        let hint = of(|_, result| result.grpc_status = [(12, 10)].into());
        assert!(hint.contains("no such method"), "{hint}");
    }

    #[test]
    fn errors_alone_say_where_to_look() {
        let only = |errors: ErrorCounts| {
            of(|_, result| {
                *result = LoadResult {
                    errors,
                    ..LoadResult::default()
                };
            })
        };
        let none = ErrorCounts::default();
        assert!(only(none.clone()).contains("-z"));
        assert!(
            only(ErrorCounts {
                connect: 1,
                ..none.clone()
            })
            .contains("127.0.0.1:8080")
        );
        assert!(
            only(ErrorCounts {
                reset: 1,
                ..none.clone()
            })
            .contains("https")
        );
        assert!(
            only(ErrorCounts {
                timeout: 1,
                ..none.clone()
            })
            .contains("-t")
        );
        assert!(
            only(ErrorCounts {
                tls: 1,
                ..none.clone()
            })
            .contains("--insecure")
        );
        assert!(
            only(ErrorCounts {
                protocol: 1,
                ..none
            })
            .contains("no answer")
        );
    }

    #[test]
    fn too_few_connections() {
        let hint = of(|_, result| {
            result.errors = ErrorCounts::default();
            result.queued = 1500;
        });
        assert!(hint.contains("-c"), "{hint}");
    }
}
