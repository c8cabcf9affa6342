//! Reports on a study: measured figures next to the published ones.

use meshtax_model::analysis::{
    Analysis, Caveat, ComponentCpu, CurvePoint, Estimate, ExclusionReason, Extent, IngressCost,
    Interval, Point, Usage, UsageGroup,
};
use meshtax_model::experiment::{Ingress, LoadPoint, Regime};
use meshtax_model::saturation::{Burst, ChosenWork, Saturation};
use meshtax_model::topology::{Call, NodeSide, Page, Service, Topology, Work, WorkStep};
use meshtax_model::trial::ComponentRole;
use meshtax_report::TerminalOptions;
use unicode_width::UnicodeWidthStr as _;

use crate::fixtures;

pub(crate) const WIDE: TerminalOptions = TerminalOptions {
    width: 100,
    color: false,
};

/// With an interval of 3 %.
fn percentile(quantile: f64, value_ns: f64) -> CurvePoint {
    CurvePoint {
        quantile,
        value_ns,
        interval: Some(Interval {
            low: value_ns * 0.97,
            high: value_ns * 1.03,
        }),
    }
}

/// The fixture with its closed loop as the study has it; of the percentiles the first are resolved.
pub(crate) fn livewyer() -> Analysis {
    let mut analysis = fixtures::quick();
    analysis.experiment.study = Some("livewyer-pod".to_owned());
    for point in &mut analysis.experiment.load_points {
        if !point.is_steady() {
            point.connections = Some(64);
            point.requests_per_connection = Some(1);
        }
    }
    analysis.experiment.saturation = Some(calibrated());
    let points = analysis.variants.iter_mut().flat_map(|v| &mut v.points);
    for (number, point) in points.enumerate() {
        point.percentiles = [0.5, 0.75, 0.9, 0.95]
            .map(|quantile| {
                percentile(
                    quantile,
                    7.5e6 * (1.0 + quantile) * (1.0 + number as f64 / 10.0),
                )
            })
            .to_vec();
    }
    analysis
}

/// Work that was found in three bursts.
fn calibrated() -> Saturation {
    let burst = |(steps_per_request, rate_per_s, app_ms): (f64, f64, f64)| Burst {
        steps_per_request,
        rate_per_s,
        app_cpu_ns: Some(app_ms * 1e6),
    };
    let of_service = |service: &str| ChosenWork {
        service: service.to_owned(),
        burn_steps: 985_113,
        added_cpu_ns: Some(1.52e6),
    };
    Saturation {
        rate_per_s: 157.4456,
        bursts: [
            (0.0, 3_410.5, 0.173),
            (1e6, 470.25, 1.68),
            (3_612_081.0, 158.2, 5.74),
        ]
        .map(burst)
        .to_vec(),
        services: ["productpage", "details"].map(of_service).to_vec(),
    }
}

/// A table of the terminal report, from its heading on.
pub(crate) fn table_of<'a>(text: &'a str, heading: &str) -> &'a str {
    let begin = text.find(heading).expect("a table");
    let end = text[begin..].find("\n\n");
    end.map_or(&text[begin..], |end| &text[begin..begin + end])
}

#[test]
fn application_scaled_to_saturate_has_its_calibration_and_its_share_of_cpu_in_the_report() {
    let text = meshtax_report::terminal(&livewyer(), WIDE);
    let tables = [
        "Calibration of the application",
        "The application's share of CPU",
    ]
    .map(|heading| table_of(&text, heading))
    .join("\n\n");
    insta::assert_snapshot!("saturation", tables);
    assert!(
        tables.contains("saturates at 158.2 requests/s (+0.5 %)"),
        "{tables}"
    );
    let mut slow = livewyer();
    let saturation = slow.experiment.saturation.as_mut().expect("one");
    saturation.bursts.truncate(1);
    for service in &mut saturation.services {
        service.burn_steps = 0;
    }
    let text = meshtax_report::terminal(&slow, WIDE);
    assert!(
        table_of(&text, "Calibration of").contains("slower than that by itself"),
        "{text}"
    );
}

