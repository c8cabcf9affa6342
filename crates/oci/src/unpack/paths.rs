//! A set of paths.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

/// Paths, with the directories above them. Each component is kept once: a layer whose paths are long and have many
/// components must not need their product in memory.
#[derive(Default)]
pub(super) struct Paths {
    /// The number of a directory (0: the root) and a name in it; the number of what has that name.
    numbers: HashMap<(usize, Box<OsStr>), usize>,
}

impl Paths {
    /// Adds a path and the directories above it. Returns how many of them, with the path itself, were not there.
    pub(super) fn add(&mut self, path: &Path) -> u64 {
        let before = self.numbers.len();
        let mut at = 0;
        for name in path {
            let next = self.numbers.len() + 1;
            at = *self.numbers.entry((at, name.into())).or_insert(next);
        }
        (self.numbers.len() - before) as u64
    }

    /// Whether a path was added, or one below it.
    pub(super) fn contains(&self, path: &Path) -> bool {
        let mut names = path.iter();
        let found = names.try_fold(0, |at, name| self.numbers.get(&(at, name.into())).copied());
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_a_path_are_added_with_it_and_once() {
        let mut paths = Paths::default();
        let mut add = |path: &str| paths.add(Path::new(path));
        assert_eq!(
            [add("a/b/c"), add("a/b"), add("a/b/d"), add("b")],
            [3, 0, 1, 1]
        );
        for known in ["a", "a/b", "a/b/c", "a/b/d", "b"] {
            assert!(paths.contains(Path::new(known)), "{known}");
        }
        for unknown in ["c", "b/a", "a/b/c/d", "a/c"] {
            assert!(!paths.contains(Path::new(unknown)), "{unknown}");
        }
    }
}
