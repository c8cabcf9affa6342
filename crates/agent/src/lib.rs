//! What runs next to pods: it drives the load generator, reads CPU, memory, switches and links in the
//! measured window, and captures packets on links.
//!
//! It is not tied to an engine: it is given process ids or containers, links and a way to start the generator. The lab's
//! init is its user on one machine; on a cluster it serves its engine from within pods ([`remote`]).

mod capture;
mod captured;
mod generator;
pub mod nft;
mod packet_filter;
mod packet_socket;
mod protocol;
pub mod remote;
mod sample;
mod surroundings;
mod tls_hello;
mod trial;
mod watched;
mod window;

pub use capture::{Capture, CaptureTooLarge};
pub use captured::{Captured, Segment};
pub use generator::{
    ClientLoad, ClientWorker, GeneratorError, Generators, StartedWorker, Worker, ending, whole_load,
};
pub use packet_filter::PacketFilter;
pub use packet_socket::PacketSocket;
pub use protocol::{AGENT_PROTOCOL, AgentReply, AgentRequest};
pub use surroundings::{Before, Surroundings};
pub use trial::{
    MeasureError, Measurement, NodeUsage, measure, observe_window, speed_probe_on, warm_up,
};
pub use watched::{Entrance, Meter, Process, Watched};