#[test]
fn published_page_has_the_sections_of_the_study_and_says_where_each_part_of_it_is() {
    let (text, pictures) = meshtax_report::publication(&livewyer(), "pictures", "data");
    let from = text.find("# meshtax").expect("a title");
    let requests = text.find("## Requests").expect("a section");
    let iterations = text.find("## Iterations").expect("a section");
    let compliance = text.find("## Compliance").expect("a section");
    let original = text
        .find("## The original study's page")
        .expect("a section");
    let sections = [from..requests, iterations..compliance, original..text.len()];
    insta::assert_snapshot!(
        "publication",
        sections.map(|part| &text[part]).join("[…]\n")
    );
    let study = meshtax_published::find("livewyer-pod").expect("the study");
    assert!(study.page.len() > 20);
    for item in &study.page {
        assert!(text[original..].contains(&item.item), "{}", item.item);
    }
    for picture in &pictures {
        let link = format!("(<pictures/{}>)", picture.name);
        assert!(text.contains(&link), "{link}");
    }
    for link in text.split("(<pictures/").skip(1) {
        let (name, _) = link.split_once(">)").expect("its end");
        assert!(pictures.iter().any(|p| p.name == name), "{name}");
    }
    let other = meshtax_report::publication(&fixtures::quick(), "pictures", "data").0;
    assert!(!other.contains("The original study's page"), "{other}");
}

#[test]
fn study_table_has_measured_and_published_rows() {
    let text = meshtax_report::terminal(&livewyer(), WIDE);
    let begin = text.find("Study:").expect("a table");
    let end = text[begin..].find("\nEvidence").expect("what follows");
    insta::assert_snapshot!("livewyer_pod", &text[begin..begin + end]);
    for expected in ["no counterpart", "not in this run", "needs ", "Caveats:"] {
        assert!(text[begin..].contains(expected), "{expected}: {text}");
    }
}

/// The fixture's open loop as a study has it, with what studies print of it; the closed loop is of no study.
fn studied(study: &str, rate: f64, adapt: impl Fn(&mut LoadPoint)) -> Analysis {
    let mut analysis = fixtures::quick();
    analysis.experiment.study = Some(study.to_owned());
    for point in &mut analysis.experiment.load_points {
        if let Regime::Steady { rate_per_s, .. } = &mut point.load {
            *rate_per_s = rate;
            adapt(point);
        }
    }
    let points = analysis.variants.iter_mut().flat_map(|v| &mut v.points);
    let steady = points.filter(|point| point.load_point.0 == "steady");
    for (number, point) in steady.enumerate() {
        figures(point, 1.0 + number as f64);
    }
    analysis
}

fn figures(point: &mut Point, factor: f64) {
    let at = |quantile, ns: f64| percentile(quantile, ns * factor);
    let extent = |mean: f64| Extent {
        min: mean * factor * 0.5,
        mean: mean * factor,
        max: mean * factor * 2.0,
    };
    let usage = |group, cores, mebibytes: f64| Usage {
        group,
        cores: extent(cores),
        memory_bytes: Some(extent(mebibytes * 1_048_576.0)),
    };
    point.percentiles = vec![at(0.5, 4e5), at(0.75, 5e5), at(0.9, 6e5), at(0.95, 7e5)];
    point.first_byte = vec![at(0.5, 3e5), at(0.75, 4e5)];
    point.longest_ns = Some((3e6 * factor) as u64);
    point.usage = vec![
        usage(UsageGroup::Application, 0.005, 20.0),
        usage(UsageGroup::ClientProxy, 0.002, 15.0),
        usage(UsageGroup::Path, 0.007, 35.0),
    ];
}

/// Two runs of one spec, with 1 and with 90 pods.
pub(crate) fn pods_vegeta() -> [Analysis; 2] {
    [1, 90].map(|pods| {
        let mut run = studied("pods-vegeta", 20.0, |_| {});
        run.experiment.series = Some("pods-vegeta".to_owned());
        run.experiment.topology.services[0].replicas = pods;
        run
    })
}

#[test]
fn series_of_runs_fits_the_terminal_width() {
    for width in 60..=160 {
        let options = TerminalOptions {
            width,
            color: false,
        };
        for line in meshtax_report::series_terminal(&pods_vegeta(), options).lines() {
            assert!(line.width() <= width, "at {width}: {line}");
        }
    }
    let options = TerminalOptions {
        width: 80,
        color: false,
    };
    let text = meshtax_report::series_terminal(&pods_vegeta(), options);
    let tables = ["Study: Linkerd over", "CPU and memory in the study"];
    let tables = tables.map(|heading| table_of(&text, heading)).join("\n\n");
    insta::assert_snapshot!("pods_vegeta_80", tables);
}

