//! The crate from outside: whole runs, coverage, and bad input.

mod advise;
mod analysis;
mod between;
mod caveats;
mod common;
mod conditions;
mod coverage;
mod decision;
mod elsewhere;
mod exclusions;
mod gate;
mod overload;
mod robust;
mod rounds;
mod timeline;
mod upkeep;
mod whole;

/// What the bench of whole experiments is made of, shared with it.
macro_rules! of_the_bench {
    ($($name:ident: $path:literal;)*) => {$(
        #[path = $path]
        #[allow(dead_code, reason = "the bench uses the rest")]
        mod $name;
    )*};
}

of_the_bench! {
    noise: "../../examples/coverage/noise.rs";
    pool: "../../examples/coverage/pool.rs";
    records: "../../examples/coverage/records.rs";
    replay: "../../examples/coverage/replay.rs";
    score: "../../examples/coverage/score.rs";
    setting: "../../examples/coverage/setting.rs";
    synthetic: "../../examples/coverage/synthetic.rs";
}
