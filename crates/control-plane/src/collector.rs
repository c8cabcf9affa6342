//! A trace collector, `opentelemetry.proto.collector.trace.v1.TraceService`: it counts spans and discards them.

use std::future::{Ready, ready};
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::body::Body;
use tonic::codegen::http;
use tonic::server::{Grpc, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::server::{OneMethod, Server, SingleMethodService};

/// `ExportTraceServiceRequest`; only the fields used here.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Export {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    pub(crate) scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

/// Its content is ignored.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Span {}

/// `ExportTraceServiceResponse`: all spans were accepted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Exported {}

/// A collector of one proxy's spans, until this value is dropped.
#[derive(Debug)]
pub struct TraceCollector {
    spans: Arc<AtomicU64>,
    _server: Server,
}

impl TraceCollector {
    /// Spans received so far.
    #[must_use]
    pub fn spans(&self) -> u64 {
        self.spans.load(Ordering::Relaxed)
    }
}

/// Collects over plaintext.
///
/// # Errors
/// If the server's thread cannot be started.
pub fn trace_collector(listener: TcpListener) -> io::Result<TraceCollector> {
    let spans = Arc::new(AtomicU64::new(0));
    let service = TraceService {
        spans: Arc::clone(&spans),
    };
    Ok(TraceCollector {
        spans,
        _server: Server::start(listener, Routes::new(SingleMethodService(service)), None)?,
    })
}

#[derive(Clone, Debug)]
struct TraceService {
    spans: Arc<AtomicU64>,
}

impl UnaryService<Export> for TraceService {
    type Response = Exported;
    type Future = Ready<Result<Response<Exported>, Status>>;

    fn call(&mut self, request: Request<Export>) -> Self::Future {
        let resources = request.get_ref().resources.iter();
        let scopes = resources.flat_map(|resource| &resource.scopes);
        let spans: usize = scopes.map(|scope| scope.spans.len()).sum();
        self.spans.fetch_add(spans as u64, Ordering::Relaxed);
        ready(Ok(Response::new(Exported {})))
    }
}

impl OneMethod for TraceService {
    const SERVICE: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
    const METHOD: &'static str = "Export";

    async fn called(self, request: http::Request<Body>) -> http::Response<Body> {
        Grpc::new(ProstCodec::default()).unary(self, request).await
    }
}
