//! What to check after a load that failed, or whose measurement is not meaningful.

use meshtax_model::load::{FinishedLoad, LoadSettings, Protocol};
use meshtax_model::trial::ErrorKind;

/// Statuses that, as the status of nearly all responses, mean that the request is wrong; and what to check.
const STATUSES: [(u16, &str); 13] = [
    (301, "redirects are not followed: use the final URL"),
    (302, "redirects are not followed: use the final URL"),
    (307, "redirects are not followed: use the final URL"),
    (308, "redirects are not followed: use the final URL"),
    (
        400,
        "the server rejects the request: check path, headers and -H Host",
    ),
    (401, "pass credentials with -H 'Authorization: …'"),
    (
        403,
        "access is denied: check credentials, -H Host and network policies",
    ),
    (
        404,
        "check the path, and the host if the server has virtual hosts (-H Host)",
    ),
    (405, "the server expects another method (-m)"),
    (413, "the body is too large for the server"),
    (429, "a rate limit applies: the load measures the limiter"),
    (502, "a proxy responds; its upstream fails"),
    (503, "the server is overloaded or has no upstream"),
];

/// From this share of the responses on, one status is what the load measured.
const NEARLY_ALL: f64 = 0.9;

/// What to check; empty if nothing looks wrong.
pub(super) fn hints(load: &FinishedLoad) -> Vec<String> {
    let (settings, result) = (&load.settings, &load.result);
    let mut hints = Vec::new();
    hints.extend(for_status(load));
    hints.extend(for_grpc_status(load));
    if result.completed == 0 {
        hints.extend(without_response(load));
    } else if result.errors.total() == 0
        && result.queued * 2 > result.offered
        && !settings.model.is_closed()
    {
        hints.push(
            "most requests waited for a free connection: the rate is above the capacity of these connections; \
             use more (-c) unless that is what you measure"
                .into(),
        );
    }
    hints
}

fn for_status(load: &FinishedLoad) -> Option<String> {
    let statuses = &load.result.status;
    let responses: u64 = statuses.values().sum();
    let (status, count) = statuses.iter().max_by_key(|(_, count)| **count)?;
    let (_, hint) = STATUSES.iter().find(|(known, _)| known == status)?;
    let share = *count as f64 / responses as f64;
    (share >= NEARLY_ALL).then(|| {
        let which = if *count == responses {
            "all responses"
        } else {
            "nearly all responses"
        };
        format!("{which} have status {status}: {hint}")
    })
}

fn for_grpc_status(load: &FinishedLoad) -> Option<String> {
    let codes = &load.result.grpc_status;
    let responses: u64 = codes.values().sum();
    let (code, count) = codes.iter().find(|(code, _)| **code != 0)?;
    let hint = match code {
        3 | 13 => "the method may expect another message (-D FILE or --body-hex)",
        7 | 16 => "the call is not allowed: check credentials",
        12 => "the server has no such method: check --grpc",
        14 => "the upstream is unavailable",
        _ => return None,
    };
    (*count as f64 / responses as f64 >= NEARLY_ALL).then(|| format!("gRPC status {code}: {hint}"))
}

/// What to check, by the most frequent kind of error.
fn without_response(load: &FinishedLoad) -> Option<String> {
    let (settings, result) = (&load.settings, &load.result);
    let kinds = result.errors.by_kind();
    let (kind, count) = kinds.iter().max_by_key(|(_, count)| *count)?;
    if *count == 0 {
        let nothing =
            "no response arrived in the window: use a longer window (-z), or check the server";
        return Some(nothing.into());
    }
    let target = settings.target;
    Some(match kind {
        ErrorKind::Connect => {
            format!("no connection to {target} could be opened: check that a server listens there")
        }
        ErrorKind::Reset => format!(
            "{target} closes connections without a response: {}",
            wrong_protocol(settings)
        ),
        ErrorKind::Timeout => {
            "no response arrived in time: check the server, or use a longer timeout (-t)".into()
        }
        ErrorKind::Tls => failed_handshakes(settings).into(),
        ErrorKind::Protocol => format!(
            "{target} does not send valid responses: {}",
            wrong_protocol(settings)
        ),
    })
}

fn wrong_protocol(settings: &LoadSettings) -> &'static str {
    match (settings.protocol, settings.tls.is_some()) {
        (Protocol::Http2 { .. } | Protocol::Grpc { .. }, false) => {
            "it may support HTTP/2 only over TLS (https), or not at all (leave --http2 out)"
        }
        (Protocol::Tcp, _) => "it may not be an echo server",
        (_, false) => "it may expect TLS (https), or not speak HTTP",
        (_, true) => "it may require a client certificate (--cert, --key), or not speak HTTP",
    }
}

fn failed_handshakes(settings: &LoadSettings) -> &'static str {
    let tls = settings.tls.as_ref();
    if tls.is_some_and(|tls| tls.client_certificate) {
        "the TLS handshakes failed: the server may not trust --cert, or not speak TLS on this port"
    } else {
        "the TLS handshakes failed: trust the server's authority with --cacert, or any with --insecure; \
         the server may also require a client certificate (--cert, --key)"
    }
}

#[cfg(test)]
mod tests {
    use meshtax_fixtures::load::finished;
    use meshtax_model::trial::{ErrorCounts, LoadResult};

    use super::*;

    fn hints_of(change: impl FnOnce(&mut LoadSettings, &mut LoadResult)) -> String {
        hints(&finished(change)).join("\n")
    }

    #[test]
    fn successful_load_has_no_hints() {
        assert_eq!(hints_of(|_, _| {}), "");
    }

    #[test]
    fn status_of_nearly_all_responses_is_explained() {
        let hint = hints_of(|_, result| result.status = [(404, 10)].into());
        assert!(
            hint.starts_with("all responses have status 404: check the path"),
            "{hint}"
        );
        let hint = hints_of(|_, result| result.status = [(200, 1), (302, 99)].into());
        assert!(
            hint.starts_with("nearly all responses have status 302"),
            "{hint}"
        );
        assert_eq!(
            hints_of(|_, result| result.status = [(200, 50), (404, 50)].into()),
            ""
        );
    }

    #[test]
    fn grpc_status_of_all_responses_is_explained() {
        let hint = hints_of(|_, result| result.grpc_status = [(12, 10)].into());
        assert!(hint.contains("no such method"), "{hint}");
    }

    #[test]
    fn load_without_responses_names_what_to_check() {
        let only = |errors: ErrorCounts| {
            hints_of(|_, result| {
                *result = LoadResult {
                    errors,
                    ..LoadResult::default()
                };
            })
        };
        let none = ErrorCounts::default;
        assert!(only(none()).contains("-z"));
        let connect = ErrorCounts {
            connect: 1,
            ..none()
        };
        assert!(only(connect).contains("127.0.0.1:8080"));
        let reset = ErrorCounts { reset: 1, ..none() };
        assert!(only(reset).contains("https"));
        let timeout = ErrorCounts {
            timeout: 1,
            ..none()
        };
        assert!(only(timeout).contains("-t"));
        let tls = ErrorCounts { tls: 1, ..none() };
        assert!(only(tls).contains("--insecure"));
        let protocol = ErrorCounts {
            protocol: 1,
            ..none()
        };
        assert!(only(protocol).contains("valid responses"));
    }

    #[test]
    fn too_few_connections_are_pointed_out() {
        let hint = hints_of(|_, result| {
            result.errors = ErrorCounts::default();
            result.queued = 1500;
        });
        assert!(hint.contains("-c"), "{hint}");
    }
}
