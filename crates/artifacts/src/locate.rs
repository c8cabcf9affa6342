//! Where a program is found, and how the user's own copy gets into the cache.

use std::path::{Path, PathBuf};
use std::{env, fs};

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{ProgramBuild, ProgramChoice};

use crate::cache::{self, Partial, kept_name, not_writable};
use crate::digest::sha256_of_file;
use crate::download;
use crate::error::{InspectError, ProgramError};
use crate::images;
use crate::inspect::{Binary, File, Origin, inspect};

/// The build of a program that a variant names; else the file at the path that the user gave, else on `PATH`, then in the
/// cache. `Ok(None)`: not found.
///
/// # Errors
/// If the file at the given path cannot be used, or a cached version is not what was downloaded: it is not silently
/// replaced by another.
pub fn find(choice: &ProgramChoice, given: Option<&Path>) -> Result<Option<Binary>, ProgramError> {
    let program = choice.program;
    match (&choice.build, given) {
        (Some(ProgramBuild::Version(version)), _) => find_version(program, version),
        (Some(ProgramBuild::Path(path)), _) => at_path(program, path).map(Some),
        (None, Some(path)) => at_path(program, path).map(Some),
        (None, None) => find_default(program),
    }
}

fn at_path(program: Program, path: &Path) -> Result<Binary, ProgramError> {
    inspect(program, File::plain(path), Origin::Given).map_err(unusable(program, path))
}

/// On `PATH`; then what the user chose with `meshtax dataplanes get`; then the default version.
fn find_default(program: Program) -> Result<Option<Binary>, ProgramError> {
    if let Some(found) = find_on_path(program).or_else(|| find_own_copy(program)) {
        return Ok(Some(found));
    }
    if let Some(found) = images::find_own(program)?.or_else(|| find_pinned(program)) {
        return Ok(Some(found));
    }
    images::find_official(program, None)
}

fn find_on_path(program: Program) -> Option<Binary> {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths)
        .map(|directory| directory.join(program.name()))
        .filter(|candidate| candidate.is_file())
        .find_map(|candidate| inspect(program, File::plain(&candidate), Origin::Path).ok())
}

/// A cached version, if it is what was downloaded.
fn find_version(program: Program, version: &str) -> Result<Option<Binary>, ProgramError> {
    let path = cache::directory().map(|cache| download::target(&cache, version));
    let Some(path) = path.filter(|path| program == Program::Envoy && path.is_file()) else {
        return images::find_official(program, Some(version));
    };
    // Before it is run for its version.
    let sha256 = sha256_of_file(&path).map_err(|e| unusable(program, &path)(e.into()))?;
    download::verify(version, &sha256)?;
    let binary = inspect(program, File::plain(&path), Origin::Cache);
    binary.map(Some).map_err(unusable(program, &path))
}

/// Copies the user's binary into the cache, where later runs find it.
///
/// # Errors
/// If it cannot be used, or the cache cannot be written.
pub fn keep_program(program: Program, from: &Path) -> Result<Binary, ProgramError> {
    inspect(program, File::plain(from), Origin::Given).map_err(unusable(program, from))?;
    let cache = cache::writable()?;
    let partial = Partial::create(&cache)?;
    let copy = partial.path().join("copy");
    let target = cache.join(kept_name(program));
    fs::copy(from, &copy)
        .and_then(|_| fs::rename(&copy, &target))
        .map_err(not_writable(&target))?;
    images::forget_own(&cache, program);
    inspect(program, File::plain(&target), Origin::Cache).map_err(unusable(program, &target))
}

fn unusable(program: Program, path: &Path) -> impl FnOnce(InspectError) -> ProgramError {
    let path: PathBuf = path.to_owned();
    move |source| ProgramError::Unusable {
        program,
        path,
        source,
    }
}

fn find_own_copy(program: Program) -> Option<Binary> {
    let own = cache::directory()?.join(kept_name(program));
    let found = own
        .is_file()
        .then(|| inspect(program, File::plain(&own), Origin::Cache));
    found?.ok()
}

/// A file that is not the pinned one is ignored.
fn find_pinned(program: Program) -> Option<Binary> {
    if program != Program::Envoy {
        return None;
    }
    let path = download::target(&cache::directory()?, download::PINNED);
    // Before it is run for its version.
    let is_pinned = sha256_of_file(&path).is_ok_and(|sha256| download::is_pinned(&sha256));
    let pinned = is_pinned.then(|| inspect(program, File::plain(&path), Origin::Cache));
    pinned?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::title;

    #[test]
    fn wrong_binary_is_rejected_with_path_name_and_fix() {
        for program in Program::FOREIGN.iter().copied() {
            for path in ["/bin/ls", "/nowhere/proxy"] {
                let choice = ProgramChoice::default_of(program);
                let error = find(&choice, Some(Path::new(path)));
                let error = error.unwrap_err().to_string();
                assert!(
                    error.contains(path)
                        && error.contains("fix:")
                        && error.contains(title(program)),
                    "{error}"
                );
            }
        }
    }
}
