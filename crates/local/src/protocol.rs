//! What the engine and the lab's init say to each other: JSON lines over one socket, a request and
//! its reply at a time.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use meshtax_dataplane::{Program, Sabotage};
use meshtax_model::environment::CpuLayout;
use meshtax_model::evidence::Evidence;
use meshtax_model::experiment::{EqualWork, LoadPoint, Service, Variant, VariantId, Workload};
use meshtax_model::plan::PlannedTrial;
use meshtax_model::trial::{ResourceSample, TrialOutcome};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Both ends are the same binary; the version guards against a binary replaced in mid-run.
pub(crate) const PROTOCOL_VERSION: u32 = 1;

/// From the engine to the lab.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Build nodes and pods.
    Prepare(Box<Setup>),
    /// New processes for these variants, proven.
    StartRound { round: u32, variants: Vec<Variant> },
    /// Measure.
    Trial {
        trial: PlannedTrial,
        load_point: LoadPoint,
    },
    /// End the round's processes, after proving them once more if that is asked for.
    EndRound { prove: bool },
}

/// All that the lab must know before the first round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) version: u32,
    pub(crate) service: Service,
    pub(crate) workload: Workload,
    pub(crate) load_points: Vec<LoadPoint>,
    pub(crate) equal_work: EqualWork,
    pub(crate) warmup_ns: u64,
    pub(crate) trial_ns: u64,
    /// The parts in which a trial's latencies are told.
    pub(crate) part_ns: Option<u64>,
    /// A closed loop is over after so many.
    pub(crate) requests_per_trial: Option<u64>,
    pub(crate) variants: Vec<VariantId>,
    pub(crate) layout: CpuLayout,
    /// Those that the lab has, in the order of their descriptors.
    pub(crate) programs: Vec<Program>,
    pub(crate) sabotage: BTreeMap<VariantId, Sabotage>,
}

impl Setup {
    /// Whether clients come in through a gateway at some load point.
    pub(crate) fn has_ingress(&self) -> bool {
        self.load_points.iter().any(|point| point.ingress.is_some())
    }

    /// Whether they do at all of them.
    pub(crate) fn has_ingress_only(&self) -> bool {
        self.load_points.iter().all(|point| point.ingress.is_some())
    }
}

/// From the lab to the engine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Nodes and pods are there.
    Prepared,
    /// This machine does not let the lab do something.
    Refused {
        step: String,
        cause: String,
        not_permitted: bool,
    },
    /// How each variant's start went.
    RoundStarted(Vec<StartReport>),
    /// A trial's figures.
    Measured {
        outcome: TrialOutcome,
        sample: Option<Box<ResourceSample>>,
    },
    /// All processes of the round are gone; these had died before.
    RoundEnded {
        died: Vec<String>,
        /// Variants that were no longer what was proven, with what was lost.
        lost: Vec<(VariantId, String)>,
    },
}

/// How one variant's start went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StartReport {
    pub(crate) variant: VariantId,
    pub(crate) evidence: Option<Evidence>,
    pub(crate) failure: Option<String>,
}

/// Writes one message and a line end.
pub(crate) fn send<T: Serialize>(mut to: impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` at end-of-file.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
