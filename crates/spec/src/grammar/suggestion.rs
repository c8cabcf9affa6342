//! Lists of allowed words, and the one that was probably meant.

/// The longest input that is compared.
const MAX_CHARS: usize = 64;

/// The allowed word with the smallest edit distance to what was typed, if the distance is small.
#[must_use]
pub fn nearest<'a>(typed: &str, allowed: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: String = typed.chars().take(MAX_CHARS).collect();
    let typed = typed.to_lowercase().replace('_', "-");
    if typed.is_empty() {
        return None;
    }
    allowed
        .into_iter()
        .map(|word| (strsim::osa_distance(&typed, word), word))
        .filter(|(distance, word)| *distance <= 1.max(word.chars().count().min(9) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// A fix that begins with the word that was probably meant.
pub(crate) fn with_suggestion<'a>(
    typed: &str,
    allowed: impl IntoIterator<Item = &'a str>,
    fix: String,
) -> String {
    match nearest(typed, allowed) {
        Some(meant) => format!("did you mean `{meant}`? {fix}"),
        None => fix,
    }
}

/// Words for a message: `` `a`, `b` or `c` ``.
pub(crate) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|w| format!("`{w}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_suggests_the_nearest_allowed_one() {
        let allowed = ["response", "connections"];
        assert_eq!(nearest("conections", allowed), Some("connections"));
        assert_eq!(nearest("Connections", allowed), Some("connections"));
        assert_eq!(nearest("repsonse", allowed), Some("response"));
        assert_eq!(nearest("colour", allowed), None);
        assert_eq!(nearest("", allowed), None);
        assert_eq!(nearest("data_plane", ["data-plane"]), Some("data-plane"));
    }
}
