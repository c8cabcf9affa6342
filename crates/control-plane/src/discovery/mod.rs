//! Envoy's aggregated discovery service (`envoy.service.discovery.v3`), incremental, as Istio serves it since version
//! 1.22: subscribed resources are sent once, and afterwards only the changes.

mod message;
mod table;

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

use self::message::{EncodeError, Message};
use self::table::{ASSIGNMENT, CLUSTER, ROUTES};
use crate::server::{OneMethod, Server, SingleMethodService};

/// `DeltaDiscoveryRequest`; only the fields used here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeltaDiscoveryRequest {
    #[prost(string, tag = "2")]
    pub(crate) type_url: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) unsubscribe: Vec<String>,
    /// Nonce of the response that this request acknowledges or rejects.
    #[prost(string, tag = "6")]
    pub(crate) nonce: String,
    /// Why it was rejected.
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
pub(crate) struct DeltaDiscoveryResponse {
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

/// The discovery service of one proxy, until this value is dropped.
#[derive(Debug)]
pub struct DiscoveryServer {
    progress: Arc<Mutex<Progress>>,
    changing: watch::Sender<bool>,
    _server: Server,
}

/// How far a proxy has applied its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It has not acknowledged everything yet.
    Underway {
        /// Resources that it has acknowledged.
        held: usize,
        /// Total number of resources.
        of: usize,
    },
    /// All resources are acknowledged, this long after the first one was sent.
    Held(Duration),
    /// It rejected its configuration (NACK), with this error.
    Refused(String),
}

/// Endpoint changes since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Sent to the proxy.
    pub sent: u64,
    /// Acknowledged by the proxy.
    pub held: u64,
}

impl DiscoveryServer {
    /// The progress of the proxy.
    #[must_use]
    pub fn pushed(&self) -> Pushed {
        lock(&self.progress).pushed()
    }

    /// Changes so far.
    #[must_use]
    pub fn changed(&self) -> Changed {
        lock(&self.progress).changed
    }

    /// Starts or stops the endpoint changes. Without a configured rate, there are none.
    pub fn set_changing(&self, changing: bool) {
        self.changing.send_replace(changing);
    }
}

/// Serves one proxy in plaintext, on loopback.
///
/// # Errors
/// If a resource cannot be encoded, or the server's thread cannot be started.
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
        _server: Server::start(listener, Routes::new(SingleMethodService(service)), None)?,
    })
}

/// The resources, encoded in advance: encoding must not count as a proxy's time.
#[derive(Debug)]
struct All {
    /// By type, then by name.
    resources: BTreeMap<String, BTreeMap<String, Resource>>,
    /// In JSON; one is changed at a time.
    assignments: Vec<Value>,
    changes_per_s: Option<f64>,
}

const FIRST_VERSION: &str = "1";
/// A proxy subscribes to the endpoints of each cluster by name, all in one message.
const MOST_ASKED_BYTES: usize = 64 << 20;

