//! Envoy's aggregated discovery service (`envoy.service.discovery.v3`), by delta, as Istio serves it since its version
//! 1.22: what a proxy asks for is sent once, and from then on what changes only.

mod message;

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use meshtax_dataplane::Discovery;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Interval;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, StreamingService};
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use self::message::{ASSIGNMENT, CLUSTER, EncodeError, Message, ROUTES};
use crate::server::{OneMethod, Played, Server};

/// `DeltaDiscoveryRequest`, as far as it is of interest here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Asks {
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) unsubscribe: Vec<String>,
    /// Of the answer that this one speaks of.
    #[prost(string, tag = "6")]
    pub(crate) nonce: String,
    /// Why that was not taken.
    #[prost(message, optional, tag = "7")]
    pub(crate) refusal: Option<Refusal>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Refusal {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

/// `DeltaDiscoveryResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Says {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) resources: Vec<Resource>,
    #[prost(string, tag = "4")]
    pub(crate) type_url: String,
    #[prost(string, tag = "5")]
    pub(crate) nonce: String,
}

/// `Resource`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) resource: Option<prost_types::Any>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

/// A served proxy, until this is dropped.
#[derive(Debug)]
pub struct DiscoveryServer {
    progress: Arc<Mutex<Progress>>,
    changing: watch::Sender<bool>,
    _server: Server,
}

/// How far a proxy has taken what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It has not said yet that it holds all.
    Underway {
        /// Resources that it holds.
        held: usize,
        /// Resources in all.
        of: usize,
    },
    /// It holds all, this long after the first of it was sent.
    Held(Duration),
    /// It does not take what it is told; its words.
    Refused(String),
}

/// Changes of endpoints since the server began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Said to the proxy.
    pub said: u64,
    /// That it said to hold.
    pub held: u64,
}

impl DiscoveryServer {
    /// How far the proxy is.
    #[must_use]
    pub fn pushed(&self) -> Pushed {
        lock(&self.progress).pushed()
    }

    /// Changes so far.
    #[must_use]
    pub fn changed(&self) -> Changed {
        lock(&self.progress).changed
    }

    /// Whether endpoints change from now on. Without a rate in what is told, none ever does.
    pub fn set_changing(&self, changing: bool) {
        self.changing.send_replace(changing);
    }
}

/// Tells one proxy, in clear: on loopback it asks for no more.
///
/// # Errors
/// If something that is to be told has no bytes, or the server's thread cannot be started.
pub fn discovery(listener: TcpListener, tells: &Discovery) -> io::Result<DiscoveryServer> {
    let all = Arc::new(All::of(tells).map_err(io::Error::other)?);
    let progress = Arc::new(Mutex::new(Progress {
        of: all.count(),
        ..Progress::default()
    }));
    let (changing, watched) = watch::channel(false);
    let service = DiscoveryService {
        all,
        progress: Arc::clone(&progress),
        changing: watched,
    };
    Ok(DiscoveryServer {
        progress,
        changing,
        _server: Server::start(listener, Routes::new(Played(service)), None)?,
    })
}

/// What is told, in bytes: encoding is no part of a proxy's time.
#[derive(Debug)]
struct All {
    /// By type, then by name.
    resources: BTreeMap<String, BTreeMap<String, Resource>>,
    /// In JSON, of which one at a time changes.
    assignments: Vec<Value>,
    changes_per_s: Option<f64>,
}

const FIRST_VERSION: &str = "1";
/// A proxy asks for the endpoints of each cluster by name, all in one message.
const MOST_ASKED_BYTES: usize = 64 << 20;

impl All {
    fn of(tells: &Discovery) -> Result<Self, EncodeError> {
        let mut resources = BTreeMap::new();
        for (message, name, said) in [
            (&CLUSTER, "name", &tells.clusters),
            (&ASSIGNMENT, "cluster_name", &tells.endpoints),
            (&ROUTES, "name", &tells.routes),
        ] {
            let mut named = BTreeMap::new();
            for json in said {
                let resource = resource(message, name, json, FIRST_VERSION)?;
                named.insert(resource.name.clone(), resource);
            }
            resources.insert(message.type_url(), named);
        }
        Ok(Self {
            resources,
            assignments: tells.endpoints.clone(),
            changes_per_s: tells.changes_per_s,
        })
    }

    fn count(&self) -> usize {
        self.resources.values().map(BTreeMap::len).sum()
    }

    /// Of a type, those that are asked for; all if there are no names, or with a `*`.
    fn asked(&self, type_url: &str, names: &[String]) -> Vec<Resource> {
        let Some(known) = self.resources.get(type_url) else {
            return Vec::new();
        };
        if names.is_empty() || names.iter().any(|name| name == "*") {
            return known.values().cloned().collect();
        }
        names
            .iter()
            .filter_map(|name| known.get(name).cloned())
            .collect()
    }
}

