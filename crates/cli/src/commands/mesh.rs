//! `meshtax mesh`: the meshes of a cluster.

use meshtax_kube::install::{
    self, Check, CheckId, CheckOutcome, Choices, Helm, INSTALLABLE, InstallError, InstallStep,
    InstallStepKind, Installable, Sources, Status, Workload,
};
use meshtax_kube::{Cluster, ClusterError};
use meshtax_model::catalogue::DATA_PLANES;
use serde_json::{Value, json};

use super::published::facts;
use crate::args::{ChangeArgs, ChoiceArgs, ClusterArgs, MeshAction, MeshArgs};
use crate::exit::{Failure, MISSING, Outcome, SUCCESS, UNEXPECTED};
use crate::terminal;

pub(crate) fn mesh(args: &MeshArgs) -> Outcome {
    match &args.action {
        MeshAction::List { json } => {
            list(*json);
            Ok(SUCCESS)
        }
        MeshAction::Show { name, choice, json } => show(find(name)?, choice, *json),
        MeshAction::Check(change) => check(find(&change.name)?, change),
        MeshAction::Install { change, dry_run } => {
            let mesh = find(&change.name)?;
            match dry_run {
                true => print_objects(mesh, change),
                false => install(mesh, change),
            }
        }
        MeshAction::Status { name, cluster } => status(name.as_deref(), cluster),
        MeshAction::Uninstall {
            name,
            crds,
            cluster,
        } => uninstall(find(name)?, *crds, cluster),
        MeshAction::Facts { name, json } => facts(name.as_deref(), *json),
    }
}

fn find(name: &str) -> Result<&'static Installable, Failure> {
    INSTALLABLE
        .iter()
        .find(|mesh| mesh.name == name)
        .ok_or_else(|| {
            let known: Vec<&str> = INSTALLABLE.iter().map(|mesh| mesh.name).collect();
            Failure::unknown_name("mesh", name, &known)
        })
}

fn cluster_failed(error: ClusterError) -> Failure {
    Failure::with_fix(MISSING, &error, error.fix())
}

fn install_failed(error: InstallError) -> Failure {
    Failure::with_fix(MISSING, &error, error.fix())
}

fn connect(args: &ClusterArgs) -> Result<(Cluster, Helm), Failure> {
    let access = args.access.access();
    let cluster = Cluster::connect(&access).map_err(cluster_failed)?;
    Ok((cluster, Helm::new(&args.helm, &access)))
}

fn print_json(value: &Value) {
    terminal::print(&format!("{value:#}\n"));
}

fn list(json: bool) {
    if json {
        let meshes: Vec<Value> = INSTALLABLE.iter().map(listed).collect();
        print_json(&json!({"format_version": meshtax_model::FORMAT_VERSION, "meshes": meshes}));
        return;
    }
    let mut text = String::new();
    for mesh in &INSTALLABLE {
        let charts: Vec<&str> = mesh.charts.iter().map(|chart| chart.name).collect();
        let measured = match planes(mesh) {
            planes if planes.is_empty() => "no data plane of a run yet".to_owned(),
            planes => format!("data plane of a run: {}", planes.join(", ")),
        };
        text += &format!(
            "{:<14} {}, {} (unverified; {})\n{:<14} charts: {} from {}\n{:<14} {measured}\n",
            mesh.name,
            mesh.title,
            mesh.version,
            mesh.source,
            "",
            charts.join(", "),
            mesh.repository,
            ""
        );
    }
    terminal::print(&text);
}

/// The names of the data planes that a run can measure on it.
fn planes(mesh: &Installable) -> Vec<&'static str> {
    let all = DATA_PLANES.iter();
    let of_mesh = all.filter(|plane| mesh.data_planes.contains(&plane.id));
    of_mesh.map(|plane| plane.name).collect()
}

fn listed(mesh: &Installable) -> Value {
    let charts: Vec<&str> = mesh.charts.iter().map(|chart| chart.name).collect();
    json!({
        "name": mesh.name, "title": mesh.title, "namespace": mesh.namespace, "repository": mesh.repository,
        "version": mesh.version, "version_verified": false, "source": mesh.source, "charts": charts,
        "data_planes": planes(mesh),
    })
}

fn choices(choice: &ChoiceArgs, has_gateway_api: bool) -> Result<Choices, Failure> {
    Choices::new(choice.settings.settings(), has_gateway_api)
        .map_err(|e| Failure::new(UNEXPECTED, e))
}

fn show(mesh: &Installable, choice: &ChoiceArgs, json: bool) -> Outcome {
    let choices = choices(choice, false)?;
    let sources = choice.sources();
    match json {
        true => print_json(&charts_as_json(mesh, &choices, &sources)),
        false => terminal::print(&charts_in_words(mesh, &choices, &sources)),
    }
    Ok(SUCCESS)
}

