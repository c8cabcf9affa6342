//! The page on which a study was published: its headings, tables and figures, in order.

use serde::{Deserialize, Serialize};

/// A heading, a table or a figure of the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageItem {
    /// What it is, as the page calls it: `CNI CPU Usage`.
    pub item: String,
    /// What it contains.
    pub content: PageContent,
    /// The result set that has it, if the page has several; `None`: this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// What a part of a study's page contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageContent {
    /// What the study is about.
    Overview,
    /// Machines, clusters and versions.
    Environment,
    /// What shows that the meshes were deployed.
    Evidence,
    /// What was sent, by what, for how long.
    Approach,
    /// Figures of the requests.
    Requests,
    /// CPU of the application over time.
    ApplicationCpu,
    /// CPU of the meshes' proxies over time.
    ProxyCpu,
    /// CPU of the network plugin over time.
    CniCpu,
    /// CPU of the ingress over time.
    IngressCpu,
    /// What a mesh needs.
    Prerequisites,
    /// Charts, ingress and Gateway API.
    Integration,
    /// What its users do to use it.
    Usability,
    /// Cloud providers that offer it.
    CloudProviders,
    /// Who sells support.
    SupportContracts,
    /// Releases, and how long each is supported.
    UpgradeCycle,
    /// What was changed between iterations, and what failed.
    Iterations,
    /// FIPS 140.
    Compliance,
    /// Which mesh for which requirement.
    Decision,
}
