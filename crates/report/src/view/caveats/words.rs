//! Numbers and lists as sentences have them.

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share.abs() * 100.0)
}

pub(super) fn signed(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

pub(super) fn all<T>(things: &[T], text: impl Fn(&T) -> String) -> String {
    let texts: Vec<String> = things.iter().map(text).collect();
    texts.join(", ")
}

/// `1 trial`, `12 trials`.
pub(super) fn trials(count: u32) -> String {
    let named = crate::format::plural(count as usize, "trial", "trials");
    format!("{count} {named}")
}
