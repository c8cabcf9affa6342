//! Small files of `/proc` and their forms.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// More than any of the files that are read by [`read_once`] can hold.
const LARGEST: usize = 4096;

/// A file of `/proc` in a single read: the kernel makes the text as a whole at the first one. What
/// is not UTF-8 (names of programs may be anything) is replaced.
pub(crate) fn read_once(path: &Path) -> io::Result<String> {
    let mut buffer = [0_u8; LARGEST];
    let length = File::open(path)?.read(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The first word after a key that begins a line: `key value ...`, or `key:value ...`.
pub(crate) fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?;
        let rest = rest.strip_prefix([' ', '\t', ':'])?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// What is needed of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// At most 15 bytes of any kind, including parentheses.
    pub(crate) name: String,
    /// Field 3.
    pub(crate) state: char,
    /// Field 9.
    pub(crate) flags: u32,
    /// Field 14, in ticks; with that of threads that ended.
    pub(crate) user_ticks: u64,
    /// Field 15, likewise.
    pub(crate) system_ticks: u64,
    /// Field 22, in ticks since boot: with the process id it is unique.
    pub(crate) started: u64,
    /// Field 39: the core on which the main thread runs, or ran last.
    pub(crate) core: u32,
}

impl ProcessStat {
    /// `None` if it is not of that form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        // Field 3 is the first, and `nth` counts from the one after the last that was taken.
        let mut fields = after.split_ascii_whitespace();
        Some(Self {
            name: name.to_owned(),
            state: fields.next()?.chars().next()?,
            flags: fields.nth(5)?.parse().ok()?,
            user_ticks: fields.nth(4)?.parse().ok()?,
            system_ticks: fields.next()?.parse().ok()?,
            started: fields.nth(6)?.parse().ok()?,
            core: fields.nth(16)?.parse().ok()?,
        })
    }
}

/// Of the ticks in which the kernel shows CPU time, in nanoseconds: 10 ms nearly everywhere.
pub(crate) fn tick_ns() -> u64 {
    1_000_000_000 / procfs::ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "417 (a) (b c) S 2 3 4 5 -1 69238880 7 8 9 10 1201 345 13 14 20 0 1 0 7731 \
                        0 0 18446744073709551615 1 2 3 4 5 6 7 8 9 10 0 0 17 3 0 0 0 0 0 1 2 3 4 \
                        5 6 7 0\n";

    #[test]
    fn stat_fields_are_parsed_after_any_process_name() {
        let stat = ProcessStat::parse(STAT).unwrap();
        let expected = ProcessStat {
            name: "a) (b c".into(),
            state: 'S',
            flags: 69_238_880,
            user_ticks: 1201,
            system_ticks: 345,
            started: 7731,
            core: 3,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn malformed_stat_line_is_none() {
        let cut = STAT.find(" 17 3").unwrap();
        for odd in ["", ")", "1 (x", ") 1 (", "1 (x) S", &STAT[..cut]] {
            assert_eq!(ProcessStat::parse(odd), None, "{odd}");
        }
        assert_eq!(ProcessStat::parse(&STAT.replace("1201", "-1")), None);
    }

    #[test]
    fn this_process_is_read_with_its_name() {
        let stat = ProcessStat::parse(&read_once(Path::new("/proc/self/stat")).unwrap()).unwrap();
        let name = read_once(Path::new("/proc/self/comm")).unwrap();
        assert_eq!(stat.name, name.trim_end());
        assert!(stat.started > 0);
    }

    #[test]
    fn number_is_matched_by_the_whole_key() {
        let text = "throttled_usec_more 1\nnr 2\nthrottled_usec 30\nVmHWM:\t  44 kB\n";
        assert_eq!(number_after(text, "throttled_usec"), Some(30));
        assert_eq!(number_after(text, "VmHWM"), Some(44));
        assert_eq!(number_after(text, "throttled"), None);
        assert_eq!(number_after("nr many\n", "nr"), None);
    }
}
