//! What a load was configured with, for its result: without secrets and without what is long.

use meshtax_model::load::{LoadSettings, OfferedLoad, RequestSettings, TlsSettings};

use crate::spec::{LoadModel, LoadSpec, Request, Tls};

/// Headers whose values are secrets: results are passed on.
const SECRET_HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// Replaces a secret.
const HIDDEN: &str = "(hidden)";

impl LoadSpec {
    /// The settings that belong to the load's result.
    #[must_use]
    pub fn settings(&self) -> LoadSettings {
        LoadSettings {
            target: self.target,
            protocol: self.protocol,
            tls: self.tls.as_ref().map(tls),
            requests: self.requests.iter().map(request).collect(),
            connections: self.connections,
            requests_per_connection: self.requests_per_connection,
            threads: self.threads,
            model: model(&self.model),
            seed: self.seed,
            warmup_ns: self.warmup_ns,
            window_ns: self.window_ns,
            cooldown_ns: self.cooldown_ns,
            max_requests: self.max_requests,
            timeout_ns: self.timeout_ns,
            drain_ns: self.drain_ns,
            connect_timeout_ns: self.connect_timeout_ns,
            interval_ns: self.interval_ns,
            cores: self.cores.clone(),
            spin: self.spin,
            io_uring: self.io_uring,
        }
    }
}

fn tls(tls: &Tls) -> TlsSettings {
    let credentials = &tls.credentials;
    TlsSettings {
        server_name: tls.server_name.clone(),
        insecure: credentials.insecure,
        custom_authorities: credentials.roots_pem.is_some(),
        client_certificate: credentials.chain_pem.is_some(),
    }
}

fn request(request: &Request) -> RequestSettings {
    let header = |(name, value): &(String, String)| {
        let mut secrets = SECRET_HEADERS.iter();
        let is_secret = secrets.any(|secret| name.eq_ignore_ascii_case(secret));
        let value = if is_secret { HIDDEN } else { value };
        (name.clone(), value.to_owned())
    };
    RequestSettings {
        weight: request.weight,
        method: request.method.clone(),
        host: request.host.clone(),
        path: request.path.clone(),
        headers: request.headers.iter().map(header).collect(),
        body_bytes: request.body.len() as u64,
    }
}

fn model(model: &LoadModel) -> OfferedLoad {
    match model {
        LoadModel::Open { rate, arrivals } => OfferedLoad::Open {
            rate: *rate,
            arrivals: *arrivals,
        },
        LoadModel::Replay { times_ns } => OfferedLoad::Replay {
            times: times_ns.len() as u64,
        },
        LoadModel::Users {
            rate_per_s,
            arrivals,
        } => OfferedLoad::Users {
            rate_per_s: *rate_per_s,
            arrivals: *arrivals,
        },
        LoadModel::Closed { think_ns } => OfferedLoad::Closed {
            think_ns: *think_ns,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_no_secrets_bodies_or_send_times() {
        let mut spec = LoadSpec::new(([127, 0, 0, 1], 8080).into());
        let mut secure = Tls::default();
        secure.credentials.key_pem = Some("KEY-SECRET".into());
        secure.credentials.chain_pem = Some("CHAIN-SECRET".into());
        spec.tls = Some(secure);
        let request = &mut spec.requests[0];
        request
            .headers
            .push(("Authorization".into(), "Bearer SECRET".into()));
        request.headers.push(("x-a".into(), "shown".into()));
        request.body = b"BODY".repeat(1000);
        spec.model = LoadModel::Replay {
            times_ns: vec![0, 987_654_321],
        };
        let text = serde_json::to_string(&spec.settings()).unwrap();
        for absent in ["SECRET", "Qk9E", "987654321"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        for present in [
            "\"body_bytes\":4000",
            "\"times\":2",
            "\"client_certificate\":true",
            "shown",
            "(hidden)",
        ] {
            assert!(text.contains(present), "no {present} in {text}");
        }
    }
}
