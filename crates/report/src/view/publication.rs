//! A run as a page to publish, structured as studies are: environment, prerequisites, steps with their durations, tables,
//! charts, iterations and what was invalid, decision; and where each part of the original study's page is in it.

mod facts;
mod log;
mod original;
mod section;

use meshtax_model::analysis::Analysis;
use meshtax_published::PageContent;

pub(crate) use section::{Publication, Section, SectionContent};

use crate::view::chart::{Chapter, Figure};
use crate::view::document::{Headline, lead_line};
use crate::view::source::{Source, load_in_words};
use crate::view::{
    charts, checks, cluster, decision, elsewhere, evidence, figures, headline, ingress,
    known_costs, meaning, notes, programs, proxies, replicas, saturation, study, upkeep,
};

/// The page of a run. What has no content here is left out, and listed where the study's page has it.
pub(crate) fn publication(analysis: &Analysis) -> Publication {
    let source = Source { analysis };
    let drawn = charts::figures(source);
    let mut sections = vec![
        overview(source),
        environment(source),
        facts::prerequisites(source),
        deployment(source),
        steps(source),
        requests(source, &drawn),
        resources(source, &drawn),
        facts::operation(source),
        iterations(source),
        facts::compliance(source),
        decision(source),
    ];
    sections.retain(|section| !section.parts.is_empty());
    sections.extend(original::section(source, &sections));
    sections
        .push(Section::new("How to read this page", &[]).items(notes::notes(source, &[source])));
    Publication {
        title: notes::title(analysis),
        sections,
    }
}

fn overview(source: Source<'_>) -> Section {
    let headlines = headline::headlines(source);
    let of_variant =
        |headline: &Headline| format!("{}: {}", headline.variant, headline.clauses.join("; "));
    Section::new("Overview", &[PageContent::Overview])
        .text(notes::partial(source.analysis).unwrap_or_default())
        .text(lead_line(&headline::lead(source), &headlines))
        .items(headlines.iter().map(of_variant).collect())
        .items(notes::meaning(&source.analysis.environment))
        .tables([meaning::table(source)])
}

fn environment(source: Source<'_>) -> Section {
    let facts = notes::facts(source.analysis).into_iter();
    let mut items: Vec<String> = facts
        .map(|(name, text)| format!("{name}: {text}"))
        .collect();
    if let Some(set) = original::study(source) {
        items.push(format!("The study's own: {}", set.environment));
    }
    Section::new("Environment", &[PageContent::Environment])
        .items(items)
        .tables([programs::table(source)])
        .tables([cluster::granted(source)])
}

fn deployment(source: Source<'_>) -> Section {
    let mut section = Section::new("Deployment evidence", &[PageContent::Evidence])
        .text(evidence::title(source.analysis));
    section
        .parts
        .push(SectionContent::Evidence(evidence::lines(source)));
    section
}

fn steps(source: Source<'_>) -> Section {
    Section::new("Steps and their durations", &[])
        .tables(log::steps(source))
        .tables(saturation::tables(source))
        .tables(upkeep::table(source))
}

fn requests(source: Source<'_>, drawn: &[Figure]) -> Section {
    let loads = source.points().map(load_in_words).collect();
    let mut contents = vec![PageContent::Approach];
    if original::has_requests(source) {
        contents.push(PageContent::Requests);
    }
    let study = original::study(source);
    let studys = study.map_or_else(String::new, |set| format!("The study: {}", set.workload));
    Section::new("Requests", &contents)
        .text("Loads, each measured for every variant in every block, in random order:")
        .items(loads)
        .text(studys)
        .tables(study::tables(&[source]))
        .figures(drawn, &[Chapter::Published])
        .tables(source.points().map(|point| figures::table(source, point)))
        .tables(ingress::table(source))
        .tables(replicas::table(source))
        .tables(known_costs::table(source))
        .figures(drawn, &[Chapter::Overheads, Chapter::Latency])
}

fn resources(source: Source<'_>, drawn: &[Figure]) -> Section {
    Section::new("CPU and memory", &log::roles(source))
        .text(log::absent(source))
        .figures(drawn, &[Chapter::Time, Chapter::Cpu, Chapter::Memory])
        .tables([elsewhere::leading(source)])
        .tables(proxies::table(source))
}

fn iterations(source: Source<'_>) -> Section {
    Section::new(
        "Iterations, and what was invalid",
        &[PageContent::Iterations],
    )
    .tables(log::rounds(source))
    .items(log::interruptions(source))
    .tables([cluster::events(source)])
    .tables(checks::tables(source))
}

fn decision(source: Source<'_>) -> Section {
    Section::new("Decision", &[PageContent::Decision]).tables(decision::tables(
        source.analysis.decision.as_ref(),
        source.loads(),
    ))
}
