//! A service as it is written, before it is assigned to a node.

use meshtax_model::topology::{Call, NodeSide, Page, Work};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) replicas: u32,
    pub(super) nodes: u32,
    pub(super) response_bytes: Option<u32>,
    pub(super) node: Option<NodeSide>,
    /// Whether clients call it even if it is not the first service.
    pub(super) entry_point: bool,
    pub(super) work: Work,
    pub(super) pages: Vec<Page>,
}

impl Draft {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            replicas: 1,
            nodes: 1,
            response_bytes: None,
            node: None,
            entry_point: false,
            work: Work::default(),
            pages: Vec::new(),
        }
    }

    /// All calls that it may make.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Call> {
        let pages = self.pages.iter().flat_map(Page::calls);
        self.work.calls().chain(pages)
    }
}
