//! The options of runs on a cluster, and `meshtax cleanup`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use meshtax_dataplane::Sabotage;
use meshtax_model::experiment::VariantId;

/// How a cluster is reached.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AccessArgs {
    /// Kubernetes: context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", help_heading = "Kubernetes")]
    pub(crate) context: Option<String>,
    /// Kubernetes: the kubeconfig [default: KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", help_heading = "Kubernetes")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl AccessArgs {
    pub(crate) fn access(&self) -> meshtax_kube::Access {
        meshtax_kube::Access {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

/// The additional options of a run on a cluster.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct KubernetesArgs {
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Image of exactly this version of meshtax that the nodes can pull (see `meshtax image push`)
    #[arg(
        long,
        value_name = "REF",
        env = "MESHTAX_IMAGE",
        help_heading = "Kubernetes"
    )]
    pub(crate) image: Option<String>,
    /// Nodes to use, the clients' first, e.g. worker-1,worker-2 [default: schedulable nodes, by name]
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        help_heading = "Kubernetes"
    )]
    pub(crate) nodes: Vec<String>,
    /// Prefix of the names of the run's namespaces
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "meshtax",
        value_parser = namespace_prefix,
        help_heading = "Kubernetes"
    )]
    pub(crate) namespace_prefix: String,
    /// Print every object that the run would apply, as JSON documents (also valid YAML), and apply nothing
    #[arg(long, help_heading = "Kubernetes")]
    pub(crate) dry_run: bool,
}

impl KubernetesArgs {
    /// The options of one run.
    pub(crate) fn options(
        &self,
        sabotage: BTreeMap<VariantId, Sabotage>,
    ) -> meshtax_kube::KubernetesOptions {
        meshtax_kube::KubernetesOptions {
            sabotage,
            access: self.access.access(),
            namespace_prefix: self.namespace_prefix.clone(),
            nodes: self.nodes.clone(),
            image: self.image.clone(),
            run: format!("{:06x}", crate::random::seed() & 0xff_ffff),
            interrupted_run: None,
        }
    }
}

fn namespace_prefix(text: &str) -> Result<String, meshtax_spec::ValueError> {
    /// With the run, a dash and the beginning of a variant's name it must fit 63 characters.
    const LONGEST: usize = 30;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    match begins && text.len() <= LONGEST && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err(meshtax_spec::ValueError::new(
            format!("`{text}` cannot begin the name of a namespace"),
            format!("use at most {LONGEST} lower-case letters, digits and dashes, a letter first"),
        )),
    }
}

/// `meshtax cleanup`.
#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Run whose objects to remove, by its ID on the cluster, e.g. 3fa2b1
    #[arg(
        value_name = "ID",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) run: Option<String>,
    /// Remove the objects of all runs, including runs in progress
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
}
