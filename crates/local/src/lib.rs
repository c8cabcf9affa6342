//! The local engine: one Linux machine, no Kubernetes, no Docker, no root needed.
//!
//! [`LocalEngine`] starts the lab's init ([`lab_main`]) in new namespaces and speaks with it over one
//! socket. All nodes, pods, proxies and rules live in that lab, and end with it.

mod artifacts;
mod engine;
mod lab;
mod limit_proxy;
mod missing;
mod protocol;
mod sandbox;
mod surroundings;
mod tls;
mod tls_wire;

pub use artifacts::{Binary, ProgramError, find_program, get_envoy, keep_program};
pub use engine::{LocalEngine, LocalOptions, cpu_layout, missing_program};
pub use lab::{lab_main, wait};
pub use limit_proxy::run as limit_proxy_main;

#[cfg(test)]
mod tests {
    /// `dataplane` is pure and cannot see the application: what both must know is held equal here.
    #[test]
    fn policies_allow_the_path_at_which_the_application_echoes() {
        assert_eq!(meshtax_dataplane::ECHO_PATH, meshtax_app::ECHO_PATH);
    }
}
