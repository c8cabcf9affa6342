//! The pictures of a report.

mod curves;
mod overheads;
pub(super) mod published;
mod rates;
mod stacks;
mod timeline;
mod waterfall;
mod words;

pub(crate) use self::timeline::WITHIN_A_TRIAL;
use self::words::name;

use crate::view::chart::Figure;
use crate::view::source::Source;

/// All of them, in a report's order; those without anything to show are left out.
pub(crate) fn figures(source: Source<'_>) -> Vec<Figure> {
    let mut figures = overheads::figures(source);
    figures.extend(published::figure(&[source]));
    figures.extend(curves::percentiles(source));
    figures.extend(rates::over_rate(source));
    figures.extend(stacks::cpu(source));
    figures.extend(stacks::memory(source));
    figures.extend(waterfall::figures(source));
    figures.extend(timeline::figures(source));
    figures
}

/// Place and name of each variant.
pub(crate) fn drawn(source: Source<'_>) -> Vec<(usize, String)> {
    let measured = source.measured();
    measured
        .map(|(asked, _)| (source.place(&asked.id), name(asked)))
        .collect()
}
