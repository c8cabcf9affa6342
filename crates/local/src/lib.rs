//! The local engine: one Linux machine, no Kubernetes, no Docker, no root needed.
//!
//! [`LocalEngine`] starts the lab's init ([`lab_main`]) in new namespaces and controls it over one socket. All
//! nodes, pods, proxies and rules are in that lab, and end with it.

mod cgroups;
mod engine;
mod lab;
mod link;
mod missing;
pub mod placement;
mod protocol;
mod run_cgroup;
mod sandbox;

pub use engine::{LocalEngine, LocalOptions};
pub use lab::lab_main;

#[cfg(test)]
mod tests {
    /// `dataplane` is pure and cannot see the application: this keeps their constants equal.
    #[test]
    fn policies_allow_the_echo_path_of_the_application() {
        assert_eq!(meshtax_dataplane::ECHO_PATH, meshtax_app::ECHO_PATH);
    }
}
