//! What reports look like, and that nothing in an analysis can make one fail.

mod advice;
mod clusters;
mod decisions;
mod fixtures;
mod gates;
mod limits;
mod openmetrics;
mod published;
mod robustness;
mod scaling;
mod schema;
mod snapshots;
mod studies;
mod study_gaps;
