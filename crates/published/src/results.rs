//! Published results: tables with their environment, workload and faults.

use std::sync::LazyLock;

use meshtax_model::analysis::UsageGroup;
use meshtax_model::experiment::PolicyLevel;
use serde::{Deserialize, Serialize};

use crate::error::DataError;
use crate::page::PageItem;
use crate::quantity::{BaseUnit, Metric, Unit};

/// One published table with its caveats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultSet {
    /// Unique, as it is typed: `livewyer-pod`.
    pub name: String,
    /// One line for a list.
    pub title: String,
    /// Who published it, in a word or two.
    pub by: String,
    /// What was published: the citation.
    pub source: String,
    /// Where it can be read, if it is on the web.
    pub url: Option<String>,
    /// When it was published, as precisely as it is known: `2024`, `2021-05-27`.
    pub date: Option<String>,
    /// The day on which the source was read, `YYYY-MM-DD`.
    pub read: String,
    /// Machines, clusters and versions.
    pub environment: String,
    /// What was sent, by what, for how long.
    pub workload: String,
    /// What the figures are of.
    pub measures: String,
    /// What is wrong with it, or must be known to read it rightly. Never empty.
    pub caveats: Vec<Caveat>,
    /// What differs between rows in addition to the variant.
    pub factors: Vec<Factor>,
    /// What is compared.
    pub variants: Vec<Variant>,
    /// What was measured.
    pub columns: Vec<Column>,
    /// The figures, in the order of the source.
    pub rows: Vec<Row>,
    /// The headings, tables and figures of its page, in order; empty: they are not listed here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub page: Vec<PageItem>,
}

/// A caveat for the reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caveat {
    /// Of which kind it is.
    pub kind: CaveatKind,
    /// What exactly, in a sentence or two.
    pub words: String,
}

/// The kinds of faults, most of them those that meshtax is built to avoid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaveatKind {
    /// Saturation reported as latency, or slow answers that lower the rate.
    ClosedLoop,
    /// Variants on different clusters or hardware, or a place that was chosen after the fact.
    Environments,
    /// The application limits, not the mesh.
    ApplicationBound,
    /// One figure without a spread, or repeats whose use is not said.
    NoRepeats,
    /// Nothing shows that the mesh was in the path and encrypted.
    NoProof,
    /// The same without a mesh is not there.
    NoBaseline,
    /// Runs that failed are among the figures.
    FailedRunsKept,
    /// Runs were excluded because of their result.
    RunsDiscarded,
    /// Percentiles of runs were averaged.
    PercentilesAveraged,
    /// Variants were reached on different paths.
    UnequalPaths,
    /// Variants did different work.
    UnequalFeatures,
    /// An order that a mesh cannot explain: faster than no mesh, or faster under more load.
    UnexpectedOrder,
    /// Too few requests for the percentile.
    FewSamples,
    /// Most of the figure is something else than the mesh.
    LongPath,
    /// CPU or memory is missing, or covers a part only.
    ResourcesPartial,
    /// The source has more figures than could be read.
    PartialFigures,
    /// It measures something else than it seems to.
    MeasuresElse,
    /// The versions are old.
    OldVersions,
    /// Published by one of those compared.
    OwnProduct,
}

/// What differs between rows in addition to the variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// What it is: `connections`, `rate`.
    pub name: String,
    /// Its unit, if it has one: `1/s`.
    #[serde(default)]
    pub unit: Option<String>,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"), deny_unknown_fields)]
pub struct Variant {
    /// Unique in its result set.
    pub id: String,
    /// As the source calls it.
    pub name: String,
    /// The data plane of meshtax that it can be held against, if there is one.
    #[serde(default)]
    pub data_plane: Option<String>,
    /// The policy level, where the source says what the mesh did.
    #[serde(default)]
    pub level: Option<PolicyLevel>,
    /// Its ingress, where clients were outside the mesh: `ingress-nginx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<String>,
}

/// One column of figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The metric.
    pub metric: Metric,
    /// The unit of the published figures.
    pub unit: Unit,
    /// Of what: `control plane`. `None`: of the request or of the variant as a whole.
    #[serde(default)]
    pub of: Option<String>,
    /// The figures are differences to this, absolute or in percent of it.
    #[serde(default)]
    pub over: Option<String>,
    /// The processes of meshtax whose CPU or memory can be held against it, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<UsageGroup>,
}

impl Column {
    /// The unit of its normalised values.
    #[must_use]
    pub fn base_unit(&self) -> BaseUnit {
        self.unit.base()
    }
}

/// One row of figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Id of its variant.
    pub variant: String,
    /// A setting for each factor.
    pub at: Vec<String>,
    /// A figure for each column; `None`: not published.
    pub figures: Vec<Option<Figure>>,
    /// What the source, or who read it, says of this row: `failed: pod recreated`.
    pub remark: Option<String>,
    /// Where this row can be read, if it is elsewhere than the others.
    pub url: Option<String>,
}

/// One published figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// With the digits of the source, in the unit of its column. A `~` before it: the source says "about".
    pub published: String,
    /// In the base unit of its column ([`Column::base_unit`]).
    pub value: f64,
}

