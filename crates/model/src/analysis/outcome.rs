//! Whether a load was carried. This is an outcome of a valid trial, and never a reason to exclude it: what excludes a
//! trial is an [`InvalidReason`](super::InvalidReason).

use serde::{Deserialize, Serialize};

/// How a valid trial did not carry its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shortfall {
    /// A proxy exceeded its memory limit, and the kernel killed it.
    ProxyOutOfMemory,
    /// A proxy ended, or was restarted.
    ProxyEnded,
    /// The load's connections could not be opened.
    NotConnected,
    /// No request got a response.
    NoResponses,
    /// Too many requests failed.
    Errors,
    /// Too many responses have a status outside 200-399.
    BadStatus,
    /// Open loop: too many requests got no response.
    Unanswered,
    /// Open loop: too few of the offered requests were completed in the window.
    AchievedBelowOffered,
}

impl Shortfall {
    /// Whether the variant's proxies ended.
    #[must_use]
    pub fn is_of_proxies(self) -> bool {
        matches!(self, Self::ProxyOutOfMemory | Self::ProxyEnded)
    }
}

/// What a variant did of its load, in the trials that did not carry it. Shares are of the offered requests, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// Trials that did not carry the load, in blocks whose baselines did.
    pub trials: u32,
    /// All its trials in such blocks that the machine did not disturb.
    pub of: u32,
    /// Those in which a proxy ended. Where it had ended before the load began, there is no figure of the trial.
    #[serde(default)]
    pub proxies_ended: u32,
    /// Those in which the load's connections could not be opened. They have no figures.
    #[serde(default)]
    pub not_connected: u32,
    /// Offered requests per second.
    pub offered_per_s: f64,
    /// Completed requests per second, of any status.
    pub achieved_per_s: f64,
    /// Requests that failed.
    pub errors: f64,
    /// Responses with a status outside 200-399.
    pub bad_status: f64,
    /// Requests without a response.
    pub unanswered: f64,
}

/// Whether a variant carried the load of a load point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum LoadOutcome {
    /// At most one trial in ten did not.
    #[default]
    Carried,
    /// It did not, more often than by chance, where the baselines of the same blocks did.
    Overloaded(Overload),
    /// More than one trial in ten did not, in too few blocks to show that the variant is the cause.
    Uncertain {
        /// Trials that did not carry the load.
        trials: u32,
        /// All its valid trials.
        of: u32,
    },
    /// More than one trial in ten of the baselines did not, and the variant did not fall short more often than they did,
    /// beyond chance: it cannot be judged at this load.
    BeyondMachine {
        /// Trials of the baselines that did not carry the load.
        trials: u32,
        /// All their valid trials.
        of: u32,
    },
}
