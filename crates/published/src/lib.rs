//! What others publish of service meshes, as data: [`results`] of their measurements and facts of their [`meshes`].
//!
//! It is kept apart from what meshtax measures: nothing here enters an analysis by itself. Each result set names its
//! source, its environment and its faults; each fact names the page that says it and the day on which it was read.
//!
//! Pure: the data are files of this crate (`data/`), read when they are first asked for.
#![forbid(unsafe_code)]

mod meshes;
mod quantity;
mod results;

pub use meshes::{Answer, Fact, Feature, Mesh, Meshes, fact, meshes};
pub use quantity::{BaseUnit, Metric, Unit};
pub use results::{
    Caveat, CaveatKind, Column, Factor, Figure, ResultSet, Row, Value, Variant, find, results,
};