/// A figure with everything needed to draw it beside a measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value<'a> {
    /// The metric.
    pub metric: Metric,
    /// Of what; see [`Column::of`].
    pub of: Option<&'a str>,
    /// A difference to this; see [`Column::over`].
    pub over: Option<&'a str>,
    /// In `unit`: nanoseconds, per second, cores, bytes, or a ratio.
    pub value: f64,
    /// The unit of `value`.
    pub unit: BaseUnit,
}

impl ResultSet {
    /// The variant of this id.
    #[must_use]
    pub fn variant(&self, id: &str) -> Option<&Variant> {
        self.variants.iter().find(|v| v.id == id)
    }

    /// The figures of one of its rows that were published, normalised.
    pub fn values<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = Value<'a>> {
        let cells = self.columns.iter().zip(&row.figures);
        cells.filter_map(|(column, figure)| {
            Some(Value {
                metric: column.metric,
                of: column.of.as_deref(),
                over: column.over.as_deref(),
                value: figure.as_ref()?.value,
                unit: column.base_unit(),
            })
        })
    }
}

/// All result sets: the comparisons that meshtax starts from, then what the meshes publish of themselves.
#[must_use]
pub fn results() -> &'static [ResultSet] {
    &RESULTS
}

/// The result set of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ResultSet> {
    results().iter().find(|set| set.name == name)
}

/// The files, in the order of the list.
const FILES: [&str; 12] = [
    include_str!("../data/results/livewyer-pod.yaml"),
    include_str!("../data/results/livewyer-ingress.yaml"),
    include_str!("../data/results/ambient-rates.yaml"),
    include_str!("../data/results/pods-vegeta.yaml"),
    include_str!("../data/results/teastore-users.yaml"),
    include_str!("../data/results/istio-docs-resources.yaml"),
    include_str!("../data/results/istio-docs-latency.yaml"),
    include_str!("../data/results/ztunnel-blog-2025.yaml"),
    include_str!("../data/results/linkerd-bench-2021-05.yaml"),
    include_str!("../data/results/linkerd-bench-2021-11.yaml"),
    include_str!("../data/results/linkerd-bench-2025.yaml"),
    include_str!("../data/results/cilium-cni.yaml"),
];

static RESULTS: LazyLock<Vec<ResultSet>> = LazyLock::new(|| {
    let sets = FILES.iter().map(|text| parse(text));
    sets.map(|set| set.unwrap_or_else(|why| unreachable!("the tests parse every file: {why}")))
        .collect()
});

/// The file of a result set: rows are lists of figures, with the digits of the source.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    by: String,
    source: String,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    date: Option<String>,
    read: String,
    environment: String,
    workload: String,
    measures: String,
    caveats: Vec<Caveat>,
    factors: Vec<Factor>,
    variants: Vec<Variant>,
    columns: Vec<Column>,
    rows: Vec<FileRow>,
    #[serde(default)]
    page: Vec<PageItem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    variant: String,
    at: Vec<String>,
    values: Vec<Option<String>>,
    #[serde(default)]
    remark: Option<String>,
    #[serde(default)]
    url: Option<String>,
}

/// Parses a file.
fn parse(text: &str) -> Result<ResultSet, DataError> {
    let file: File = serde_saphyr::from_str(text)?;
    let factors = file.factors.len();
    let rows = file.rows.into_iter();
    let rows: Result<Vec<Row>, DataError> = rows
        .map(|row| figures(&file.name, row, &file.columns, factors))
        .collect();
    Ok(ResultSet {
        rows: rows?,
        name: file.name,
        title: file.title,
        by: file.by,
        source: file.source,
        url: file.url,
        date: file.date,
        read: file.read,
        environment: file.environment.trim_end().to_owned(),
        workload: file.workload.trim_end().to_owned(),
        measures: file.measures.trim_end().to_owned(),
        caveats: file.caveats,
        factors: file.factors,
        variants: file.variants,
        columns: file.columns,
        page: file.page,
    })
}

fn figures(set: &str, row: FileRow, columns: &[Column], factors: usize) -> Result<Row, DataError> {
    let (set, name) = (
        set.to_owned(),
        format!("{} at {}", row.variant, row.at.join(", ")),
    );
    if row.values.len() != columns.len() || row.at.len() != factors {
        return Err(DataError::RowLength { set, row: name });
    }
    let cells = row.values.into_iter().zip(columns);
    let figures: Result<Vec<Option<Figure>>, DataError> = cells
        .map(|(published, column)| {
            let Some(published) = published else {
                return Ok(None);
            };
            match column.unit.normalise(&published) {
                Some(value) => Ok(Some(Figure { published, value })),
                None => Err(DataError::NotANumber {
                    set: set.clone(),
                    row: name.clone(),
                    text: published,
                }),
            }
        })
        .collect();
    Ok(Row {
        variant: row.variant,
        at: row.at,
        figures: figures?,
        remark: row.remark,
        url: row.url,
    })
}

#[cfg(test)]
mod tests;
