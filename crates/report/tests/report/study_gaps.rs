//! What a study shows and a run does not: which engine measures it, and what is derived in its place.

use meshtax_model::analysis::Analysis;

use crate::studies::{WIDE, livewyer, pods_vegeta, table_of};

/// Control planes are sampled on clusters, and drawn over the run.
#[test]
fn control_plane_on_a_cluster_is_in_charts_and_elsewhere_cluster_only() {
    let text = |on_cluster: bool| {
        let mut runs = pods_vegeta();
        for run in &mut runs {
            run.environment.kubernetes = on_cluster.then(|| "v1.34.4".to_owned());
        }
        meshtax_report::series_markdown(&runs)
    };
    assert!(text(false).contains("| cluster only |"));
    let on_cluster = text(true);
    assert!(on_cluster.contains("| in charts |"), "{on_cluster}");
    assert!(!on_cluster.contains("cluster only"), "{on_cluster}");
}

#[test]
fn publication_says_which_engine_measures_what_it_lacks() {
    let mut analysis = livewyer();
    analysis.experiment.study = Some("livewyer-ingress".to_owned());
    let page = |analysis: &Analysis| meshtax_report::publication(analysis, "p", "d").0;
    let cni = "| VM to Ingress: CNI CPU Usage, figures for Baseline and Cilium | not measured by any engine |";
    let local = page(&analysis);
    assert!(local.contains(cni), "{local}");
    assert!(!local.contains("(CNI) and of control planes: cluster only"));
    analysis.environment.engine = "kubernetes".to_owned();
    let cluster = page(&analysis);
    assert!(cluster.contains(cni), "{cluster}");
    let ingress =
        "Ingress Controller CPU Usage, a figure for each environment | local engine only |";
    assert!(cluster.contains(ingress), "{cluster}");
    assert!(!cluster.contains("cluster only"), "{cluster}");
}

#[test]
fn steps_of_a_scaled_application_name_its_calibration() {
    let mut analysis = livewyer();
    let steps = |analysis: &Analysis| {
        let page = meshtax_report::publication(analysis, "p", "d").0;
        let lines = page
            .lines()
            .filter(|line| line.contains("environment built"));
        lines.collect::<String>()
    };
    assert!(steps(&analysis).contains("application calibrated (3 bursts)"));
    analysis.experiment.saturation = None;
    assert!(!steps(&analysis).contains("calibrated"));
    assert!(steps(&analysis).contains("environment built, first round started"));
}

#[test]
fn time_of_trials_with_the_study_s_requests_is_measured_and_of_others_derived() {
    let row = |requests: Option<u64>, trial_s: u64| {
        let mut analysis = livewyer();
        analysis.experiment.design.requests_per_trial = requests;
        analysis.experiment.design.trial_ns = trial_s * 1_000_000_000;
        for variant in &mut analysis.variants {
            for point in &mut variant.points {
                point.achieved_per_s = 150.0;
            }
        }
        let text = meshtax_report::terminal(&analysis, WIDE);
        let table = table_of(&text, "Study: Four").to_owned();
        let mut rows = table.lines().filter(|line| line.contains(" none "));
        rows.next().expect("the baseline's row").to_owned()
    };
    assert!(row(Some(300_000), 3_600).contains(" 2,000.0 "));
    // Other lengths, and trials that their time limit ended.
    for (requests, trial_s) in [(None, 3_600), (Some(1_000), 3_600), (Some(300_000), 600)] {
        let row = row(requests, trial_s);
        assert!(row.contains(" needs "), "{requests:?}: {row}");
    }
}
