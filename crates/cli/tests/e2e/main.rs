//! The real binary from end to end: real labs with the real Envoy, what is refused and how, what
//! remains after a kill. One test at a time: the labs share the machine's cores, and several tests
//! compare the whole machine before and after.

mod advise;
mod bad_input;
mod broken_proxies;
mod disturbed;
mod forbidden;
mod gate;
mod ingress;
mod interrupted;
mod killed;
mod load_and_serve;
mod load_command;
mod load_tls;
mod machine;
mod nodes;
mod options;
mod page;
mod processes;
mod real_run;
mod sabotage;
mod scale;
mod specs;
mod stores;
mod studies;
mod support;
mod together;
mod topologies;
mod workers;
