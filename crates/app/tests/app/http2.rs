//! HTTP/2, against the h2 crate.

use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use meshtax_app::{Echo, Wait};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{App, digits, wait_for};

pub(super) type Client = SendRequest<Bytes>;

async fn connect_with(app: &App, builder: &Builder) -> Client {
    let stream = TcpStream::connect(app.address).await.unwrap();
    let (client, connection) = builder.handshake(stream).await.unwrap();
    spawn_local(connection);
    client.ready().await.unwrap()
}

fn spawn_local(connection: h2::client::Connection<TcpStream, Bytes>) {
    tokio::spawn(async move {
        let _ = connection.await;
    });
}

async fn connect(app: &App) -> Client {
    connect_with(app, &Builder::new()).await
}

fn request(method: Method, path: &str) -> Request<()> {
    let uri = format!("http://localhost{path}");
    Request::builder().method(method).uri(uri).body(()).unwrap()
}

/// Reads all of a body, giving back what was read to the peer's window.
pub(super) async fn read(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        body.flow_control().release_capacity(bytes.len())?;
        all.extend_from_slice(&bytes);
    }
    Ok(all)
}

async fn whole(answer: h2::client::ResponseFuture) -> (Response<()>, Vec<u8>) {
    let (head, mut body) = answer.await.unwrap().into_parts();
    let body = read(&mut body).await.unwrap();
    (Response::from_parts(head, ()), body)
}

async fn get(client: &mut Client, path: &str) -> (Response<()>, Vec<u8>) {
    let request = request(Method::GET, path);
    whole(client.send_request(request, true).unwrap().0).await
}

async fn post(client: &mut Client, body: &[u8], pieces: usize) -> (Response<()>, Vec<u8>) {
    let (answer, mut sender) = client
        .send_request(request(Method::POST, "/"), false)
        .unwrap();
    for piece in body.chunks(pieces) {
        let mut left = piece;
        while !left.is_empty() {
            sender.reserve_capacity(left.len());
            let room = std::future::poll_fn(|c| sender.poll_capacity(c)).await;
            let (now, rest) = left.split_at(room.unwrap().unwrap().min(left.len()));
            left = rest;
            sender
                .send_data(Bytes::copy_from_slice(now), false)
                .unwrap();
        }
    }
    sender.send_data(Bytes::new(), true).unwrap();
    whole(answer).await
}

#[test]
fn every_method_and_path_gets_the_body() {
    let app = App::start(|_| {});
    wait_for(async {
        let mut client = connect(&app).await;
        let (answer, body) = get(&mut client, "/a?b").await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/plain");
        assert_eq!(answer.headers()["content-length"], "5");
        assert_eq!(body, b"01234");
        let head = request(Method::HEAD, "/");
        let (answer, body) = whole(client.send_request(head, true).unwrap().0).await;
        assert_eq!(answer.headers()["content-length"], "5");
        assert!(body.is_empty());
        // More than all windows there are at first.
        let sent = vec![b'x'; 40_000_000];
        assert_eq!(post(&mut client, &sent, 1 << 20).await.1, b"01234");
        assert_eq!(post(&mut client, b"abc", 1).await.1, b"01234");
    });
    assert_eq!(app.stats().requests, 4);
}

