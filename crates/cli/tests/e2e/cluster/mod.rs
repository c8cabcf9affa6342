//! Runs on a real cluster: the one of `e2e/cluster`, or any other that `MESHTAX_E2E_CONTEXT` names.

mod access;
mod account;
mod admission;
mod clients;
mod document;
mod faults;
mod leftovers;
mod meshes;
mod quota;
mod relay;
mod run;
mod settings;
