//! The minimal proxy: accepts redirected connections, speaks mutual TLS to its peer, parses nothing.
//!
//! One edge-triggered epoll per worker, no async runtime, no copies: it costs what the kernel's sockets and the
//! cipher cost. Connections between two proxies carry several of the application's, one after the other.

#![forbid(unsafe_code)]

mod context;
mod end;
mod error;
mod link;
mod record;
mod socket;
mod worker;

use std::path::Path;
use std::sync::Arc;
use std::{fs, thread};

use meshtax_dataplane::LimitProxyConfig;

pub use error::ProxyError;

use context::Context;
use worker::Worker;

/// Runs the proxy with this configuration file; returns only on failure.
///
/// # Errors
/// If the configuration cannot be read or used, or a worker's sockets fail.
pub fn run(config_path: &Path) -> Result<(), ProxyError> {
    let unreadable = |source| ProxyError::Unreadable {
        path: config_path.display().to_string(),
        source,
    };
    let text = fs::read_to_string(config_path).map_err(unreadable)?;
    let config: LimitProxyConfig = serde_json::from_str(&text).map_err(|e| unreadable(e.into()))?;
    let context = Arc::new(Context::new(&config)?);
    let others: Vec<_> = (1..config.workers.max(1))
        .map(|_| {
            let context = Arc::clone(&context);
            thread::spawn(move || Worker::new(context)?.serve())
        })
        .collect();
    Worker::new(context)?.serve()?;
    for other in others {
        other.join().unwrap_or(Ok(()))?;
    }
    Ok(())
}