fn charts_as_json(mesh: &Installable, choices: &Choices, sources: &Sources) -> Value {
    let charts: Vec<Value> = mesh
        .charts
        .iter()
        .map(|chart| {
            json!({
                "release": chart.release, "chart": chart.name, "values": chart.public_values(choices),
            })
        })
        .collect();
    // What is in a directory has a version of its own.
    let version = match sources.charts {
        None => Some(sources.version.as_deref().unwrap_or(mesh.version)),
        Some(_) => None,
    };
    json!({
        "format_version": meshtax_model::FORMAT_VERSION, "mesh": mesh.name, "version": version,
        "settings": choices.settings.id(), "namespace": mesh.namespace, "charts": charts,
        "charts_directory": sources.charts, "values_files": sources.values,
    })
}

fn charts_in_words(mesh: &Installable, choices: &Choices, sources: &Sources) -> String {
    let from = match &sources.charts {
        None => {
            let version = sources.version.as_deref().unwrap_or(mesh.version);
            format!("{version} ({})", mesh.repository)
        }
        Some(directory) => format!("from {}", directory.display()),
    };
    let mut text = format!(
        "{}, {} settings, in namespace {}\n",
        mesh.title, choices.settings, mesh.namespace
    );
    for chart in mesh.charts {
        text += &format!(
            "\nrelease {} of chart {} {from}\n",
            chart.release, chart.name
        );
        let values = chart.public_values(choices);
        if values.as_object().is_some_and(|values| !values.is_empty()) {
            text += &format!("{values:#}\n");
        }
        for file in &sources.values {
            text += &format!("and then {}\n", file.display());
        }
    }
    text
}

fn check(mesh: &'static Installable, args: &ChangeArgs) -> Outcome {
    let (cluster, helm) = connect(&args.cluster)?;
    let checks = install::check(&cluster, &helm, mesh, &args.choice.sources());
    let checks = checks.map_err(cluster_failed)?;
    match args.cluster.json {
        true => print_json(&json!({
            "format_version": meshtax_model::FORMAT_VERSION, "mesh": mesh.name, "checks": checks,
        })),
        false => checks
            .iter()
            .for_each(|check| terminal::print(&line(check))),
    }
    let failed = checks
        .iter()
        .filter(|check| check.outcome == CheckOutcome::Failed);
    match failed.count() {
        0 => Ok(SUCCESS),
        count => Err(Failure::new(
            MISSING,
            format!("{} cannot be installed: failed checks: {count}", mesh.name),
        )),
    }
}

fn line(check: &Check) -> String {
    let mark = match check.outcome {
        CheckOutcome::Passed => "✓",
        CheckOutcome::Failed => "✗",
        CheckOutcome::Unknown => "?",
    };
    let line = format!("{mark} {:<18} {}\n", name(check.id), check.found);
    match check.fix.is_empty() {
        true => line,
        false => format!("{line}{:21}fix: {}\n", "", check.fix),
    }
}

fn name(id: CheckId) -> &'static str {
    match id {
        CheckId::Installable => "installable",
        CheckId::Helm => "Helm",
        CheckId::Charts => "charts",
        CheckId::KubernetesVersion => "Kubernetes",
        CheckId::Nodes => "nodes",
        CheckId::Kernel => "kernel",
        CheckId::ContainerNetwork => "network (CNI)",
        CheckId::KubeProxy => "Services",
        CheckId::GatewayApi => "Gateway API",
        CheckId::Permissions => "permissions",
        CheckId::NotInstalled => "not installed yet",
    }
}

fn print_objects(mesh: &'static Installable, args: &ChangeArgs) -> Outcome {
    let helm = Helm::new(&args.cluster.helm, &args.cluster.access.access());
    let choices = choices(&args.choice, false)?;
    let sources = args.choice.sources();
    if mesh.gateway_api {
        terminal::say(
            "note: no cluster is asked: these are the objects for one without the types of the Gateway API, which `install` \
             leaves out where they exist",
        );
    }
    terminal::print(&format!("---\n{:#}\n", install::namespace(mesh)));
    for chart in mesh.charts {
        let objects = helm.template(mesh, chart, &sources, &chart.public_values(&choices));
        let objects = objects.map_err(|e| install_failed(e.into()))?;
        terminal::print(&format!("{objects}\n"));
    }
    Ok(SUCCESS)
}

fn install(mesh: &'static Installable, args: &ChangeArgs) -> Outcome {
    let (cluster, helm) = connect(&args.cluster)?;
    let settings = args.choice.settings.settings();
    let mut steps = Vec::new();
    let mut report = |step: InstallStep| reported(step, &mut steps);
    install::install(
        &cluster,
        &helm,
        mesh,
        &args.choice.sources(),
        settings,
        &mut report,
    )
    .map_err(|error| match error {
        InstallError::Helm(_) => {
            let fix = format!(
                "{}; `meshtax mesh uninstall {}` removes what was installed",
                error.fix(),
                mesh.name
            );
            Failure::with_fix(MISSING, error, fix)
        }
        _ => install_failed(error),
    })?;
    ended("installed", mesh, &steps, args.cluster.json);
    Ok(SUCCESS)
}

