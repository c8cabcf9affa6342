//! A run's id: time, name, and four digits that distinguish runs of the same second.

use std::path::PathBuf;

use time::OffsetDateTime;

/// The default directory of runs.
const PARENT: &str = "meshtax-runs";

/// Characters of the experiment's name that an id keeps.
const MOST_OF_NAME: usize = 40;

/// The directory of a run, unless the user names another: `meshtax-runs/<run-id>`.
#[must_use]
pub fn default_path(run_id: &str) -> PathBuf {
    PathBuf::from(PARENT).join(run_id)
}

/// `20261121-110934-quick-3f2a`: UTC, the experiment's name, and randomness of the caller's.
#[must_use]
pub fn run_id(started_unix_ms: u64, name: &str, random: u16) -> String {
    let seconds = i64::try_from(started_unix_ms / 1000).unwrap_or(0);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = at.to_calendar_date();
    let (month, (hour, minute, second)) = (u8::from(month), at.to_hms());
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .take(MOST_OF_NAME)
        .collect();
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{name}-{random:04x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_id_has_the_utc_time() {
        assert_eq!(run_id(0, "quick", 0x3f2a), "19700101-000000-quick-3f2a");
        assert_eq!(run_id(951_782_399_999, "a", 1), "20000228-235959-a-0001");
        assert_eq!(run_id(951_782_400_000, "a", 1), "20000229-000000-a-0001");
        assert_eq!(
            run_id(1_795_259_374_000, "quick", 0xffff),
            "20261121-110934-quick-ffff"
        );
    }

    #[test]
    fn run_id_is_safe_as_a_path() {
        let id = run_id(u64::MAX, "../a b/ü\0", 7);
        assert!(id.ends_with("-..-a-b----0007"), "{id}");
        assert_eq!(default_path("x"), PathBuf::from("meshtax-runs/x"));
    }
}
