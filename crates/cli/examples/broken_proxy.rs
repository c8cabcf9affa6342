//! A proxy that is broken, for the tests in `tests/e2e/broken_proxies.rs` and nothing else: it says of
//! itself that it is an Envoy, a ztunnel and a linkerd2-proxy, and then exits at once, or never does a
//! thing, as `BROKEN_PROXY` says (`exits`, `sleeps`).
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own, that only tests start"
)]

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_asked_for_version = matches!(arguments.as_slice(), [one] if one.contains("version"));
    let is_started = std::env::var_os("LINKERD2_PROXY_IDENTITY_DIR").is_some();
    if is_asked_for_version || (arguments.is_empty() && !is_started) {
        println!("envoy  version: 0/0.0.0/Clean/RELEASE/none");
        println!("version.BuildInfo{{Version:\"0.0.0\"}}");
        println!("linkerd release 0.0.0 (0) by a test");
        return;
    }
    eprintln!("broken on purpose: the third wheel is missing");
    match std::env::var("BROKEN_PROXY").as_deref() {
        Ok("sleeps") => std::thread::sleep(std::time::Duration::from_secs(600)),
        _ => std::process::exit(3),
    }
}