fn resource(
    message: &Message,
    name: &str,
    json: &Value,
    version: &str,
) -> Result<Resource, EncodeError> {
    Ok(Resource {
        version: version.to_owned(),
        resource: Some(prost_types::Any {
            type_url: message.type_url(),
            value: message.encode(json)?,
        }),
        name: json[name].as_str().unwrap_or_default().to_owned(),
    })
}

/// What was said, and what was taken.
#[derive(Debug, Default)]
struct Progress {
    of: usize,
    held: usize,
    began: Option<Instant>,
    took: Option<Duration>,
    refused: Option<String>,
    changed: Changed,
    /// By nonce, what is on its way.
    said: BTreeMap<String, Said>,
    nonces: u64,
}

#[derive(Clone, Copy, Debug)]
enum Said {
    /// So many resources, for the first time.
    First(usize),
    Change,
}

impl Progress {
    fn pushed(&self) -> Pushed {
        match (&self.refused, self.took) {
            (Some(why), _) => Pushed::Refused(why.clone()),
            (None, Some(took)) => Pushed::Held(took),
            (None, None) => Pushed::Underway {
                held: self.held,
                of: self.of,
            },
        }
    }

    /// Before something is sent; returns its nonce.
    fn says(&mut self, said: Said) -> String {
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        self.began.get_or_insert_with(Instant::now);
        if matches!(said, Said::Change) {
            self.changed.said += 1;
        }
        self.said.insert(nonce.clone(), said);
        nonce
    }

    /// What the proxy answered to something.
    fn hears(&mut self, asks: &Asks) {
        let Some(said) = self.said.remove(&asks.nonce) else {
            return;
        };
        if let Some(refusal) = &asks.refusal {
            self.refused = Some(format!("{}: {}", asks.type_url, refusal.message));
            return;
        }
        match said {
            Said::Change => self.changed.held += 1,
            Said::First(count) => self.held += count,
        }
        if self.held >= self.of && self.took.is_none() {
            self.took = self.began.map(|began| began.elapsed());
        }
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug)]
struct DiscoveryService {
    all: Arc<All>,
    progress: Arc<Mutex<Progress>>,
    changing: watch::Receiver<bool>,
}

type Stayed = Pin<Box<dyn Stream<Item = Result<Says, Status>> + Send>>;

impl StreamingService<Asks> for DiscoveryService {
    type Response = Says;
    type ResponseStream = Stayed;
    type Future = Ready<Result<Response<Stayed>, Status>>;

    fn call(&mut self, request: Request<Streaming<Asks>>) -> Self::Future {
        // Nobody waits for a reader that is slow: what is not taken keeps the next from being said.
        let (says, said) = mpsc::channel(4);
        tokio::spawn(self.clone().converse(request.into_inner(), says));
        let stream: Stayed = Box::pin(ReceiverStream::new(said).map(Ok));
        ready(Ok(Response::new(stream)))
    }
}

impl OneMethod for DiscoveryService {
    const SERVICE: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
    const METHOD: &'static str = "DeltaAggregatedResources";

    async fn called(self, request: http::Request<Body>) -> http::Response<Body> {
        let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MOST_ASKED_BYTES);
        grpc.streaming(self, request).await
    }
}

impl DiscoveryService {
    /// One stream, until either side ends it.
    async fn converse(mut self, mut asked: Streaming<Asks>, says: mpsc::Sender<Says>) {
        let mut changes = Changes::new(&self.all);
        loop {
            let changing = *self.changing.borrow_and_update();
            let next = tokio::select! {
                asks = asked.message() => match asks {
                    Ok(Some(asks)) => self.answer(&asks),
                    Ok(None) | Err(_) => return,
                },
                switched = self.changing.changed() => {
                    if switched.is_err() {
                        return;
                    }
                    changes.restart();
                    None
                }
                () = changes.due(), if changing => self.change(&mut changes),
            };
            if let Some(next) = next
                && says.send(next).await.is_err()
            {
                return;
            }
        }
    }

    /// An answer if something is asked for; what is only acknowledged needs none.
    fn answer(&self, asks: &Asks) -> Option<Says> {
        let mut progress = lock(&self.progress);
        progress.hears(asks);
        let speaks_of_others = !asks.nonce.is_empty() || !asks.unsubscribe.is_empty();
        if speaks_of_others && asks.subscribe.is_empty() {
            return None;
        }
        let resources = self.all.asked(&asks.type_url, &asks.subscribe);
        Some(Says {
            version: FIRST_VERSION.to_owned(),
            nonce: progress.says(Said::First(resources.len())),
            type_url: asks.type_url.clone(),
            resources,
        })
    }

    fn change(&self, changes: &mut Changes) -> Option<Says> {
        let resource = changes.replace_one()?;
        Some(Says {
            version: resource.version.clone(),
            nonce: lock(&self.progress).says(Said::Change),
            type_url: ASSIGNMENT.type_url(),
            resources: vec![resource],
        })
    }
}

/// Endpoints that go and others that come, service by service.
struct Changes {
    assignments: Vec<Value>,
    ticks: Option<Interval>,
    made: usize,
}