fn uninstall(mesh: &'static Installable, crds: bool, args: &ClusterArgs) -> Outcome {
    let (cluster, helm) = connect(args)?;
    let mut steps = Vec::new();
    let mut report = |step: InstallStep| reported(step, &mut steps);
    install::uninstall(&cluster, &helm, mesh, crds, &mut report).map_err(install_failed)?;
    ended("removed", mesh, &steps, args.json);
    Ok(SUCCESS)
}

/// Each step is shown when it ends: some take a minute.
fn reported(step: InstallStep, steps: &mut Vec<InstallStep>) {
    let what = match step.what {
        InstallStepKind::CreateNamespace => "created namespace",
        InstallStepKind::InstallRelease => "installed release",
        InstallStepKind::RemoveRelease => "removed release",
        InstallStepKind::RemoveConfigMaps => "removed ConfigMaps",
        InstallStepKind::RemoveNamespace => "removed namespace",
        InstallStepKind::RemoveType => "removed type",
    };
    terminal::say(&format!("{what} {}, {:.1} s", step.name, step.seconds));
    steps.push(step);
}

fn ended(done: &str, mesh: &Installable, steps: &[InstallStep], json: bool) {
    let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
    match json {
        true => print_json(&json!({
            "format_version": meshtax_model::FORMAT_VERSION, "mesh": mesh.name, "steps": steps, "seconds": seconds,
        })),
        false => terminal::print(&format!("{}: {done} in {seconds:.1} s\n", mesh.name)),
    }
}

fn status(name: Option<&str>, args: &ClusterArgs) -> Outcome {
    let meshes: Vec<&'static Installable> = match name {
        Some(name) => vec![find(name)?],
        None => INSTALLABLE.iter().collect(),
    };
    let (cluster, helm) = connect(args)?;
    let mut all = Vec::new();
    for mesh in meshes {
        all.push(install::status(&cluster, &helm, mesh).map_err(install_failed)?);
    }
    if args.json {
        print_json(&json!({"format_version": meshtax_model::FORMAT_VERSION, "meshes": all}));
        return Ok(SUCCESS);
    }
    all.iter()
        .for_each(|status| terminal::print(&shown(status)));
    Ok(SUCCESS)
}

fn shown(status: &Status) -> String {
    let Status {
        mesh, namespace, ..
    } = status;
    if !status.is_installed() {
        return format!("{mesh}: not installed\n");
    }
    let who = match (status.releases.is_empty(), status.by_meshtax) {
        (_, true) => "by meshtax",
        (false, false) => "with Helm, not by meshtax",
        (true, false) => "without Helm, not by meshtax",
    };
    let mut text = format!("{mesh}: installed {who}, namespace {namespace}\n");
    for release in &status.releases {
        text += &format!(
            "  release {:<24} {:<32} {}\n",
            release.name, release.chart, release.status
        );
    }
    for Workload {
        name,
        ready,
        desired,
        images,
    } in &status.workloads
    {
        text += &format!(
            "  {name:<32} {ready} of {desired} ready  {}\n",
            images.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use meshtax_kube::install::Settings;

    use super::*;

    fn shown_with(sources: &Sources) -> (String, Value) {
        let mesh = find("istio-sidecar").unwrap_or_else(|_| panic!("a mesh"));
        let choices = Choices::new(Settings::Equal, false).expect("a key");
        (
            charts_in_words(mesh, &choices, sources),
            charts_as_json(mesh, &choices, sources),
        )
    }

    #[test]
    fn charts_of_the_repository_are_shown_with_their_version() {
        let (text, json) = shown_with(&Sources::default());
        assert!(
            text.contains("chart istiod 1.30.4 (https://istio-release"),
            "{text}"
        );
        assert_eq!(json["version"], "1.30.4");
        assert_eq!(json["charts_directory"], Value::Null);
        let other = Sources {
            version: Some("1.31.0".to_owned()),
            ..Sources::default()
        };
        assert!(shown_with(&other).0.contains("chart base 1.31.0 ("));
    }

    #[test]
    fn charts_of_a_directory_and_further_values_are_shown_as_they_are_given() {
        let (text, json) = shown_with(&Sources {
            version: None,
            charts: Some("own/charts".into()),
            values: vec!["a.yaml".into(), "b.yaml".into()],
        });
        assert!(text.contains("chart istiod from own/charts\n"), "{text}");
        assert!(
            text.contains("and then a.yaml\nand then b.yaml\n"),
            "{text}"
        );
        assert!(
            !text.contains("1.30.4") && !text.contains("https"),
            "{text}"
        );
        assert_eq!(json["version"], Value::Null);
        assert_eq!(json["charts_directory"], "own/charts");
        assert_eq!(json["values_files"][1], "b.yaml");
    }

    #[test]
    fn data_planes_have_their_names() {
        let names = |mesh: &str| INSTALLABLE.iter().find(|of| of.name == mesh).map(planes);
        let ambient = names("istio-ambient").expect("a mesh");
        assert_eq!(ambient, ["ztunnel", "envoy-sidecar"]);
        assert_eq!(names("cilium"), Some(Vec::new()));
    }
}
