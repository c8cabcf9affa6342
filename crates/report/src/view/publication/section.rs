//! The sections of a page, and what they consist of.

use meshtax_published::PageContent;

use crate::view::chart::{Chapter, Figure};
use crate::view::document::EvidenceLine;
use crate::view::table::Table;

/// A page.
pub(crate) struct Publication {
    pub(crate) title: String,
    pub(crate) sections: Vec<Section>,
}

/// A part of the page under a heading.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) parts: Vec<SectionContent>,
    /// What of a study's page it has.
    pub(super) contents: Vec<PageContent>,
}

/// What a section consists of.
pub(crate) enum SectionContent {
    Text(String),
    Items(Vec<String>),
    Evidence(Vec<EvidenceLine>),
    Table(Table),
    Figure(Figure),
}

impl Section {
    pub(super) fn new(heading: &'static str, contents: &[PageContent]) -> Self {
        Self {
            heading,
            parts: Vec::new(),
            contents: contents.to_vec(),
        }
    }

    pub(super) fn text(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.parts.push(SectionContent::Text(text));
        }
        self
    }

    pub(super) fn items(mut self, items: Vec<String>) -> Self {
        if !items.is_empty() {
            self.parts.push(SectionContent::Items(items));
        }
        self
    }

    pub(super) fn tables(mut self, tables: impl IntoIterator<Item = Table>) -> Self {
        let tables = tables.into_iter().filter(|table| !table.rows.is_empty());
        self.parts.extend(tables.map(SectionContent::Table));
        self
    }

    pub(super) fn figures(mut self, all: &[Figure], chapters: &[Chapter]) -> Self {
        let here = all.iter().filter(|f| chapters.contains(&f.chapter));
        self.parts.extend(here.cloned().map(SectionContent::Figure));
        self
    }
}

impl Publication {
    /// The figures of all sections.
    pub(crate) fn figures(&self) -> impl Iterator<Item = &Figure> {
        let parts = self.sections.iter().flat_map(|section| &section.parts);
        parts.filter_map(|part| match part {
            SectionContent::Figure(figure) => Some(figure),
            _ => None,
        })
    }
}
