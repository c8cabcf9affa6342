//! The walls between the crates, held by what cargo itself says of them and by their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use meshtax_dataplane::{DATA_PLANES, DataPlane};
use meshtax_model::FORMAT_VERSION;
use meshtax_spec::{KnownDataPlane, Lengths};

/// No input or output, no clock, no ambient randomness.
const PURE: [&str; 7] = [
    "model",
    "spec",
    "dataplane",
    "stats",
    "report",
    "published",
    "http2",
];

/// What nothing pure may depend on, directly or through others.
const IMPURE: [&str; 18] = [
    "async-std",
    "getrandom",
    "h2",
    "hyper",
    "kube",
    "k8s-openapi",
    "libc",
    "mio",
    "nix",
    "procfs",
    "reqwest",
    "rustix",
    "signal-hook",
    "smol",
    "socket2",
    "tokio",
    "tonic",
    "ureq",
];

/// Which crate may see which. A crate that is not here was not thought about: add it.
const SEES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("spec", &["model"]),
    ("dataplane", &["model"]),
    ("stats", &["model"]),
    ("report", &["model", "published"]),
    ("published", &["model"]),
    ("import", &["model"]),
    ("http2", &[]),
    ("tls", &[]),
    ("app", &["http2", "tls"]),
    ("load", &["model", "http2", "tls"]),
    ("observe", &["model"]),
    ("engine", &["model", "spec"]),
    ("store", &["model", "engine"]),
    ("control-plane", &["dataplane"]),
    (
        "local",
        &[
            "model",
            "dataplane",
            "control-plane",
            "http2",
            "engine",
            "load",
            "app",
            "observe",
            "tls",
        ],
    ),
    (
        "kube",
        &["model", "dataplane", "engine", "load", "app", "observe"],
    ),
];

/// The files that hold `unsafe` code. Each says in its first lines why.
const UNSAFE: [&str; 7] = [
    "crates/cli/tests/e2e/forbidden.rs",
    "crates/load/src/ring.rs",
    "crates/local/src/artifacts.rs",
    "crates/local/src/lab/component.rs",
    "crates/local/src/lab/mod.rs",
    "crates/local/src/lab/packet_socket.rs",
    "crates/local/src/sandbox.rs",
];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace")
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    // What is built here is on this machine already; what other systems would need may not be.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--offline", "--filter-platform", &platform];
    command.other_options(options.map(String::from).to_vec());
    command.exec().expect("cargo metadata")
}

/// A crate of this workspace without its prefix: the last part of its directory.
fn short(package: &Package) -> &str {
    let directory = package.manifest_path.parent().expect("a directory");
    directory.file_name().expect("a name")
}

/// The workspace's crates by their short names.
fn members(metadata: &Metadata) -> BTreeMap<&str, &Package> {
    let packages = metadata.workspace_packages();
    packages.into_iter().map(|p| (short(p), p)).collect()
}

