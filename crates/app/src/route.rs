//! Which of the application's endpoints a request is for.

use crate::stats::Echo;
use crate::{ECHO_PATH, STATS_PATH};

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Any path that is not the application's own.
    Plain,
    /// [`ECHO_PATH`].
    Echo,
    /// [`STATS_PATH`].
    Stats,
}

/// A request as [`ECHO_PATH`] reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl ReceivedRequest {
    /// The body of the response: an [`Echo`] as JSON.
    pub(crate) fn to_json(&self, peer: String) -> Vec<u8> {
        let echo = Echo {
            method: self.method.clone(),
            path: self.path.clone(),
            headers: self.headers.clone(),
            peer,
        };
        serde_json::to_vec(&echo).unwrap_or_default()
    }
}

/// Whether a path may be one of the application's own.
pub(crate) fn is_own_path(path: &[u8]) -> bool {
    path.starts_with(b"/_meshtax/")
}

pub(crate) fn route(path: &str) -> Route {
    if !is_own_path(path.as_bytes()) {
        return Route::Plain;
    }
    match path.split('?').next() {
        Some(ECHO_PATH) => Route::Echo,
        Some(STATS_PATH) => Route::Stats,
        _ => Route::Plain,
    }
}
