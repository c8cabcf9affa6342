//! End-to-end tests of the binary: labs with the real Envoy, rejected input, cleanup after a kill. One test at a
//! time: labs share the machine's cores, and several tests compare the whole machine before and after.

mod advise;
mod bad_input;
mod broken_proxies;
mod builds;
mod closed_output;
mod disturbed;
mod forbidden;
mod gate;
mod h2spec;
mod images;
mod ingress;
mod interrupted;
mod killed;
mod load_and_serve;
mod load_command;
mod load_tls;
mod machine;
mod nodes;
mod options;
mod outcome;
mod overload;
mod own_image;
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
mod warm;
mod workers;