/// All that is linked into a crate: normal dependencies and theirs.
fn linked(metadata: &Metadata, of: &PackageId) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("a resolved graph");
    let mut left = vec![of.clone()];
    let mut seen = BTreeSet::from([of.clone()]);
    while let Some(id) = left.pop() {
        let node = resolve.nodes.iter().find(|n| n.id == id).expect("a node");
        let normal = node.deps.iter().filter(|dependency| {
            let kinds = &dependency.dep_kinds;
            kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        left.extend(
            normal
                .map(|d| d.pkg.clone())
                .filter(|id| seen.insert(id.clone())),
        );
    }
    let name = |id: &PackageId| metadata[id].name.to_string();
    seen.iter().filter(|id| *id != of).map(name).collect()
}

/// Names of direct dependencies of a kind.
fn direct(package: &Package, kind: DependencyKind) -> BTreeSet<&str> {
    let of_kind = package.dependencies.iter().filter(|d| d.kind == kind);
    of_kind.map(|d| d.name.as_str()).collect()
}

#[test]
fn pure_crates_link_nothing_that_reaches_outside() {
    let metadata = metadata();
    let members = members(&metadata);
    for name in PURE {
        let linked = linked(&metadata, &members[name].id);
        let impure: Vec<_> = IMPURE.iter().filter(|i| linked.contains(**i)).collect();
        assert!(impure.is_empty(), "{name} links {impure:?}");
    }
    // Were the graph empty, the above would hold of anything.
    let whole = linked(&metadata, &members["cli"].id);
    assert!(
        whole.contains("rustix") && whole.contains("serde"),
        "{whole:?}"
    );
}

#[test]
fn the_model_depends_on_serde_and_the_histogram_only() {
    let metadata = metadata();
    let model = members(&metadata)["model"];
    let normal = direct(model, DependencyKind::Normal);
    assert_eq!(normal, BTreeSet::from(["base64", "hdrhistogram", "serde"]));
    let development = direct(model, DependencyKind::Development);
    assert!(
        development.is_subset(&BTreeSet::from(["proptest", "serde_json"])),
        "{development:?}"
    );
}

#[test]
fn crates_see_only_what_they_may() {
    let metadata = metadata();
    let members = members(&metadata);
    let allowed: BTreeMap<_, _> = SEES.iter().copied().collect();
    let names: BTreeMap<String, &str> = members
        .iter()
        .map(|(short, package)| (package.name.to_string(), *short))
        .collect();
    for (name, package) in &members {
        let normal = direct(package, DependencyKind::Normal);
        let seen: BTreeSet<&str> = normal
            .iter()
            .filter_map(|n| names.get(*n).copied())
            .collect();
        if *name == "cli" {
            let whole = linked(&metadata, &package.id);
            let forgotten: Vec<_> = names
                .keys()
                .filter(|n| *n != "meshtax" && !whole.contains(*n))
                .collect();
            assert!(
                forgotten.is_empty(),
                "cli is what puts all crates together, and leaves out {forgotten:?}"
            );
            continue;
        }
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("say in SEES what {name} may see"));
        let may: BTreeSet<&str> = may.iter().copied().collect();
        assert!(
            seen.is_subset(&may),
            "{name} sees {seen:?}, and may see {may:?}"
        );
    }
}

/// All Rust sources of the workspace's crates, by their path from its root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    files_below(&root.join("crates"), "rs", &mut files);
    files
        .iter()
        .map(|path| {
            let name = path.strip_prefix(&root).expect("below the root");
            (name.display().to_string(), read(path))
        })
        .collect()
}

