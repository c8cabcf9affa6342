//! What reports look like, and that nothing in an analysis can make one fail.

mod fixtures;
mod robustness;
mod schema;
mod snapshots;