#[test]
fn runs_of_one_spec_share_the_study_table() {
    let runs = pods_vegeta();
    let text = meshtax_report::series_terminal(&runs, WIDE);
    insta::assert_snapshot!("pods_vegeta", text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "meshtax pods-vegeta: service mesh overhead in 2 runs",
        "453.79",
        "98.05",
        "cluster only",
        "not in this run",
        "90 pods, envoy-sidecar-l7",
        "different runs are not paired",
    ] {
        assert!(words.contains(expected), "{expected}: {text}");
    }
    // Ten requests above it take a second at 1,000/s, and ten trials five.
    assert!(words.contains("needs 5 s"), "{text}");
    let json = meshtax_report::series_json(&runs);
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    for (number, run) in runs.iter().enumerate() {
        let alone: serde_json::Value =
            serde_json::from_str(&meshtax_report::json(run)).expect("JSON");
        assert_eq!(document["runs"][number], alone);
        assert_is_of_the_schema(run);
    }
    assert!(meshtax_report::series_html(&runs).contains("Study: Linkerd over"));
    assert!(meshtax_report::series_markdown(&runs).contains("1198.66"));
    assert!(meshtax_report::series_terminal(&[], WIDE).contains("in 0 runs"));
}

#[test]
fn study_of_users_is_matched_by_users_and_has_differences_from_its_baseline() {
    let analysis = studied("teastore-users", 100.0, |point| {
        point.by_users = true;
        point.connections = Some(20);
    });
    let text = meshtax_report::terminal(&analysis, WIDE);
    let begin = text.find("Study:").expect("a table");
    let end = text[begin..].find("\nEvidence").expect("what follows");
    insta::assert_snapshot!("teastore_users", &text[begin..begin + end]);
    assert!(text.contains("100 requests/s, 20 users"), "{text}");
    assert_is_of_the_schema(&analysis);
    // Other loads are of no study: no users, no row.
    let analysis = studied("teastore-users", 100.0, |_| {});
    let text = meshtax_report::terminal(&analysis, WIDE);
    assert!(!text.contains("Study:"), "{text}");
}

#[test]
fn duration_of_a_study_is_estimated() {
    let mut experiment = fixtures::quick().experiment;
    experiment.study = Some("livewyer-pod".to_owned());
    experiment.design.min_rounds = 2;
    experiment.design.trial_ns = 300_000_000_000;
    let trials = experiment.block_trials() * 2;
    let expected = meshtax_report::how_long(std::slice::from_ref(&experiment));
    assert!(
        expected.contains(&format!("{trials} trials of 5 min 00 s each")),
        "{expected}"
    );
    experiment.design.requests_per_trial = Some(300_000);
    let expected = meshtax_report::how_long(&[experiment]);
    // 12 cells of the study took 27,158 s.
    assert!(
        expected.contains("300,000 requests each") && expected.contains("7 h 32 min"),
        "{expected}"
    );
}

#[test]
fn ingress_table_has_cpu_of_the_gateway() {
    let mut analysis = livewyer();
    analysis.experiment.study = Some("livewyer-ingress".to_owned());
    let points = &mut analysis.experiment.load_points;
    let (from_pod, outside) = (points[0].id.clone(), points[1].id.clone());
    points[1].ingress = Some(Ingress::Tls);
    for variant in &mut analysis.variants {
        let point = variant.points.iter_mut().find(|p| p.load_point == outside);
        if let Some(cpu) = point.and_then(|point| point.cpu.as_mut()) {
            cpu.components.push(ComponentCpu {
                role: ComponentRole::Gateway,
                cpu_per_request_ns: 123_400.0,
                ..cpu.components[0].clone()
            });
        }
        let without_interval = variant.variant.0 == "none-again";
        analysis.ingress.push(IngressCost {
            variant: variant.variant.clone(),
            load_point: outside.clone(),
            from_pod: from_pod.clone(),
            difference: (!without_interval).then_some(Estimate {
                value: 120_000.0,
                interval: Some(Interval {
                    low: 110_000.0,
                    high: 130_000.0,
                }),
            }),
        });
    }
    let text = meshtax_report::terminal(&analysis, WIDE);
    let begin = text.find("Ingress, compared with").expect("a table");
    let end = text[begin..].find("Study:").expect("another");
    insta::assert_snapshot!("by_ingress", &text[begin..begin + end]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("a VM calls through the ingress"), "{text}");
    assert!(words.contains(", ingress over TLS"), "{text}");
    let published =
        "in the study ingress-nginx (Baseline), Istio's gateway (Istio), ingress-nginx (Linkerd)";
    assert!(words.contains(published), "{text}");
    assert_is_of_the_schema(&analysis);
}

