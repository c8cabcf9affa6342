//! The boundaries of the crates and modules, checked by cargo's metadata and in the sources.

#[path = "architecture/guides.rs"]
mod guides;
#[path = "architecture/modules.rs"]
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use meshtax_model::FORMAT_VERSION;
use meshtax_model::catalogue::DATA_PLANES;
use meshtax_spec::Lengths;

/// No input or output, no clock, no ambient randomness.
const PURE: [&str; 9] = [
    "model",
    "spec",
    "plan",
    "dataplane",
    "stats",
    "report",
    "published",
    "formats",
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

/// The allowed dependencies between crates. Every crate must be listed.
const SEES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("spec", &["model"]),
    ("plan", &["model"]),
    ("dataplane", &["model"]),
    ("stats", &["model"]),
    ("report", &["model", "published"]),
    ("published", &["model"]),
    ("formats", &["model"]),
    ("fixtures", &["model"]),
    ("import", &["model"]),
    ("http2", &[]),
    ("tls", &[]),
    ("app", &["http2", "tls"]),
    ("load", &["model", "http2", "tls"]),
    ("observe", &["model"]),
    ("engine", &["model", "plan"]),
    ("store", &["model", "engine"]),
    ("control-plane", &["dataplane"]),
    ("artifacts", &["model", "oci"]),
    ("oci", &[]),
    ("agent", &["model", "dataplane", "load", "observe"]),
    ("workload", &["model", "dataplane", "app", "load", "tls"]),
    (
        "evidence",
        &[
            "model",
            "dataplane",
            "agent",
            "workload",
            "http2",
            "load",
            "app",
            "tls",
        ],
    ),
    ("limit-proxy", &["dataplane", "tls"]),
    (
        "local",
        &[
            "model",
            "dataplane",
            "agent",
            "artifacts",
            "control-plane",
            "evidence",
            "workload",
            "engine",
            "load",
            "app",
            "observe",
            "tls",
        ],
    ),
    (
        "kube",
        &[
            "model",
            "dataplane",
            "agent",
            "control-plane",
            "evidence",
            "workload",
            "engine",
            "load",
            "app",
            "observe",
            "tls",
        ],
    ),
];

/// The files with `unsafe` code. Each explains it in its first lines.
const UNSAFE: [&str; 8] = [
    "crates/agent/src/packet_socket.rs",
    "crates/artifacts/src/download.rs",
    "crates/cli/tests/e2e/forbidden.rs",
    "crates/load/src/ring.rs",
    "crates/local/src/cgroups.rs",
    "crates/local/src/lab/component.rs",
    "crates/local/src/lab/mod.rs",
    "crates/local/src/sandbox.rs",
];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace")
}

fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml"));
    // Only the dependencies for this platform are certain to be on this machine.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--offline", "--filter-platform", &platform];
    command.other_options(options.map(String::from).to_vec());
    command.exec().expect("cargo metadata")
}

/// The short name of a crate: the last component of its directory.
fn short(package: &Package) -> &str {
    let directory = package.manifest_path.parent().expect("a directory");
    directory.file_name().expect("a name")
}

/// The crates of the workspace by their short names.
fn members(metadata: &Metadata) -> BTreeMap<&str, &Package> {
    let packages = metadata.workspace_packages();
    packages.into_iter().map(|p| (short(p), p)).collect()
}

/// Everything that is linked into a crate: its normal dependencies, transitively.
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
fn pure_crates_link_no_impure_dependency() {
    let metadata = metadata();
    let members = members(&metadata);
    for name in PURE {
        let linked = linked(&metadata, &members[name].id);
        let impure: Vec<_> = IMPURE.iter().filter(|i| linked.contains(**i)).collect();
        assert!(impure.is_empty(), "{name} links {impure:?}");
    }
    // An empty graph would pass the check above.
    let whole = linked(&metadata, &members["cli"].id);
    assert!(
        whole.contains("rustix") && whole.contains("serde"),
        "{whole:?}"
    );
}

#[test]
fn model_depends_only_on_serde_base64_and_hdrhistogram() {
    let metadata = metadata();
    let model = members(&metadata)["model"];
    let normal = direct(model, DependencyKind::Normal);
    let allowed = ["base64", "hdrhistogram", "serde", "thiserror"];
    assert_eq!(normal, BTreeSet::from(allowed));
    let development = direct(model, DependencyKind::Development);
    assert!(
        development.is_subset(&BTreeSet::from(["proptest", "serde_json"])),
        "{development:?}"
    );
}

#[test]
fn crates_depend_only_on_allowed_crates() {
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
            let is_linked = |name: &str| name == "meshtax" || whole.contains(name);
            let unlinked: Vec<&String> = names.keys().filter(|n| !is_linked(n)).collect();
            // cli links every product crate, and nothing that is for tests only.
            assert_eq!(unlinked, ["meshtax-fixtures"]);
            continue;
        }
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("list in SEES the crates that {name} may depend on"));
        let may: BTreeSet<&str> = may.iter().copied().collect();
        assert!(
            seen.is_subset(&may),
            "{name} depends on {seen:?}, but may depend on {may:?}"
        );
    }
}

#[test]
fn modules_of_a_crate_do_not_import_each_other_in_cycles() {
    let metadata = metadata();
    for (name, package) in members(&metadata) {
        let directory = package.manifest_path.parent().expect("a directory");
        let imports = modules::imports(directory.join("src").as_std_path());
        assert!(!imports.is_empty(), "{name} has no modules");
        let cycles = modules::cycles(&imports);
        let described: Vec<String> = cycles.iter().map(|c| describe(&imports, c)).collect();
        assert!(
            cycles.is_empty(),
            "modules of {name} in cycles:\n{}",
            described.join("\n")
        );
    }
}

