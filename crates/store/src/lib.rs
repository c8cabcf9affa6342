//! The run directory: what a run was, and everything that it measured.
//!
//! | file | what is in it |
//! |---|---|
//! | `manifest.json` | one [`Manifest`]: version, seed, experiment, environment, ending |
//! | `trials.jsonl` | a `TrialRecord` per line |
//! | `samples.jsonl` | a `ResourceSample` per line, written before its trial's line |
//! | `evidence.jsonl` | an `Evidence` per line |
//! | `failures.jsonl` | a `VariantFailure` per line |
//! | `prometheus.json` | a `Monitoring`; absent if none was asked |
//! | `cluster.jsonl` | a `ClusterRecord` per line; absent without any |
//!
//! The `.jsonl` files only ever grow, by whole lines, each with one write. After a kill at
//! any moment the directory is readable: a torn last line is left out with a note, and removed
//! when the run is continued. The manifest is replaced as a whole. The process that writes holds a
//! lock on the trials.
#![forbid(unsafe_code)]

mod error;
mod id;
mod log;
mod read;
mod write;

use meshtax_model::environment::Environment;
use meshtax_model::event::{Ending, Resumption};
use meshtax_model::experiment::Experiment;
use serde::{Deserialize, Serialize};

pub use error::StoreError;
pub use id::{default_path, run_id};
pub use read::{RunOnDisk, read};
pub use write::Store;

/// The manifest's file name.
pub const MANIFEST: &str = "manifest.json";
/// The trials' file name.
pub const TRIALS: &str = "trials.jsonl";
/// The resource samples' file name.
pub const SAMPLES: &str = "samples.jsonl";
/// The evidence's file name.
pub const EVIDENCE: &str = "evidence.jsonl";
/// The failed variants' file name.
pub const FAILURES: &str = "failures.jsonl";

/// The file name of what a cluster granted and reported.
pub const CLUSTER: &str = "cluster.jsonl";

/// The file name of what a monitoring system recorded.
pub const MONITORING: &str = "prometheus.json";

/// What is known of a run before anything is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStart {
    /// See [`run_id`].
    pub run_id: String,
    /// meshtax's version.
    pub meshtax_version: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The plan's seed.
    pub seed: u64,
}

/// What a run was: the content of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`meshtax_model::FORMAT_VERSION`] of the writer. A reader refuses a larger one.
    pub format_version: u32,
    /// The run's id.
    pub run_id: String,
    /// meshtax's version.
    pub meshtax_version: String,
    /// When it began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The plan's seed.
    pub seed: u64,
    /// As it was run.
    pub experiment: Experiment,
    /// Where it was run.
    pub environment: Environment,
    /// Each time that it was continued after an interruption, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumptions: Vec<Resumption>,
    /// Why measuring ended; absent while it runs, and after a kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
}