#[test]
fn excluded_variant_is_marked_and_unknown_study_has_no_table() {
    let mut analysis = livewyer();
    for variant in &mut analysis.variants {
        if variant.variant.0.starts_with("envoy") {
            variant.excluded = Some(ExclusionReason::NoTrials);
        }
    }
    let text = meshtax_report::terminal(&analysis, WIDE);
    assert!(text.contains("excluded"), "{text}");
    analysis.experiment.study = Some("nobody's".to_owned());
    let text = meshtax_report::terminal(&analysis, WIDE);
    assert!(!text.contains("Study:"), "{text}");
    // The other formats include it, too.
    let analysis = livewyer();
    assert!(meshtax_report::html(&analysis).contains("Study: Four environments"));
    assert!(meshtax_report::markdown(&analysis).contains("2499.9058"));
}

#[test]
fn topology_is_reported_and_matches_the_schema() {
    let mut analysis = livewyer();
    let steps = || {
        vec![
            WorkStep::SleepNs(1_000),
            WorkStep::Calls(vec![Call {
                service: "back".into(),
                share: 0.5,
            }]),
        ]
    };
    let front = Service {
        work: Work {
            steps: steps(),
            ..Work::default()
        },
        pages: vec![Page {
            name: "home".into(),
            response_bytes: 10,
            post: Some("form".into()),
            cookie: Some("blob=1".into()),
            burn_steps: 5,
            steps: steps(),
        }],
        ..Service::new("front")
    };
    let back = Service {
        replicas: 2,
        response_bytes: Some(10),
        node: NodeSide::Client,
        entry_point: false,
        ..Service::new("back")
    };
    analysis.experiment.topology = Topology {
        name: Some("shop".into()),
        services: vec![front, back, Service::new("side")],
    };
    let text = meshtax_report::terminal(&analysis, WIDE);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("topology shop: 3 services (2 of them entry points), 0.25"),
        "{text}"
    );
    assert_is_of_the_schema(&analysis);
}

