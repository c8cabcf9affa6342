//! Published data about service meshes: benchmark [`results`] and facts about their [`meshes`].
//!
//! It is kept apart from what meshtax measures: nothing here enters an analysis. Each result set names its source, its
//! environment and its caveats; each fact names the page that supports it and the day on which the page was read.
//!
//! Pure: the data are files of this crate (`data/`), parsed on first use.
#![forbid(unsafe_code)]

mod error;
mod meshes;
mod page;
mod quantity;
mod results;

pub use meshes::{Answer, Fact, Feature, Mesh, Meshes, fact, meshes};
pub use page::{PageContent, PageItem};
pub use quantity::{BaseUnit, Metric, Unit};
pub use results::{
    Caveat, CaveatKind, Column, Factor, Figure, ResultSet, Row, Value, Variant, find, results,
};