/// The imports within a cycle, one per line.
fn describe(imports: &modules::Imports, cycle: &BTreeSet<Vec<String>>) -> String {
    let edges = cycle.iter().flat_map(|module| {
        let inside = imports[module]
            .iter()
            .filter(|other| cycle.contains(*other));
        inside.map(move |other| format!("  {} -> {}", module.join("::"), other.join("::")))
    });
    edges.collect::<Vec<_>>().join("\n")
}

/// The product code of a source: without tests at its end.
fn product(source: &str) -> &str {
    let tests = source.find("#[cfg(test)]\nmod ");
    &source[..tests.unwrap_or(source.len())]
}

/// The product sources, by their path.
fn product_sources() -> Vec<(String, String)> {
    let is_product = |name: &str| name.contains("/src/") && !name.ends_with("/tests.rs");
    let sources = sources().into_iter().filter(|(name, _)| is_product(name));
    sources
        .map(|(name, source)| (name, product(&source).to_owned()))
        .collect()
}

#[test]
fn errors_are_types_and_not_text() {
    for (name, source) in product_sources() {
        assert!(
            !source.lines().any(returns_text_error),
            "{name}: `Result<_, String>`: return an error type with what, where and fix"
        );
    }
    assert!(returns_text_error("fn f() -> Result<Vec<u8>, String> {"));
    assert!(!returns_text_error("fn f() -> io::Result<String> {"));
    assert!(!returns_text_error(
        "fn f() -> Result<BTreeMap<u8, String>, Error> {"
    ));
}

/// Whether the error type of a `Result` on this line is `String`.
fn returns_text_error(line: &str) -> bool {
    let mut results = line.match_indices("Result<");
    results.any(|(at, start)| {
        let arguments = &line[at + start.len()..];
        let mut depth = 0;
        let mut last = 0;
        for (at, c) in arguments.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if depth == 0 => return last > 0 && arguments[last..at].trim() == "String",
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 0 => last = at + 1,
                _ => {}
            }
        }
        false
    })
}

#[test]
fn data_planes_are_not_classified_by_name() {
    let names: BTreeSet<&str> = DATA_PLANES
        .iter()
        .filter_map(|plane| plane.name.split('-').next())
        .collect();
    let tests_prefix = |source: &str| {
        names.iter().any(|name| {
            let tests = ["starts_with", "strip_prefix"].map(|test| format!("{test}(\"{name}"));
            tests.iter().any(|test| source.contains(test))
        })
    };
    for (name, source) in product_sources() {
        assert!(
            !tests_prefix(&source),
            "{name} tests the prefix of a data plane's name: use the catalogue"
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
fn unsafe_code_is_confined_to_listed_files() {
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

/// The macros that write, in whatever crate: clippy rejects them too, unless configured otherwise.
#[test]
fn only_cli_prints_and_exits() {
    let allowances = ["clippy::print_stdout", "clippy::print_stderr"];
    for (name, source) in sources() {
        let of_product = name.contains("/src/") && !name.starts_with("crates/cli/");
        if !of_product {
            continue;
        }
        for allowance in allowances {
            let tells_clippy = source.contains(allowance);
            // The minimal proxy logs whom it spoke to: its standard error is the lab's to read.
            let logs = name.starts_with("crates/limit-proxy/src/");
            assert!(
                !tells_clippy || logs,
                "{name} has an exception from {allowance}"
            );
        }
    }
}

#[test]
fn every_preset_parses() {
    let presets = meshtax_spec::presets();
    assert!(presets.iter().any(|preset| preset.name == "quick"));
    for preset in presets {
        let parsed = meshtax_spec::parse_all(preset.name, preset.yaml, Lengths::Short);
        let experiments = parsed.unwrap_or_else(|e| panic!("{e}"));
        for experiment in &experiments {
            let name = experiment.series.as_ref().unwrap_or(&experiment.name);
            assert_eq!(name, preset.name);
        }
    }
}

/// What is drawn beside a measured variant must be one that can be measured.
#[test]
fn published_variants_name_existing_data_planes() {
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
fn every_documented_spec_parses() {
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
        if let Err(e) = meshtax_spec::parse_all(&name, &spec, Lengths::Short) {
            panic!("a spec in {name} is wrong: {e}\n{spec}");
        }
    }
    let page = "text\n```yaml\nname: a\nload:\n  - saturated: {}\n```\n```yaml\nkind: Pod\n```\n";
    assert_eq!(specs_in(page).len(), 1, "this test finds specs in pages");
}

#[test]
fn report_schema_matches_the_format_version() {
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

/// What others published is shown beside an analysis, never in one: the crate that analyses does not see it, and the
/// crate that shows it takes analyses and advice by shared reference only.
#[test]
fn published_figures_cannot_enter_an_analysis() {
    let published = |name: &str| {
        let metadata = metadata();
        let members = members(&metadata);
        linked(&metadata, &members[name].id).contains("meshtax-published")
    };
    for name in ["model", "stats", "store", "engine"] {
        assert!(!published(name), "{name} links published figures");
    }
    let shows = |name: &str| {
        ["crates/report/", "crates/published/"]
            .iter()
            .any(|at| name.starts_with(at))
    };
    for (name, source) in product_sources()
        .into_iter()
        .filter(|(name, _)| shows(name))
    {
        for mutable in ["&mut Analysis", "&mut [Analysis]", "&mut Advice"] {
            assert!(!source.contains(mutable), "{name}: {mutable}");
        }
    }
}
