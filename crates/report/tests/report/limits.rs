//! Limits on proxies, and what they did.

use meshtax_model::analysis::Analysis;
use meshtax_model::pods::{ProxyRole, Quantities};
use meshtax_model::trial::{ComponentRole, Throttled};
use meshtax_report::TerminalOptions;

use crate::fixtures;

/// The server's proxies of a candidate are limited, and had to wait in 43 of 100 periods.
pub(crate) fn limited() -> Analysis {
    let mut analysis = fixtures::quick();
    let experiment = &mut analysis.experiment;
    let candidate = experiment.variants.last_mut().expect("a candidate");
    candidate.limits = [(
        ProxyRole::ServerProxy,
        Quantities {
            cpu_millis: Some(100),
            memory_bytes: Some(64 << 20),
        },
    )]
    .into();
    let id = candidate.id.clone();
    let variants = analysis.variants.iter_mut().filter(|v| v.variant == id);
    let points = variants.flat_map(|variant| &mut variant.points);
    let accounts = points.filter_map(|point| point.cpu.as_mut());
    let components = accounts.flat_map(|cpu| &mut cpu.components);
    for component in components.filter(|c| c.role == ComponentRole::ServerProxy) {
        component.throttled = Some(Throttled {
            periods: 100,
            throttled_periods: 43,
            throttled_ns: 3_250_000_000,
        });
    }
    analysis
}

#[test]
fn limits_and_throttling_are_beside_the_cpu_figures_and_in_the_notes() {
    let wide = TerminalOptions {
        width: 200,
        color: false,
    };
    let analysis = limited();
    for text in [
        meshtax_report::terminal(&analysis, wide),
        meshtax_report::markdown(&analysis),
        meshtax_report::html(&analysis),
    ] {
        // Lines break at any space.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "(throttled 43 %)",
            "limited to 0.1 CPU and 64 MiB for each server proxy",
            "server proxy in 43 % of the periods of 100 ms",
        ] {
            assert!(text.contains(expected), "no {expected:?} in {text}");
        }
    }
    // Where the table of proxies is.
    let page = meshtax_report::html(&analysis);
    assert!(page.contains("throttled: the share of the periods of 100 ms"));
}

#[test]
fn report_without_limits_does_not_mention_throttling() {
    let html = meshtax_report::html(&fixtures::quick());
    assert!(!html.contains("throttled"), "{html}");
}
