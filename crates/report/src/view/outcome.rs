//! Sentences about loads that were not carried.

use meshtax_model::analysis::{LoadOutcome, Overload, Point, Shortfall};

use super::table::{Cell, Tone};
use crate::format::grouped;

/// A figure as a lower bound, if it is one.
pub(crate) fn at_least(figure: String, lower_bound: bool) -> String {
    match lower_bound {
        true => format!("≥ {figure}"),
        false => figure,
    }
}

/// What a trial lacked of its load.
pub(crate) fn shortfall(shortfall: Shortfall) -> &'static str {
    match shortfall {
        Shortfall::ProxyOutOfMemory => "a proxy exceeded its memory limit",
        Shortfall::ProxyEnded => "a proxy ended",
        Shortfall::NotConnected => "no connections",
        Shortfall::NoResponses => "no responses",
        Shortfall::Errors => "errors above 0.1 %",
        Shortfall::BadStatus => "bad status codes above 0.1 %",
        Shortfall::Unanswered => "requests without a response above 0.1 %",
        Shortfall::AchievedBelowOffered => "achieved below 98 % of offered",
    }
}

/// `completed 2,310 of 6,000 requests/s (61 % without a response) in 12 of 12 trials, where the baselines carried the
/// load`; `lost a proxy in 4 of 12 trials, …` or `took no connections in 4 of 12 trials, …` where that is true of all.
pub(crate) fn overload(overload: &Overload) -> String {
    let (ended, refused) = (overload.proxies_ended, overload.not_connected);
    let all = overload.trials;
    let also = |count: u32, what: &str| match count {
        0 => String::new(),
        count => format!(", and {what} in {count} of them"),
    };
    let (failed, also) = if ended == all {
        ("lost a proxy".to_owned(), String::new())
    } else if refused == all {
        ("took no connections".to_owned(), String::new())
    } else if ended.saturating_add(refused) == all {
        let both = "lost a proxy or took no connections";
        (both.to_owned(), String::new())
    } else {
        let ended = also(ended, "a proxy ended");
        let refused = also(refused, "no connection could be opened");
        (completed(overload), format!("{ended}{refused}"))
    };
    format!(
        "{failed} in {all} of {} trials{also}, where the baselines carried the load",
        overload.of,
    )
}

/// `completed 2,310 of 6,000 requests/s (61 % without a response)`.
fn completed(overload: &Overload) -> String {
    let lost = [
        (overload.errors, "errors"),
        (overload.bad_status, "bad status codes"),
        (overload.unanswered, "without a response"),
    ];
    let lost: Vec<String> = lost
        .into_iter()
        .filter(|(share, _)| *share > 0.0)
        .map(|(share, what)| {
            let percent = share * 100.0;
            let decimals = if percent < 1.0 {
                2
            } else {
                usize::from(percent < 10.0)
            };
            format!("{} % {what}", grouped(percent, decimals))
        })
        .collect();
    let lost = match lost.as_slice() {
        [] => String::new(),
        lost => format!(" ({})", lost.join(", ")),
    };
    format!(
        "completed {} of {} requests/s{lost}",
        grouped(overload.achieved_per_s, 0),
        grouped(overload.offered_per_s, 0),
    )
}

/// Whether the load was carried, and how many trials lacked what.
pub(crate) fn cell(point: &Point) -> Cell {
    let (word, tone) = match point.outcome {
        LoadOutcome::Carried => ("carried", Tone::Plain),
        LoadOutcome::Overloaded(_) => ("overloaded", Tone::Bad),
        LoadOutcome::Uncertain { .. } => ("inconclusive", Tone::Strong),
        LoadOutcome::BeyondMachine { .. } => ("beyond this machine", Tone::Bad),
    };
    let lacked = point.short.iter();
    let lacked: Vec<String> = lacked
        .map(|(lacked, count)| format!("{} ({count})", shortfall(*lacked)))
        .collect();
    let text = match lacked.as_slice() {
        [] => word.to_owned(),
        lacked => format!("{word}: {}", lacked.join("; ")),
    };
    Cell::text(text).toned(tone)
}
