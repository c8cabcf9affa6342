//! The builds of a variant's programs, and their runtime switches.

use std::collections::BTreeMap;
use std::path::PathBuf;

use meshtax_model::catalogue::{DataPlane, Program};
use meshtax_model::experiment::{ProgramBuild, is_runtime_key};

use crate::grammar::{ValueError, one_of};
use crate::yaml::{Fields, Node, Problem, Value, scalar};

const VERSION: &str = "version";
const PROGRAM: &str = "program";
const RUNTIME: &str = "runtime";

/// The keys of a variant that this module reads.
pub(crate) const KEYS: [&str; 3] = [VERSION, PROGRAM, RUNTIME];

const RUNTIME_EXAMPLE: &str = "`runtime: {envoy.reloadable_features.http2_use_oghttp2: false}`";

/// Longer ones are no file names.
const MAX_VERSION_LENGTH: usize = 40;

/// The builds that a variant names, by `version` or by `program`.
pub(crate) fn read(
    variant: &Fields<'_>,
    data_plane: &DataPlane,
) -> Result<BTreeMap<Program, ProgramBuild>, Problem> {
    let mut builds = BTreeMap::new();
    if let Some(node) = variant.get(VERSION) {
        named(node, VERSION, data_plane, version_build, &mut builds)?;
    }
    if let Some(node) = variant.get(PROGRAM) {
        named(node, PROGRAM, data_plane, path_build, &mut builds)?;
    }
    Ok(builds)
}

/// A single value for a data plane with one program, or a mapping from programs.
fn named(
    node: &Node,
    key: &'static str,
    data_plane: &DataPlane,
    parse: fn(&str) -> Result<ProgramBuild, ValueError>,
    builds: &mut BTreeMap<Program, ProgramBuild>,
) -> Result<(), Problem> {
    let programs: Vec<Program> = data_plane.foreign_programs().collect();
    let [first, ..] = programs[..] else {
        let problem = format!("`{}` runs no program that has a {key}", data_plane.name);
        return Err(Problem::new(node.at, problem, format!("remove `{key}`")));
    };
    if matches!(node.value, Value::Map(_)) {
        let names: Vec<&str> = programs.iter().map(|program| program.name()).collect();
        let example = format!("`{key}: {{{}: ...}}`", first.name());
        let fields = Fields::of(node, "the programs", &names, &example)?;
        for program in programs {
            if let Some(value) = fields.get(program.name()) {
                add(builds, program, scalar(value, key, parse)?, value)?;
            }
        }
        return Ok(());
    }
    if programs.len() > 1 {
        let names = one_of(programs.iter().map(|program| program.name()));
        return Err(Problem::new(
            node.at,
            format!("`{}` runs several programs", data_plane.name),
            format!(
                "name which: `{key}: {{{}: ...}}`, with {names}",
                first.name()
            ),
        ));
    }
    add(builds, first, scalar(node, key, parse)?, node)
}

fn add(
    builds: &mut BTreeMap<Program, ProgramBuild>,
    program: Program,
    build: ProgramBuild,
    node: &Node,
) -> Result<(), Problem> {
    match builds.insert(program, build) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            node.at,
            format!("{} has both `{VERSION}` and `{PROGRAM}`", program.name()),
            "remove one",
        )),
    }
}

/// A build as it is named on the command line: a version, or a path, which contains a `/`.
///
/// # Errors
/// If it is neither.
pub fn build(text: &str) -> Result<ProgramBuild, ValueError> {
    match text.contains('/') {
        true => path_build(text),
        false => version_build(text),
    }
}

/// A version is part of a file name and of a download's URL.
fn version_build(text: &str) -> Result<ProgramBuild, ValueError> {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && text.len() <= MAX_VERSION_LENGTH && text.chars().all(is_safe) {
        return Ok(ProgramBuild::Version(text.to_owned()));
    }
    let fix = "write it as in 1.36.4; a path is given with `program`";
    Err(ValueError::not(text, "a version", fix))
}

fn path_build(text: &str) -> Result<ProgramBuild, ValueError> {
    match text.is_empty() {
        false => Ok(ProgramBuild::Path(PathBuf::from(text))),
        true => Err(ValueError::not(text, "a path", "name the program's file")),
    }
}

/// The variant's runtime switches.
pub(crate) fn runtime(
    variant: &Fields<'_>,
    data_plane: &DataPlane,
) -> Result<BTreeMap<String, String>, Problem> {
    let mut switches = BTreeMap::new();
    let Some(node) = variant.get(RUNTIME) else {
        return Ok(switches);
    };
    let Value::Map(entries) = &node.value else {
        let problem = "`runtime` must be a mapping from switches to values";
        let fix = format!("write it as {RUNTIME_EXAMPLE}");
        return Err(Problem::new(node.at, problem, fix));
    };
    for (key, value) in entries {
        known_kind(key.at, &key.name, data_plane)?;
        let text = scalar(value, RUNTIME, |text| Ok(text.to_owned()))?;
        switches.insert(key.name.clone(), text);
    }
    Ok(switches)
}

/// Whether a program of this data plane reads such a switch at all.
fn known_kind(at: crate::yaml::Span, key: &str, data_plane: &DataPlane) -> Result<(), Problem> {
    let mut programs = data_plane.foreign_programs();
    let is_envoys = is_runtime_key(key);
    if programs.any(|program| program.is_envoy() == is_envoys) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
        if key.chars().all(is_name) {
            return Ok(());
        }
        let fix = format!("write it as in {RUNTIME_EXAMPLE}");
        return Err(Problem::new(
            at,
            format!("`{key}` is no runtime switch"),
            fix,
        ));
    }
    let kind = match is_envoys {
        true => "a key of Envoy's runtime",
        false => "an environment variable",
    };
    Err(Problem::new(
        at,
        format!(
            "`{key}` is {kind}, and `{}` has no program that reads it",
            data_plane.name
        ),
        "Envoy has runtime keys (with a `.`), ztunnel and linkerd2-proxy have environment variables",
    ))
}

/// `@1.36.4`, written with characters that ids may have, and `+runtime`.
pub(crate) fn in_an_id(
    builds: &BTreeMap<Program, ProgramBuild>,
    runtime: &BTreeMap<String, String>,
) -> String {
    let mut id = String::new();
    for build in builds.values() {
        id.push('-');
        id.push_str(&match build {
            ProgramBuild::Version(version) => version.clone(),
            ProgramBuild::Path(_) => "own".to_owned(),
        });
    }
    if !runtime.is_empty() {
        id.push_str("+runtime");
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_are_versions_or_paths() {
        assert_eq!(
            build("1.36.2.post1"),
            Ok(ProgramBuild::Version("1.36.2.post1".into()))
        );
        assert_eq!(build("./envoy"), Ok(ProgramBuild::Path("./envoy".into())));
        for bad in ["", "-rf", "a b", "1;2", &"9".repeat(41)] {
            assert!(build(bad).is_err(), "{bad}");
        }
    }
}
