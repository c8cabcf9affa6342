//! Numbers in the text about a load.

use crate::format;

/// `1,234,567`.
pub(super) fn grouped(count: u64) -> String {
    format::grouped(count as f64, 0)
}

/// `9,310/s`.
pub(super) fn per_s(rate: f64) -> String {
    let decimals = if rate < 10.0 { 2 } else { 0 };
    format!("{}/s", format::grouped(rate, decimals))
}

/// `1 connection`.
pub(super) fn connections(connections: u32) -> String {
    match connections {
        1 => "1 connection".into(),
        many => format!("{} connections", grouped(u64::from(many))),
    }
}

/// Milliseconds with three decimals: to the microsecond.
pub(super) fn milliseconds(ns: f64) -> String {
    format!("{:.3}", ns / 1e6)
}

/// The same, or a dash where there is no figure.
pub(super) fn milliseconds_or_dash(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".into(), |ns| milliseconds(ns as f64))
}
