//! Flags, as plain as they come.

use std::str::FromStr;

/// The words of one command line.
pub(crate) struct Args<'a> {
    /// Words that belong to no flag.
    pub(crate) plain: Vec<&'a str>,
    flags: Vec<(&'a str, &'a str)>,
}

impl<'a> Args<'a> {
    /// `switches` take no value, all other flags do.
    pub(crate) fn parse(words: &'a [String], switches: &[&str]) -> Result<Self, String> {
        let (mut plain, mut flags) = (Vec::new(), Vec::new());
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                plain.push(word);
            } else if switches.contains(&word) {
                flags.push((word, ""));
            } else {
                let value = words.next().ok_or(format!("{word} needs a value"))?;
                flags.push((word, value));
            }
        }
        Ok(Self { plain, flags })
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|(name, _)| *name == flag)
    }

    pub(crate) fn get<T: FromStr>(&self, flag: &str) -> Result<Option<T>, String> {
        let Some((_, text)) = self.flags.iter().find(|(name, _)| *name == flag) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| format!("{flag}: {text} is no value for it"))
    }

    pub(crate) fn or<T: FromStr>(&self, flag: &str, default: T) -> Result<T, String> {
        Ok(self.get(flag)?.unwrap_or(default))
    }

    /// The first plain word.
    pub(crate) fn first<T: FromStr>(&self, what: &str) -> Result<T, String> {
        self.plain
            .first()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("give {what}"))
    }
}
