//! Runs on a real cluster: the one of `e2e/cluster`, or any other that `MESHTAX_E2E_CONTEXT` names.

mod access;
mod account;
mod admission;
mod document;
mod faults;
mod leftovers;
mod meshes;
mod relay;
mod run;
