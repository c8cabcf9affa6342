//! Preparing, executing and concluding runs, and reading stored ones: shared by the commands.

pub(crate) mod conclusion;
pub(crate) mod job;
mod live;
pub(crate) mod page;
pub(crate) mod programs;
mod prometheus;
pub(crate) mod render;
pub(crate) mod series;
pub(crate) mod stored;
