//! The user's `helm`, which installs, lists and removes releases.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::Access;
use crate::install::charts::{Chart, Installable};

/// The label of the releases that meshtax installed; its value is the mesh.
pub(crate) const MESH: &str = "meshtax.io/mesh";

/// The oldest Helm that can do what is asked of it here (`install --labels`).
pub(crate) const OLDEST: (u64, u64) = (3, 13);

/// What to do where there is none, or an older one.
pub(crate) const INSTALL_HELM: &str =
    "install Helm 3.13 or later (helm.sh/docs/intro/install), or name it with --helm PATH";

/// How long a release has to get ready.
const TIMEOUT: &str = "5m";

/// Why `helm` did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HelmError {
    /// It cannot be started.
    #[error("{} cannot be started: {source}", .program.display())]
    Missing {
        /// What was tried.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It failed.
    #[error("helm cannot {doing}: {message}")]
    Failed {
        /// What it was to do.
        doing: String,
        /// Its own words.
        message: String,
    },
}

impl HelmError {
    /// What the user can do.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Missing { .. } => INSTALL_HELM,
            Self::Failed { .. } => {
                "the message is Helm's own; charts in a directory can be named with --charts DIR, and settings with \
                 --values FILE"
            }
        }
    }
}

/// A release as `helm list --output json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Release {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// `deployed`, `failed`, `pending-install` ...
    pub status: String,
    /// Name and version of its chart.
    pub chart: String,
    /// The version of what it installs.
    pub app_version: String,
}

impl Release {
    /// Whether it is one of this mesh, however it was installed.
    pub(crate) fn is_of(&self, mesh: &Installable) -> bool {
        let mut charts = mesh.charts.iter();
        self.namespace == mesh.namespace && charts.any(|chart| chart.release == self.name)
    }
}

/// Where charts come from, and with which values.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The charts' version; `None`: [`Installable::version`].
    pub version: Option<String>,
    /// A directory with a directory or an archive for each chart, instead of the repository.
    pub charts: Option<PathBuf>,
    /// Files of values, which take precedence over those of [`Chart::values`].
    pub values: Vec<PathBuf>,
}

impl Sources {
    /// The arguments that name a chart.
    fn chart(&self, mesh: &Installable, chart: &Chart) -> Vec<OsString> {
        let version = self.version.as_deref().unwrap_or(mesh.version);
        let repository = || ["--repo", mesh.repository, "--version", version].map(Into::into);
        match &self.charts {
            None => [vec![chart.name.into()], repository().to_vec()].concat(),
            Some(directory) => vec![in_directory(directory, chart.name).into()],
        }
    }
}

/// `DIR/NAME`, or the archive `DIR/NAME-VERSION.tgz` where there is no such directory.
fn in_directory(directory: &Path, name: &str) -> PathBuf {
    let unpacked = directory.join(name);
    if unpacked.is_dir() {
        return unpacked;
    }
    let begins = format!("{name}-");
    let is_archive = |file: &str| {
        let version = file
            .strip_prefix(&begins)
            .and_then(|v| v.strip_suffix(".tgz"));
        version.is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files = entries.filter_map(|entry| entry.file_name().into_string().ok());
    files
        .find(|file| is_archive(file))
        .map_or(unpacked, |file| directory.join(file))
}

/// `helm` with a cluster.
#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    access: Vec<OsString>,
}

impl Helm {
    /// `program`: a path, or a name to be found on `PATH`.
    #[must_use]
    pub fn new(program: &Path, access: &Access) -> Self {
        let mut flags: Vec<OsString> = Vec::new();
        if let Some(path) = &access.kubeconfig {
            flags.extend(["--kubeconfig".into(), path.into()]);
        }
        if let Some(context) = &access.context {
            flags.extend(["--kube-context".into(), context.into()]);
        }
        Self {
            program: program.to_owned(),
            access: flags,
        }
    }

    /// Its version, as `v3.19.0`.
    ///
    /// # Errors
    /// If it cannot be started, or fails.
    pub fn version(&self) -> Result<String, HelmError> {
        let arguments = ["version", "--template", "{{.Version}}"].map(Into::into);
        self.run("print its version", &arguments, "")
    }

    /// The `Chart.yaml` of a chart, as Helm reads it.
    ///
    /// # Errors
    /// If the chart cannot be downloaded or read.
    pub(crate) fn show_chart(
        &self,
        mesh: &Installable,
        chart: &Chart,
        sources: &Sources,
    ) -> Result<String, HelmError> {
        let arguments = [
            vec!["show".into(), "chart".into()],
            sources.chart(mesh, chart),
        ];
        self.run(
            &format!("read the chart {}", chart.name),
            &arguments.concat(),
            "",
        )
    }

