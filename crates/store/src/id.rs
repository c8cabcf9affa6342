//! A run's id: when, what, and four digits that tell runs of one second apart.

use std::path::PathBuf;

/// Where runs go unless the user says otherwise.
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
    let seconds = started_unix_ms / 1000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
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

/// Days since 1970 -> year, month, day (Hinnant's algorithm, with years that begin in March).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_when_in_utc() {
        assert_eq!(run_id(0, "quick", 0x3f2a), "19700101-000000-quick-3f2a");
        assert_eq!(run_id(951_782_399_999, "a", 1), "20000228-235959-a-0001");
        assert_eq!(run_id(951_782_400_000, "a", 1), "20000229-000000-a-0001");
        assert_eq!(
            run_id(1_795_259_374_000, "quick", 0xffff),
            "20261121-110934-quick-ffff"
        );
    }

    #[test]
    fn is_safe_as_a_path() {
        let id = run_id(u64::MAX, "../a b/ü\0", 7);
        assert!(id.ends_with("-..-a-b----0007"), "{id}");
        assert_eq!(default_path("x"), PathBuf::from("meshtax-runs/x"));
    }
}
