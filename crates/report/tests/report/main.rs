//! What reports look like, and that nothing in an analysis can make one fail.

mod advice;
mod fixtures;
mod gates;
mod published;
mod robustness;
mod scaling;
mod schema;
mod snapshots;
mod studies;
