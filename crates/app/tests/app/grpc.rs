//! gRPC's unary calls, against tonic.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use meshtax_app::Wait;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::{App, wait_for};

/// Messages as they are.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

async fn connect(app: &App) -> Grpc<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", app.address)).unwrap();
    let client = Grpc::new(endpoint.connect().await.unwrap());
    client
        .max_decoding_message_size(1 << 30)
        .max_encoding_message_size(1 << 30)
}

async fn call(client: &mut Grpc<Channel>, message: impl Into<Bytes>) -> Result<Bytes, Status> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/test.Service/Unary");
    let answer = client.unary(Request::new(message.into()), path, Raw).await;
    answer.map(tonic::Response::into_inner)
}

#[test]
fn grpc_responses_have_the_configured_size() {
    for bytes in [0, 1, 5, 1024, 16_379, 16_380, 300_000] {
        let app = App::start(|config| config.response_bytes = bytes);
        wait_for(async {
            let mut client = connect(&app).await;
            for asked in [0, 1, 100_000] {
                let message = call(&mut client, vec![7; asked]).await.unwrap();
                assert_eq!(message.len(), bytes as usize);
                if bytes > 1 {
                    assert_eq!(message[0], 10, "field 1, a string");
                }
            }
        });
        assert_eq!(app.stats().requests, 3);
    }
}

#[test]
fn grpc_messages_are_echoed() {
    let app = App::start(|config| config.grpc_echo = true);
    wait_for(async {
        let mut client = connect(&app).await;
        for bytes in [0, 1, 1024, 4 * 1024 * 1024] {
            let sent: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            let message = call(&mut client, sent.clone()).await.unwrap();
            assert!(message == sent, "{bytes}");
        }
        let long = call(&mut client, vec![0; 4 * 1024 * 1024 + 1]).await;
        assert_eq!(long.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(call(&mut client, "still here").await.unwrap(), "still here");
    });
}

#[test]
fn grpc_calls_fail_by_the_error_share() {
    let app = App::start(|config| {
        config.error_share = 0.5;
        config.wait = Some(Wait::LogNormal {
            median_ns: 200_000,
            sigma: 0.5,
        });
    });
    let failed = wait_for(async {
        let mut client = connect(&app).await;
        let mut failed = 0;
        for _ in 0..100 {
            if let Err(status) = call(&mut client, "a").await {
                assert_eq!(status.code(), Code::Unavailable);
                assert_eq!(status.message(), "an injected error");
                failed += 1;
            }
        }
        failed
    });
    let stats = app.stats();
    assert_eq!((stats.requests, stats.errors), (100, failed));
    assert!((25..75).contains(&failed), "{failed}");
}

#[test]
fn grpc_responses_respect_the_peers_window() {
    let app = App::start(|config| config.response_bytes = 200_000);
    wait_for(async {
        let endpoint = Endpoint::from_shared(format!("http://{}", app.address)).unwrap();
        let narrow = endpoint.initial_stream_window_size(1000);
        let mut client = Grpc::new(narrow.connect().await.unwrap());
        let message = call(&mut client, "a").await.unwrap();
        assert_eq!(message.len(), 200_000);
    });
}
