//! One module per command.

pub(crate) mod advise;
pub(crate) mod calibrate;
pub(crate) mod cleanup;
pub(crate) mod compare;
pub(crate) mod dataplanes;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod gate;
pub(crate) mod image;
pub(crate) mod internal;
pub(crate) mod load;
pub(crate) mod mesh;
pub(crate) mod presets;
pub(crate) mod published;
pub(crate) mod report;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod serve;
pub(crate) mod topologies;
pub(crate) mod upgrade;
pub(crate) mod worker;