impl All {
    fn of(tells: &Discovery) -> Result<Self, EncodeError> {
        let mut resources = BTreeMap::new();
        for (message, name, sent) in [
            (&CLUSTER, "name", &tells.clusters),
            (&ASSIGNMENT, "cluster_name", &tells.endpoints),
            (&ROUTES, "name", &tells.routes),
        ] {
            let mut named = BTreeMap::new();
            for json in sent {
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

    /// The subscribed resources of a type; all if there are no names, or with a `*`.
    fn matching(&self, type_url: &str, names: &[String]) -> Vec<Resource> {
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

/// What was sent, and what was acknowledged.
#[derive(Debug, Default)]
struct Progress {
    of: usize,
    held: usize,
    began: Option<Instant>,
    took: Option<Duration>,
    refused: Option<String>,
    changed: Changed,
    /// In-flight responses by nonce.
    sent: BTreeMap<String, Sent>,
    nonces: u64,
}

#[derive(Clone, Copy, Debug)]
enum Sent {
    /// Number of resources sent for the first time.
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

    /// Called before a response is sent; returns its nonce.
    fn record_sent(&mut self, sent: Sent) -> String {
        self.nonces += 1;
        let nonce = self.nonces.to_string();
        self.began.get_or_insert_with(Instant::now);
        if matches!(sent, Sent::Change) {
            self.changed.sent += 1;
        }
        self.sent.insert(nonce.clone(), sent);
        nonce
    }

    /// Handles an acknowledgement or rejection by the proxy.
    fn record_reply(&mut self, request: &DeltaDiscoveryRequest) {
        let Some(sent) = self.sent.remove(&request.nonce) else {
            return;
        };
        if let Some(refusal) = &request.refusal {
            self.refused = Some(format!("{}: {}", request.type_url, refusal.message));
            return;
        }
        match sent {
            Sent::Change => self.changed.held += 1,
            Sent::First(count) => self.held += count,
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

type Stayed = Pin<Box<dyn Stream<Item = Result<DeltaDiscoveryResponse, Status>> + Send>>;

impl StreamingService<DeltaDiscoveryRequest> for DiscoveryService {
    type Response = DeltaDiscoveryResponse;
    type ResponseStream = Stayed;
    type Future = Ready<Result<Response<Stayed>, Status>>;

    fn call(&mut self, request: Request<Streaming<DeltaDiscoveryRequest>>) -> Self::Future {
        // A slow reader delays only its own next response.
        let (responses, receiver) = mpsc::channel(4);
        tokio::spawn(self.clone().serve_stream(request.into_inner(), responses));
        let stream: Stayed = Box::pin(ReceiverStream::new(receiver).map(Ok));
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
    /// One stream, until either side closes it.
    async fn serve_stream(
        mut self,
        mut requests: Streaming<DeltaDiscoveryRequest>,
        responses: mpsc::Sender<DeltaDiscoveryResponse>,
    ) {
        let mut changes = Changes::new(&self.all);
        loop {
            let changing = *self.changing.borrow_and_update();
            let next = tokio::select! {
                request = requests.message() => match request {
                    Ok(Some(request)) => self.respond(&request),
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
                && responses.send(next).await.is_err()
            {
                return;
            }
        }
    }

    /// Returns a response if the request subscribes to resources; a plain acknowledgement needs none.
    fn respond(&self, request: &DeltaDiscoveryRequest) -> Option<DeltaDiscoveryResponse> {
        let mut progress = lock(&self.progress);
        progress.record_reply(request);
        let is_about_others = !request.nonce.is_empty() || !request.unsubscribe.is_empty();
        if is_about_others && request.subscribe.is_empty() {
            return None;
        }
        let resources = self.all.matching(&request.type_url, &request.subscribe);
        Some(DeltaDiscoveryResponse {
            version: FIRST_VERSION.to_owned(),
            nonce: progress.record_sent(Sent::First(resources.len())),
            type_url: request.type_url.clone(),
            resources,
        })
    }

    fn change(&self, changes: &mut Changes) -> Option<DeltaDiscoveryResponse> {
        let resource = changes.replace_one()?;
        Some(DeltaDiscoveryResponse {
            version: resource.version.clone(),
            nonce: lock(&self.progress).record_sent(Sent::Change),
            type_url: ASSIGNMENT.type_url(),
            resources: vec![resource],
        })
    }
}

/// Replaces endpoints, service by service.
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

    /// Resets the timer of the changes.
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

    /// Replaces one of the next service's endpoints.
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

/// An address that no other endpoint uses: above the range of the initial endpoints.
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

    fn request(message: &Message, names: &[&str], nonce: &str) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: message.type_url(),
            subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            unsubscribe: Vec::new(),
            nonce: nonce.to_owned(),
            refusal: None,
        }
    }

    #[test]
    fn configuration_is_complete_once_all_responses_are_acknowledged() {
        let service = service();
        let clusters = service.respond(&request(&CLUSTER, &[], "")).unwrap();
        assert_eq!(clusters.resources.len(), 2);
        let endpoints = service
            .respond(&request(&ASSIGNMENT, &["a", "b"], ""))
            .unwrap();
        let routes = service.respond(&request(&ROUTES, &["80"], "")).unwrap();
        for (sent, message) in [(&clusters, &CLUSTER), (&routes, &ROUTES)] {
            assert!(
                service
                    .respond(&request(message, &[], &sent.nonce))
                    .is_none()
            );
        }
        let pushed = || lock(&service.progress).pushed();
        assert_eq!(pushed(), Pushed::Underway { held: 3, of: 5 });
        service.respond(&request(&ASSIGNMENT, &[], &endpoints.nonce));
        assert!(matches!(pushed(), Pushed::Held(_)));
    }

    #[test]
    fn rejection_reports_the_proxys_message() {
        let service = service();
        let sent = service.respond(&request(&CLUSTER, &["*"], "")).unwrap();
        let refusal = DeltaDiscoveryRequest {
            refusal: Some(Refusal {
                code: 13,
                message: "no such socket".into(),
            }),
            ..request(&CLUSTER, &[], &sent.nonce)
        };
        assert!(service.respond(&refusal).is_none());
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
