//! A gate for machines that read verdicts: JUnit's XML and GitHub's annotations.

use meshtax_model::comparison::{GateCheck, GateReport, GateVerdict};

use crate::text::clean;
use crate::view::headings;
use crate::view::{gate_limit, gate_line, gate_sentence};

/// A JUnit document with a test case for each check. An inconclusive check is an error: JUnit consumers treat
/// anything less as a pass.
pub(crate) fn junit(gate: &GateReport) -> String {
    let failures = gate.count(GateVerdict::Fail);
    let errors = gate.count(GateVerdict::Inconclusive);
    let count = gate.checks.len();
    let counts = format!("tests=\"{count}\" failures=\"{failures}\" errors=\"{errors}\"");
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"meshtax gate\" \
         {counts}>\n"
    );
    for check in &gate.checks {
        out.push_str(&test_case(check));
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn test_case(check: &GateCheck) -> String {
    let change = &check.change;
    let name = format!(
        "{} at {}: {}",
        change.metric.name(),
        change.load_point,
        gate_limit(check)
    );
    let class = xml(&change.variant);
    let name = xml(&name);
    let message = xml(&gate_sentence(check));
    let open = format!("    <testcase classname=\"meshtax.{class}\" name=\"{name}\"");
    match check.verdict {
        GateVerdict::Pass => {
            format!("{open}>\n      <system-out>{message}</system-out>\n    </testcase>\n")
        }
        GateVerdict::Fail => format!(
            "{open}>\n      <failure type=\"limit\" message=\"{message}\"/>\n    </testcase>\n"
        ),
        GateVerdict::Inconclusive => format!(
            "{open}>\n      <error type=\"inconclusive\" message=\"{message}\"/>\n    </testcase>\n"
        ),
    }
}

/// Text as XML takes it, in elements and in quoted attributes. Control characters have no place in XML at all;
/// `clean` makes them spaces.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // No characters in XML 1.0.
            '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}

/// Workflow commands of GitHub Actions: an error or a warning for each check that does not pass, and a notice for the
/// gate if all do.
pub(crate) fn annotations(gate: &GateReport) -> String {
    let mut out = String::new();
    for check in &gate.checks {
        let (kind, title) = match check.verdict {
            GateVerdict::Pass => continue,
            GateVerdict::Fail => ("error", headings::GATE_FAILED),
            GateVerdict::Inconclusive => ("warning", headings::GATE_INCONCLUSIVE),
        };
        let message = command(&gate_sentence(check));
        out.push_str(&format!("::{kind} title={title}::{message}\n"));
    }
    if gate.verdict == GateVerdict::Pass {
        let message = command(&gate_line(gate));
        let title = headings::GATE_PASSED;
        out.push_str(&format!("::notice title={title}::{message}\n"));
    }
    out
}

/// Text that cannot start a workflow command: it stays on its line.
fn command(text: &str) -> String {
    clean(text).replace('%', "%25")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            xml("a<b & \"c\"'d\n\u{1b}]"),
            "a&lt;b &amp; &quot;c&quot;&apos;d  ]"
        );
        assert_eq!(command("5 %\n::error::x"), "5 %25 ::error::x");
    }
}