    /// The objects of a release, as YAML. Nothing is sent to the cluster.
    ///
    /// # Errors
    /// If the chart cannot be downloaded or rendered.
    pub fn template(
        &self,
        mesh: &Installable,
        chart: &Chart,
        sources: &Sources,
        values: &Value,
    ) -> Result<String, HelmError> {
        let arguments = [
            vec!["template".into(), "--include-crds".into()],
            release(mesh, chart, sources),
        ];
        let doing = format!("render the chart {}", chart.name);
        self.run(&doing, &arguments.concat(), &values.to_string())
    }

    /// Installs a release, and waits until it is ready.
    ///
    /// # Errors
    /// If there is one of that name, or it is not ready in time.
    pub(crate) fn install(
        &self,
        mesh: &Installable,
        chart: &Chart,
        sources: &Sources,
        values: &Value,
    ) -> Result<(), HelmError> {
        let label = format!("{MESH}={}", mesh.name);
        let options = [
            "install",
            "--wait",
            "--timeout",
            TIMEOUT,
            "--labels",
            label.as_str(),
        ];
        let arguments = [
            options.map(Into::into).to_vec(),
            release(mesh, chart, sources),
        ];
        let doing = format!("install release {}", chart.release);
        self.run(&doing, &arguments.concat(), &values.to_string())
            .map(|_| ())
    }

    /// Removes a release, and waits until its objects are gone.
    pub(crate) fn uninstall(&self, release: &Release) -> Result<(), HelmError> {
        let Release {
            name, namespace, ..
        } = release;
        let arguments = [
            "uninstall",
            name,
            "--namespace",
            namespace,
            "--wait",
            "--timeout",
            TIMEOUT,
        ];
        let doing = format!("remove release {name}");
        self.run(&doing, &arguments.map(Into::into), "").map(|_| ())
    }

    /// All releases of the cluster, or those with a label.
    ///
    /// # Errors
    /// If `helm` fails, or does not print what is expected.
    pub(crate) fn releases(&self, label: Option<&str>) -> Result<Vec<Release>, HelmError> {
        // Not --all, which later versions of Helm do without.
        let states = ["--deployed", "--failed", "--pending", "--uninstalling"];
        // 0: all of them. The default is 256.
        let list = ["list", "--all-namespaces", "--max", "0", "--output", "json"];
        let mut arguments: Vec<OsString> = list
            .iter()
            .chain(&states)
            .map(|&word| word.into())
            .collect();
        if let Some(label) = label {
            arguments.extend(["--selector".into(), label.into()]);
        }
        let doing = "list releases";
        let text = self.run(doing, &arguments, "")?;
        serde_json::from_str(&text).map_err(|e| HelmError::Failed {
            doing: doing.into(),
            message: e.to_string(),
        })
    }

    fn run(&self, doing: &str, arguments: &[OsString], input: &str) -> Result<String, HelmError> {
        let output = self.output(arguments, input);
        let output = output.map_err(|source| HelmError::Missing {
            program: self.program.clone(),
            source,
        })?;
        if !output.status.success() {
            return Err(HelmError::Failed {
                doing: doing.to_owned(),
                message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Input goes by a pipe: values have keys in them, which neither a file nor a command line should show.
    fn output(&self, arguments: &[OsString], input: &str) -> io::Result<Output> {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .args(&self.access)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may end without reading: its message then says why.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output()
    }
}

/// Name, chart, namespace and values of a release: the first values come by standard input.
fn release(mesh: &Installable, chart: &Chart, sources: &Sources) -> Vec<OsString> {
    let mut arguments = vec![chart.release.into()];
    arguments.extend(sources.chart(mesh, chart));
    arguments.extend(["--namespace", mesh.namespace, "--values", "-"].map(Into::into));
    for file in &sources.values {
        arguments.extend(["--values".into(), file.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::charts::INSTALLABLE;

    #[test]
    fn chart_comes_from_the_repository_or_from_a_directory() {
        let [.., linkerd, _] = &INSTALLABLE;
        let chart = &linkerd.charts[0];
        let named = |sources: &Sources| {
            let words = sources.chart(linkerd, chart);
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        let other = Sources {
            version: Some("2026.9.1".into()),
            ..Sources::default()
        };
        assert_eq!(
            named(&other),
            "linkerd-crds --repo https://helm.linkerd.io/edge --version 2026.9.1"
        );
        let scratch = tempfile::tempdir().unwrap();
        let sources = Sources {
            charts: Some(scratch.path().to_owned()),
            ..Sources::default()
        };
        let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(named(&sources), path("linkerd-crds"));
        std::fs::write(scratch.path().join("linkerd-crds-extra-1.tgz"), "").unwrap();
        std::fs::write(scratch.path().join("linkerd-crds-2026.8.2.tgz"), "").unwrap();
        assert_eq!(named(&sources), path("linkerd-crds-2026.8.2.tgz"));
    }

    #[test]
    fn missing_program_is_named_with_the_fix() {
        let helm = Helm::new(Path::new("/nonexistent/helm"), &Access::default());
        let error = helm.version().unwrap_err();
        assert!(matches!(&error, HelmError::Missing { program, .. } if program.ends_with("helm")));
        assert!(error.fix().contains("--helm"));
    }
}
