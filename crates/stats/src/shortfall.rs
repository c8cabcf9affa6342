//! Whether a trial carried its load. Nothing here depends on how fast it was, or excludes it: whether the trial counts
//! is decided in [`crate::validity`], and whose fault it is in [`crate::outcome`].

use meshtax_model::analysis::Shortfall;
use meshtax_model::experiment::LoadPoint;
use meshtax_model::trial::LoadResult;

/// Open loop: with fewer responses in the window than this share of the requests, the load was
/// not carried.
pub const COMPLETED_SHARE_MIN: f64 = 0.98;

/// Open loop: requests that a single pause of the machine at the end of the window may leave without a response in
/// it, in nanoseconds of offered load. Such a pause is latency, and counted as such; in a window of
/// half a second it is more than 2 %.
pub const PAUSE_AT_THE_END_NS: u64 = 25_000_000;

/// Errors, bad statuses and requests without a response, each as a share of the requests.
pub const FAULTY_SHARE_MAX: f64 = 0.001;

/// What a trial lacked of its load; `None`: it carried it.
#[must_use]
pub fn shortfall(load: &LoadResult, point: &LoadPoint) -> Option<Shortfall> {
    let lost = Lost::of(load);
    let faulty = |count| exceeds(count, load.offered, FAULTY_SHARE_MAX);
    let open = point.is_steady();
    [
        (
            load.completed == 0 || load.response.count() == 0,
            Shortfall::NoResponses,
        ),
        (faulty(lost.errors), Shortfall::Errors),
        (
            exceeds(lost.bad_status, responses(load), FAULTY_SHARE_MAX),
            Shortfall::BadStatus,
        ),
        (open && faulty(lost.unanswered), Shortfall::Unanswered),
        (
            open && is_below_offered(load),
            Shortfall::AchievedBelowOffered,
        ),
    ]
    .into_iter()
    .find_map(|(fired, shortfall)| fired.then_some(shortfall))
}

/// Requests without a good response.
#[derive(Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) errors: u64,
    pub(crate) bad_status: u64,
    pub(crate) unanswered: u64,
}

impl Lost {
    pub(crate) fn of(load: &LoadResult) -> Self {
        let kinds = load.errors.by_kind();
        let bad = load.status.iter();
        let bad = bad.filter(|(code, _)| !(200..400).contains(*code));
        Self {
            errors: sum(kinds.iter().map(|(_, count)| *count)),
            bad_status: sum(bad.map(|(_, count)| *count)),
            unanswered: load.unanswered,
        }
    }

    pub(crate) fn all(self) -> u64 {
        sum([self.errors, self.bad_status, self.unanswered])
    }
}

fn responses(load: &LoadResult) -> u64 {
    sum(load.status.values().copied())
}

pub(crate) fn sum(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Responses to requests from before the window compensate, on average, for those that arrive after
/// it; neither a single one more or less nor a short pause is evidence of a shortfall.
fn is_below_offered(load: &LoadResult) -> bool {
    let missing = load.offered.saturating_sub(load.completed);
    let pause = load.offered as f64 * PAUSE_AT_THE_END_NS as f64 / load.window_ns.max(1) as f64;
    missing > 1
        && missing as f64 > pause
        && exceeds(missing, load.offered, 1.0 - COMPLETED_SHARE_MIN)
}

/// Whether `part` is more than a share of `whole`.
pub(crate) fn exceeds(part: u64, whole: u64, share: f64) -> bool {
    // A small tolerance: 2 of 100 are not "above 2 %" because 1 − 0.98 is not exactly 0.02.
    part as f64 > whole as f64 * (share + 1e-9)
}
