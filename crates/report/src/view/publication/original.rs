//! The page on which the study was published, next to this one.

use meshtax_published::{PageContent, PageItem, ResultSet};

use super::section::Section;
use crate::view::source::Source;
use crate::view::study::loads;
use crate::view::table::{Align, Cell, Column, Keep, Table, Tone};

/// The study that the run reproduces, or beside which it was reported.
pub(super) fn study(source: Source<'_>) -> Option<&'static ResultSet> {
    loads::of(&[source])
}

/// Whether the run has a load of the study.
pub(super) fn has_requests(source: Source<'_>) -> bool {
    study(source).is_some_and(|set| {
        let (elsewhere, all) = loads::elsewhere(&loads::study_loads(&[source], set), set);
        elsewhere < all
    })
}

/// Where each heading, table and figure of the original is; `None`: there is no study, or its page is not listed.
pub(super) fn section(source: Source<'_>, sections: &[Section]) -> Option<Section> {
    let set = study(source).filter(|set| !set.page.is_empty())?;
    let left = |head: &str| Column::new(head, Align::Left, Keep::Always);
    let row = |item: &PageItem| {
        let here = match &item.of {
            Some(other) => Cell::text(format!("not in this run: see {other}")).toned(Tone::Muted),
            None => place(source, item.content, sections),
        };
        vec![Cell::text(&item.item), here]
    };
    let table = Table {
        title: "Parts of the original".to_owned(),
        detail: set.url.clone().unwrap_or_else(|| set.source.clone()),
        columns: vec![left("in the original"), left("on this page")],
        rows: set.page.iter().map(row).collect(),
        footnotes: Vec::new(),
    };
    Some(Section::new("The original study's page", &[]).tables([table]))
}

fn place(source: Source<'_>, content: PageContent, sections: &[Section]) -> Cell {
    let mut holders = sections.iter();
    if let Some(section) = holders.find(|section| section.contents.contains(&content)) {
        return Cell::text(section.heading);
    }
    let text = match content {
        PageContent::CniCpu => "not measured by any engine",
        PageContent::IngressCpu if !source.analysis.environment.is_local() => "local engine only",
        PageContent::Usability => "not measured: nothing here can be counted",
        _ => "not in this run",
    };
    Cell::text(text).toned(Tone::Muted)
}
