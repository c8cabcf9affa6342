//! The probes, one module for each subject.

pub(crate) mod additional_port;
pub(crate) mod calls;
pub(crate) mod client_identity;
pub(crate) mod direct;
pub(crate) mod every_node;
pub(crate) mod gateway;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod runtime;
pub(crate) mod wire;