#[test]
fn empty_bodies_and_trailers_are_accepted() {
    let app = App::start(|config| config.response_bytes = 0);
    wait_for(async {
        let mut client = connect(&app).await;
        let (answer, body) = get(&mut client, "/").await;
        assert_eq!((answer.status(), body.len()), (StatusCode::OK, 0));
        let put = request(Method::PUT, "/");
        let (answer, mut sender) = client.send_request(put, false).unwrap();
        sender.send_data(Bytes::from_static(b"a"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "1".parse().unwrap());
        sender.send_trailers(trailers).unwrap();
        assert_eq!(whole(answer).await.0.status(), StatusCode::OK);
    });
}

#[test]
fn many_concurrent_streams_are_served() {
    let app = App::start(|config| config.response_bytes = 40_000);
    let expected = digits(40_000);
    wait_for(async {
        let client = connect(&app).await;
        let mut all = JoinSet::new();
        for _ in 0..100 {
            let mut client = client.clone();
            let expected = expected.clone();
            all.spawn(async move {
                for _ in 0..5 {
                    client = client.ready().await.unwrap();
                    assert_eq!(get(&mut client, "/").await.1, expected);
                }
            });
        }
        while let Some(one) = all.join_next().await {
            one.unwrap();
        }
    });
    assert_eq!(app.stats().requests, 500);
}

#[test]
fn the_peers_windows_are_respected() {
    // h2 ends the connection if they are not.
    let app = App::start(|config| config.response_bytes = 200_000);
    let expected = digits(200_000);
    for window in [1, 777, 65_535, 1 << 20] {
        wait_for(async {
            let mut builder = Builder::new();
            builder.initial_window_size(window);
            let mut client = connect_with(&app, &builder).await;
            let length = if window == 1 { 500 } else { 200_000 };
            let answer = client.send_request(request(Method::GET, "/"), true);
            let mut body = answer.unwrap().0.await.unwrap().into_body();
            let mut all = Vec::new();
            while all.len() < length {
                let bytes = body.data().await.unwrap().unwrap();
                assert!(bytes.len() as u32 <= window);
                body.flow_control().release_capacity(bytes.len()).unwrap();
                all.extend_from_slice(&bytes);
            }
            assert_eq!(all[..length], expected[..length]);
        });
    }
}

#[test]
fn a_changed_initial_window_applies_to_open_streams() {
    let app = App::start(|config| config.response_bytes = 100_000);
    wait_for(async {
        let stream = TcpStream::connect(app.address).await.unwrap();
        let mut builder = Builder::new();
        builder.initial_window_size(0);
        let (client, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let mut client = client.ready().await.unwrap();
        let answer = client
            .send_request(request(Method::GET, "/"), true)
            .unwrap()
            .0;
        let answer = tokio::select! {
            answer = answer => answer.unwrap(),
            _ = &mut connection => panic!("the connection ended"),
        };
        connection.set_initial_window_size(50_000).unwrap();
        spawn_local(connection);
        let mut body = answer.into_body();
        assert_eq!(read(&mut body).await.unwrap(), digits(100_000));
    });
}

#[test]
fn a_long_body_does_not_block_a_short_one() {
    let app = App::start(|config| config.response_bytes = 50_000_000);
    wait_for(async {
        let mut builder = Builder::new();
        builder.initial_connection_window_size(1 << 20);
        let mut client = connect_with(&app, &builder).await;
        // Nothing of it is taken beyond the window.
        let unread = client
            .send_request(request(Method::GET, "/"), true)
            .unwrap();
        let _unread = unread.0.await.unwrap();
        let stats = get(&mut client, "/_meshtax/stats").await;
        assert_eq!(stats.0.headers()["content-type"], "application/json");
        // Given up in the middle; the connection goes on.
        let given_up = client
            .send_request(request(Method::GET, "/"), true)
            .unwrap();
        let (answer, mut sender) = given_up;
        drop(answer.await.unwrap());
        sender.send_reset(Reason::CANCEL);
        assert!(
            get(&mut client, "/_meshtax/stats")
                .await
                .1
                .starts_with(b"{")
        );
    });
}

#[test]
fn pings_are_acknowledged() {
    let app = App::start(|_| {});
    wait_for(async {
        let stream = TcpStream::connect(app.address).await.unwrap();
        let (client, mut connection) = h2::client::handshake(stream).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        spawn_local(connection);
        for _ in 0..3 {
            pings.ping(h2::Ping::opaque()).await.unwrap();
        }
        assert_eq!(get(&mut client.clone(), "/").await.1, b"01234");
    });
}

#[test]
fn echo_and_stats_are_served_with_the_canary() {
    let app = App::start(|_| {});
    wait_for(async {
        let mut client = connect(&app).await;
        let asked = Request::builder()
            .method("PATCH")
            .uri("http://localhost:81/_meshtax/echo?q")
            .header("x-one", "1")
            .header("x-meshtax-canary", "c7")
            .body(())
            .unwrap();
        let (answer, body) = whole(client.send_request(asked, true).unwrap().0).await;
        assert_eq!(answer.headers()["x-meshtax-canary"], "c7");
        let echo: Echo = serde_json::from_slice(&body).unwrap();
        assert_eq!((&*echo.method, &*echo.path), ("PATCH", "/_meshtax/echo?q"));
        let header = |name: &str| {
            let mut all = echo.headers.iter();
            all.find(|(n, _)| n == name).map(|(_, value)| &**value)
        };
        assert_eq!(header(":authority"), Some("localhost:81"));
        assert_eq!((header("x-one"), header("x-two")), (Some("1"), None));
        assert!(echo.peer.starts_with("127.0.0.1:"));
        let mut plain = request(Method::GET, "/");
        let value = "c8".parse().unwrap();
        plain.headers_mut().insert("x-meshtax-canary", value);
        let (answer, body) = whole(client.send_request(plain, true).unwrap().0).await;
        assert_eq!(answer.headers()["x-meshtax-canary"], "c8");
        assert_eq!(body, b"01234");
    });
    assert_eq!(app.stats().requests, 1);
}

#[test]
fn a_delay_is_spun_and_counted() {
    let app = App::start(|config| config.delay_ns = 3_000_000);
    let begin = Instant::now();
    wait_for(async {
        let mut client = connect(&app).await;
        for _ in 0..3 {
            assert_eq!(get(&mut client, "/").await.1, b"01234");
        }
    });
    assert!(begin.elapsed() >= Duration::from_millis(9));
    let stats = app.stats();
    assert_eq!((stats.requests, stats.delayed), (3, 3));
    assert!(stats.delay_sum_ns >= 9_000_000, "{stats:?}");
}

#[test]
fn streams_wait_concurrently() {
    let app = App::start(|config| {
        config.error_share = 0.5;
        config.wait = Some(Wait::Uniform {
            from_ns: 200_000_000,
            to_ns: 250_000_000,
        });
    });
    let begin = Instant::now();
    let failed = wait_for(async {
        let client = connect(&app).await;
        let mut all = JoinSet::new();
        for _ in 0..100 {
            let mut client = client.clone();
            all.spawn(async move { get(&mut client, "/").await.0.status() });
        }
        let mut failed = 0;
        while let Some(status) = all.join_next().await {
            failed += u64::from(status.unwrap() == StatusCode::SERVICE_UNAVAILABLE);
        }
        failed
    });
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_millis(1500), "{took:?}");
    let stats = app.stats();
    assert_eq!(
        (stats.requests, stats.delayed, stats.errors),
        (100, 100, failed)
    );
    assert!((25..75).contains(&failed), "{failed}");
}

#[test]
fn a_cancelled_stream_gets_no_response() {
    let app = App::start(|config| {
        config.wait = Some(Wait::Exponential {
            mean_ns: 50_000_000,
        });
    });
    wait_for(async {
        let mut client = connect(&app).await;
        for _ in 0..20 {
            let asked = client.send_request(request(Method::GET, "/"), true);
            asked.unwrap().1.send_reset(Reason::CANCEL);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(get(&mut client, "/").await.1, b"01234");
    });
}

#[test]
fn expect_continue_is_acknowledged() {
    let app = App::start(|_| {});
    wait_for(async {
        let mut client = connect(&app).await;
        let mut asked = request(Method::POST, "/");
        let value = "100-continue".parse().unwrap();
        asked.headers_mut().insert("expect", value);
        let (mut answer, mut sender) = client.send_request(asked, false).unwrap();
        let leave = std::future::poll_fn(|c| answer.poll_informational(c)).await;
        assert_eq!(leave.unwrap().unwrap().status(), StatusCode::CONTINUE);
        sender.send_data(Bytes::from_static(b"ab"), true).unwrap();
        assert_eq!(whole(answer).await.0.status(), StatusCode::OK);
    });
}