impl Changes {
    fn new(all: &All) -> Self {
        let every = all.changes_per_s.filter(|rate| *rate > 0.0);
        let every = every.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Self {
            assignments: all.assignments.clone(),
            ticks: every.map(tokio::time::interval),
            made: 0,
        }
    }

    /// The gaps are counted from now on.
    fn restart(&mut self) {
        if let Some(ticks) = &mut self.ticks {
            ticks.reset();
        }
    }

    async fn due(&mut self) {
        match &mut self.ticks {
            Some(ticks) => {
                ticks.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    /// The next service's endpoints, one of them replaced.
    fn replace_one(&mut self) -> Option<Resource> {
        let services = self.assignments.len();
        if services == 0 {
            return None;
        }
        let (service, turn) = (self.made % services, self.made / services);
        self.made += 1;
        let assignment = &mut self.assignments[service];
        let endpoints = assignment.pointer_mut("/endpoints/0/lb_endpoints")?;
        let endpoints = endpoints.as_array_mut()?;
        let endpoint = turn % endpoints.len().max(1);
        let at = endpoints
            .get_mut(endpoint)?
            .pointer_mut("/endpoint/address/socket_address/address")?;
        let address: Ipv4Addr = at.as_str()?.parse().ok()?;
        *at = json!(another(address).to_string());
        let version = (self.made + 1).to_string();
        resource(&ASSIGNMENT, "cluster_name", assignment, &version).ok()
    }
}

/// An address that no other endpoint has: far from all that a cluster of a million begins with.
fn another(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) ^ (1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tells() -> Discovery {
        let endpoint = |last: u8| {
            let at = json!({"address": format!("100.64.0.{last}"), "port_value": 80});
            json!({"endpoint": {"address": {"socket_address": at}}})
        };
        let assignment = |name: &str, first: u8| json!({"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint(first), endpoint(first + 1)]}]});
        Discovery {
            clusters: vec![json!({"name": "a", "type": "EDS"}), json!({"name": "b"})],
            endpoints: vec![assignment("a", 1), assignment("b", 3)],
            routes: vec![json!({"name": "80", "virtual_hosts": []})],
            changes_per_s: None,
        }
    }

    fn service() -> DiscoveryService {
        let all = Arc::new(All::of(&tells()).unwrap());
        DiscoveryService {
            progress: Arc::new(Mutex::new(Progress {
                of: all.count(),
                ..Progress::default()
            })),
            all,
            changing: watch::channel(false).1,
        }
    }

    fn asks(message: &Message, names: &[&str], nonce: &str) -> Asks {
        Asks {
            type_url: message.type_url(),
            subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            unsubscribe: Vec::new(),
            nonce: nonce.to_owned(),
            refusal: None,
        }
    }

    #[test]
    fn all_is_held_when_the_last_of_it_is_acknowledged() {
        let service = service();
        let clusters = service.answer(&asks(&CLUSTER, &[], "")).unwrap();
        assert_eq!(clusters.resources.len(), 2);
        let endpoints = service.answer(&asks(&ASSIGNMENT, &["a", "b"], "")).unwrap();
        let routes = service.answer(&asks(&ROUTES, &["80"], "")).unwrap();
        for (said, message) in [(&clusters, &CLUSTER), (&routes, &ROUTES)] {
            assert!(service.answer(&asks(message, &[], &said.nonce)).is_none());
        }
        let pushed = || lock(&service.progress).pushed();
        assert_eq!(pushed(), Pushed::Underway { held: 3, of: 5 });
        service.answer(&asks(&ASSIGNMENT, &[], &endpoints.nonce));
        assert!(matches!(pushed(), Pushed::Held(_)));
    }

    #[test]
    fn what_a_proxy_refuses_is_told_in_its_words() {
        let service = service();
        let said = service.answer(&asks(&CLUSTER, &["*"], "")).unwrap();
        let refusal = Asks {
            refusal: Some(Refusal {
                code: 13,
                message: "no such socket".into(),
            }),
            ..asks(&CLUSTER, &[], &said.nonce)
        };
        assert!(service.answer(&refusal).is_none());
        let Pushed::Refused(why) = lock(&service.progress).pushed() else {
            panic!("it was refused");
        };
        assert!(why.ends_with("Cluster: no such socket"), "{why}");
    }

    #[test]
    fn each_change_replaces_one_endpoint_of_the_next_service() {
        let all = All::of(&tells()).unwrap();
        let mut changes = Changes::new(&all);
        let names: Vec<String> = (0..3)
            .map(|_| changes.replace_one().unwrap().name)
            .collect();
        assert_eq!(names, ["a", "b", "a"]);
        let changed = changes.assignments[0].to_string();
        let first = all.assignments[0].to_string();
        assert!(first.contains("\"100.64.0.1\"") && first.contains("\"100.64.0.2\""));
        assert!(changed.contains("\"100.80.0.1\"") && changed.contains("\"100.80.0.2\""));
        let nobody = All::of(&Discovery::default()).unwrap();
        assert!(Changes::new(&nobody).replace_one().is_none());
    }
}
