//! One module per command.

pub(crate) mod analysis;
pub(crate) mod calibrate;
pub(crate) mod dataplanes;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod internal;
mod kept;
pub(crate) mod load;
pub(crate) mod presets;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod worker;
