//! meshtax's load generator for HTTP/1.1, HTTP/2, gRPC and TCP.
//!
//! It offers load in two ways. In an **open loop** the intended send times come from a
//! schedule that was fixed before the first request, and response latency counts from
//! them, so that neither a stalled server nor a stalled generator can hide. In a **closed
//! loop** every connection sends again as soon as it has its response.
//!
//! Threads share nothing; no runtime, nothing allocated per request. The result carries an
//! audit of the generator by itself ([`meshtax_model::trial::GeneratorAudit`]).
//!
//! ```no_run
//! use meshtax_load::{LoadSpec, run};
//!
//! let spec = LoadSpec::new("127.0.0.1:8080".parse().unwrap());
//! let result = run(&spec, &mut |window| eprintln!("{window:?}")).unwrap();
//! println!("{} requests per second", result.achieved_per_s());
//! ```

mod audit;
mod bytes64;
mod clock;
mod connection;
mod dial;
mod engine;
mod error;
mod fleet;
#[doc(hidden)]
pub mod fuzzing;
pub mod http1;
mod limits;
mod pace;
mod pool;
mod ring;
mod run;
mod schedule;
mod settings;
mod spec;
mod sum;
mod tally;
mod validate;
mod wire;
mod worker;

pub use audit::judge_shared_cores;
pub use clock::now_ns;
pub use error::{ConnectProblem, LoadError};
pub use fleet::{FleetError, Member, WorkerFailure, run_fleet};
pub use run::{Hooks, Progress, Window, run, run_with};
pub use schedule::Schedule;
pub use spec::{LoadModel, LoadSpec, Protocol, Rate, Request, Slice, Target, Tls};
pub use worker::{
    MessageError, RequestError, WORKER_PROTOCOL, WorkerError, WorkerMessage, WorkerOrder,
    WorkerProgress, WorkerRequest, worker_main,
};