fn assert_is_of_the_schema(analysis: &Analysis) {
    let schema = include_str!("../../../../docs/schema/report-v2.json");
    let schema = serde_json::from_str(schema).expect("a schema");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let document = serde_json::from_str(&meshtax_report::json(analysis)).expect("JSON");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// A drawing of the picture, as a standalone file.
fn drawn(analysis: &Analysis, name: &str) -> Option<String> {
    let (_, pictures) = meshtax_report::illustrated_markdown(analysis, "pictures");
    let found = pictures.into_iter().find(|file| file.name == name);
    found.map(|file| file.text)
}

#[test]
fn published_figures_have_lanes_of_their_own() {
    let picture = drawn(&livewyer(), "published.svg").expect("it is drawn");
    insta::assert_snapshot!("picture_published.svg", picture);
    // A lane for each, a shape for each, and nothing that joins lanes.
    let lanes = |class: &str| picture.matches(&format!("<g class=\"{class}\"")).count();
    assert_eq!((lanes("lane"), lanes("lane published")), (6, 4));
    // Plus one of each in the legend.
    let marks = |class: &str| picture.matches(&format!("class=\"{class}\"")).count();
    assert_eq!((marks("measured"), marks("hollow")), (4 + 1, 4 + 1));
    for lane in picture.split("<g class=\"lane published\"").skip(1) {
        let (lane, _) = lane.split_once("</g>").expect("it ends");
        assert!(!lane.contains("spread") && !lane.contains("measured"));
    }
    for none in ["class=\"line\"", "class=\"band\"", "<polyline"] {
        assert!(!picture.contains(none), "{none}");
    }
    // Wrapped, and expected whole to those who do not see it.
    let expected = "Istio 0.5286 s";
    assert!(picture.contains(expected) && picture.contains("not in this run"));
    let words = "another machine and application version: absolute values are not comparable";
    let (_, alt) = picture.split_once("aria-label=\"").expect("words");
    let (alt, _) = alt.split_once('"').expect("they end");
    assert!(alt.contains(words) && alt.contains(expected), "{alt}");
}

#[test]
fn page_lists_figures_without_a_counterpart() {
    let page = meshtax_report::html(&livewyer());
    for expected in [
        "<section id=\"beside-published\">",
        "No published counterpart: limit-mtls, envoy-sidecar-l7.",
        "2 of the study&#39;s 3 loads were not measured in this run.",
        "href=\"#beside-published\"",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    let sheets = meshtax_report::sheets(&livewyer());
    let sheet = sheets.iter().find(|file| file.name == "published.csv");
    insta::assert_snapshot!("sheet_published", &sheet.expect("what is drawn").text);
}

#[test]
fn chart_needs_a_study_and_both_kinds_of_figures() {
    let mut analysis = fixtures::quick();
    assert!(!meshtax_report::html(&analysis).contains("beside-published"));
    analysis.experiment.study = Some("nobody's".to_owned());
    assert!(drawn(&analysis, "published.svg").is_none());
    // The study's loads were not measured: no measured figures next to the published ones.
    let mut analysis = livewyer();
    for point in &mut analysis.experiment.load_points {
        point.connections = Some(7);
    }
    assert!(drawn(&analysis, "published.svg").is_none());
    // Nothing measured of what was published.
    let mut analysis = livewyer();
    for variant in &mut analysis.variants {
        variant.excluded = Some(ExclusionReason::NoTrials);
    }
    assert!(drawn(&analysis, "published.svg").is_none());
}

#[test]
fn figures_of_any_size_stay_in_the_drawing() {
    for ns in [1.0, 1e3, 1e15, 0.0, -5.0, f64::NAN, f64::INFINITY] {
        let mut analysis = livewyer();
        let points = analysis.variants.iter_mut().flat_map(|v| &mut v.points);
        for point in points.flat_map(|point| &mut point.percentiles).skip(2) {
            point.value_ns = ns;
            point.interval = Some(Interval { low: -ns, high: ns });
        }
        let picture = drawn(&analysis, "published.svg").expect("some are there");
        let figures = picture.split_once("</style>").expect("a style").1;
        for none in ["NaN", " inf", ">inf", "\"inf", "\"-"] {
            assert!(!figures.contains(none), "{none} with {ns}: {figures}");
        }
        for place in picture.split("cx=\"").skip(1) {
            let x = place.split('"').next().and_then(|x| x.parse::<f64>().ok());
            assert!(x.is_some_and(|x| (0.0..=480.0).contains(&x)), "{ns}");
        }
    }
}

#[test]
fn runs_of_one_spec_share_the_chart() {
    let of_pods = |pods, rate| {
        let mut run = studied("pods-vegeta", rate, |_| {});
        run.experiment.series = Some("pods-vegeta".to_owned());
        run.experiment.topology.services[0].replicas = pods;
        for variant in &mut run.experiment.variants {
            if variant.id.0 == "envoy-sidecar-mtls" {
                variant.data_plane = "linkerd".to_owned();
            }
        }
        run
    };
    let page = meshtax_report::series_html(&[of_pods(1, 20.0), of_pods(90, 50.0)]);
    let begin = page.find("<section id=\"beside-published\">").expect("it");
    let end = begin + page[begin..].find("</section>").expect("its end");
    let picture = &page[begin..end];
    for expected in [
        "1 pod, 20 requests/s",
        "90 pods, 50 requests/s",
        "nginx CPU",
        "minimum to maximum over its trials",
        "6 of the study&#39;s 8 loads were not measured in this run.",
    ] {
        assert!(picture.contains(expected), "{expected}: {picture}");
    }
    assert!(
        page.contains("data-toggle=\"3\""),
        "variants can be switched off"
    );
}

#[test]
fn requested_published_figures_are_announced_with_what_has_no_counterpart() {
    let announced = |mut analysis: Analysis| {
        let study = analysis.experiment.study.clone().expect("a study");
        analysis.caveats = vec![Caveat::PublishedFigures { study }];
        meshtax_report::markdown(&analysis)
    };
    let some = announced(livewyer());
    for part in [
        "as requested",
        "2 of its 3 loads were not measured in this run.",
        "Without a counterpart here: Linkerd, Cilium.",
    ] {
        assert!(some.contains(part), "{part}: {some}");
    }
    let mut analysis = fixtures::quick();
    analysis.experiment.study = Some("ztunnel-blog-2025".to_owned());
    let none = announced(analysis);
    assert!(none.contains("its factors: release"), "{none}");
    let not_requested = meshtax_report::markdown(&livewyer());
    assert!(!not_requested.contains("as requested"));
}