fn files_below(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn holds_unsafe_code(source: &str) -> bool {
    // In two parts, so that this file is not found by itself.
    let keyword = concat!("un", "safe");
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let begins = [" {", " fn ", " impl ", " trait ", " extern "];
    let mut lines = code.filter(|line| line.contains(keyword));
    lines.any(|line| {
        begins
            .iter()
            .any(|rest| line.contains(&format!("{keyword}{rest}")))
    })
}

#[test]
fn unsafe_code_stands_only_where_it_is_expected() {
    let sources = sources();
    assert!(
        sources.len() > 50,
        "only {} sources were found",
        sources.len()
    );
    let found: BTreeSet<&str> = sources
        .iter()
        .filter(|(_, source)| holds_unsafe_code(source))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(found, BTreeSet::from(UNSAFE));
}

#[test]
fn pure_crates_forbid_unsafe_code() {
    for name in PURE {
        let path = root().join("crates").join(name).join("src/lib.rs");
        let forbids = read(&path).contains("#![forbid(unsafe_code)]");
        assert!(forbids, "{} lacks #![forbid(unsafe_code)]", path.display());
    }
}

/// The macros that write, in whatever crate: clippy refuses them too, unless it is told otherwise.
#[test]
fn only_the_command_line_prints_and_exits() {
    let allowances = ["clippy::print_stdout", "clippy::print_stderr"];
    for (name, source) in sources() {
        let of_product = name.contains("/src/") && !name.starts_with("crates/cli/");
        if !of_product {
            continue;
        }
        for allowance in allowances {
            let tells_clippy = source.contains(allowance);
            // The minimal proxy logs whom it spoke to: its standard error is the lab's to read.
            let logs = name.starts_with("crates/local/src/limit_proxy/");
            assert!(
                !tells_clippy || logs,
                "{name} has an exception from {allowance}"
            );
        }
    }
}

fn known() -> Vec<KnownDataPlane> {
    let known = |plane: &DataPlane| {
        KnownDataPlane::new(plane.name, plane.levels)
            .carrying_graphs(plane.carries_graphs())
            .with_options(plane.options)
            .having_gateway(plane.has_gateway())
    };
    DATA_PLANES.iter().map(known).collect()
}

#[test]
fn every_preset_is_a_spec_that_this_product_can_run() {
    let presets = meshtax_spec::presets();
    assert!(presets.iter().any(|preset| preset.name == "quick"));
    for preset in presets {
        let parsed = meshtax_spec::parse_all(preset.name, preset.yaml, &known(), Lengths::Short);
        let experiments = parsed.unwrap_or_else(|e| panic!("{e}"));
        for experiment in &experiments {
            let name = experiment.series.as_ref().unwrap_or(&experiment.name);
            assert_eq!(name, preset.name);
        }
    }
}

/// What is drawn beside a measured variant must be one that can be measured.
#[test]
fn published_variants_are_held_against_data_planes_that_are_there() {
    let sets = meshtax_published::results();
    let variants = sets.iter().flat_map(|set| &set.variants);
    let mut held = 0;
    for variant in variants {
        let Some(name) = &variant.data_plane else {
            assert!(variant.level.is_none(), "{variant:?}: a level of what?");
            continue;
        };
        let plane = DATA_PLANES.iter().find(|plane| plane.name == name);
        let plane = plane.unwrap_or_else(|| panic!("{name} is no data plane"));
        let has_level = variant
            .level
            .is_none_or(|level| plane.levels.contains(&level));
        assert!(has_level, "{variant:?}");
        held += 1;
    }
    assert!(held > 10, "only {held} variants are held against anything");
}

/// The fenced blocks of YAML that are specs: other YAML has neither of these keys at its margin.
fn specs_in(markdown: &str) -> Vec<String> {
    let blocks = markdown.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
    blocks.filter(|block| is_spec(block)).collect()
}

fn is_spec(yaml: &str) -> bool {
    let keys = ["variants:", "design:", "load:", "workload:"];
    yaml.lines()
        .any(|line| keys.iter().any(|key| line.starts_with(key)))
}

#[test]
fn every_spec_in_the_documentation_parses() {
    let root = root();
    let (mut pages, mut files) = (vec![root.join("README.md")], Vec::new());
    for directory in ["docs", "examples"] {
        files_below(&root.join(directory), "md", &mut pages);
        files_below(&root.join(directory), "yaml", &mut files);
    }
    let in_pages = pages.iter().flat_map(|page| {
        let specs = specs_in(&read(page)).into_iter();
        specs.map(move |spec| (page, spec))
    });
    let in_files = files.iter().map(|file| (file, read(file)));
    for (path, spec) in in_pages.chain(in_files.filter(|(_, text)| is_spec(text))) {
        let name = path.display().to_string();
        if let Err(e) = meshtax_spec::parse_all(&name, &spec, &known(), Lengths::Short) {
            panic!("a spec in {name} is wrong: {e}\n{spec}");
        }
    }
    let page = "text\n```yaml\nname: a\nload:\n  - saturated: {}\n```\n```yaml\nkind: Pod\n```\n";
    assert_eq!(specs_in(page).len(), 1, "this test finds specs in pages");
}

#[test]
fn one_schema_is_documented_tested_and_of_this_version() {
    let schema = format!("docs/schema/report-v{FORMAT_VERSION}.json");
    assert!(root().join(&schema).is_file(), "{schema} is not there");
    for user in [
        "crates/report/tests/report/schema.rs",
        "crates/cli/tests/e2e/real_run.rs",
        "crates/cli/src/args.rs",
    ] {
        let names_it = read(&root().join(user)).contains(&schema);
        assert!(names_it, "{user} does not use {schema}");
    }
}
