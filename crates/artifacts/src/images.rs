//! Programs out of the projects' official container images.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{ProgramBuild, ProgramChoice};
use meshtax_oci::{
    Credentials, Digest, Limits, ProgramFiles, Proxies, PullOptions, Reference, Resolved, Retries,
    extract_program, resolve, unpack,
};
use serde::{Deserialize, Serialize};

use crate::cache::{self, Partial, not_writable};
use crate::digest::sha256_of_directory;
use crate::error::ProgramError;
use crate::inspect::{Binary, File, Loader, Origin, inspect};
use crate::lock;

/// Where a project publishes a program. No tag and no layout could be checked where this was written: *unverified*.
struct Official {
    program: Program,
    repository: &'static str,
    /// Before the version in a tag.
    tag_prefix: &'static str,
    /// The version that is downloaded unless another is named.
    default_version: &'static str,
    /// The program's path in the image.
    path: &'static str,
}

/// Versions: istio.io/latest/news/releases/1.30.x (1.30.4 of 2026-08-27) and the images of github.com/linkerd/linkerd2's
/// release edge-26.8.2. Paths: ztunnel's `PROFILING.md`, istio's `pilot/docker/Dockerfile.proxyv2`, and the `Dockerfile`s of
/// linkerd2-proxy and Envoy.
const OFFICIAL: [Official; 4] = [
    Official {
        program: Program::IstioProxy,
        repository: "docker.io/istio/proxyv2",
        tag_prefix: "",
        default_version: "1.30.4",
        path: "/usr/local/bin/envoy",
    },
    Official {
        program: Program::Ztunnel,
        repository: "docker.io/istio/ztunnel",
        tag_prefix: "",
        default_version: "1.30.4",
        path: "/usr/local/bin/ztunnel",
    },
    Official {
        program: Program::LinkerdProxy,
        repository: "cr.l5d.io/linkerd/proxy",
        tag_prefix: "",
        default_version: "edge-26.8.2",
        path: "/usr/lib/linkerd/linkerd2-proxy",
    },
    Official {
        program: Program::Envoy,
        repository: "docker.io/envoyproxy/envoy",
        tag_prefix: "distroless-v",
        default_version: "1.40.0",
        path: "/usr/local/bin/envoy",
    },
];

impl Official {
    fn of(program: Program) -> Option<&'static Self> {
        OFFICIAL.iter().find(|official| official.program == program)
    }

    fn reference(&self, version: &str) -> Result<Reference, ProgramError> {
        let text = format!("{}:{}{version}", self.repository, self.tag_prefix);
        parse(&text)
    }
}

fn parse(text: &str) -> Result<Reference, ProgramError> {
    text.parse().map_err(|source| ProgramError::NoReference {
        text: text.to_owned(),
        source,
    })
}

/// Which registries are asked.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// An image of the user's own choice, instead of the official one.
    pub image: Option<String>,
    /// For a registry, who is asked before it.
    pub mirrors: Vec<(String, String)>,
}

/// Images in the lock file.
const IMAGE: &str = "image";

/// The registry is asked this often for the few kilobytes that say what there is: a run without network must not wait long.
const TRIES: u32 = 2;
const FIRST_WAIT: Duration = Duration::from_millis(300);

/// An image that can be downloaded: its origin and its size come before any download.
#[derive(Debug)]
pub struct Offer {
    program: Program,
    /// Whether the user named it, instead of the official one.
    is_own: bool,
    path: &'static str,
    lock_entry: String,
    options: PullOptions,
    resolved: Resolved,
}

/// Asks the registry for the official image of a program, or for the one that is named.
///
/// # Errors
/// If there is none, or it cannot be asked; each with what to do.
pub fn offer(choice: &ProgramChoice, registries: &Registries) -> Result<Offer, ProgramError> {
    let program = choice.program;
    let official = Official::of(program).ok_or(ProgramError::Missing(program))?;
    let version = version(official, choice)?;
    let reference = match &registries.image {
        Some(image) => parse(image)?,
        None => official.reference(version)?,
    };
    let lock_entry = lock::entry(IMAGE, &reference.to_string());
    let mut options = PullOptions {
        expected: recorded(&lock_entry)?,
        credentials: Credentials::load().map_err(ProgramError::Credentials)?,
        proxies: Proxies::from_environment(),
        mirrors: mirrors(registries),
        // Only on loopback.
        plain_http: true,
        retries: Retries {
            tries: TRIES,
            first_wait: FIRST_WAIT,
            ..Retries::default()
        },
        ..PullOptions::new(cache::writable()?.join("images"))
    };
    let failed = pull_failed(program);
    let resolved = resolve(&reference, &options).map_err(failed)?;
    options.retries = Retries::default();
    Ok(Offer {
        program,
        is_own: registries.image.is_some(),
        path: official.path,
        lock_entry,
        options,
        resolved,
    })
}

fn version<'a>(official: &Official, choice: &'a ProgramChoice) -> Result<&'a str, ProgramError> {
    match &choice.build {
        None => Ok(official.default_version),
        Some(ProgramBuild::Version(version)) => Ok(version),
        Some(ProgramBuild::Path(_)) => Err(ProgramError::missing(choice)),
    }
}

fn recorded(entry: &str) -> Result<Option<Digest>, ProgramError> {
    let digest = lock::recorded(entry)?;
    Ok(digest.and_then(|digest| digest.parse().ok()))
}

fn mirrors(registries: &Registries) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (registry, endpoint) in &registries.mirrors {
        all.entry(registry.clone())
            .or_default()
            .push(endpoint.clone());
    }
    all
}

fn pull_failed(program: Program) -> impl FnOnce(meshtax_oci::PullError) -> ProgramError {
    move |source| ProgramError::NotPulled {
        program,
        source: Box::new(source),
    }
}

impl Offer {
    /// What will be downloaded, and from where: `docker.io/istio/ztunnel:1.30.4`.
    #[must_use]
    pub fn origin(&self) -> String {
        self.resolved.reference.to_string()
    }

    /// Bytes to download: those of the image that are not in the cache.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.resolved.missing_bytes
    }

    /// Downloads the image and takes the program out of it, with its loader and libraries. `progress` is called with the
    /// downloaded bytes and all of them.
    ///
    /// # Errors
    /// If the registry fails, the image is not what was recorded, or it does not contain the program.
    pub fn download(self, progress: &mut dyn FnMut(u64, u64)) -> Result<Binary, ProgramError> {
        let Self {
            program,
            is_own,
            path,
            lock_entry,
            options,
            resolved,
        } = self;
        let image = resolved
            .download(&options, &mut |at| progress(at.done_bytes, at.total_bytes))
            .map_err(pull_failed(program))?;
        let digest = image.digest.to_string();
        lock::verify_or_record(&lock_entry, &digest)?;
        let cache = cache::writable()?;
        let partial = Partial::create(&cache)?;
        let root = partial.path().join("root");
        fs::create_dir(&root).map_err(not_writable(&root))?;
        unpack(&image.layers, &root, &Limits::default()).map_err(ProgramError::NotUnpackedImage)?;
        let extracted = partial.path().join("program");
        let files = extract_program(&root, Path::new(path), &extracted.join(FILES))
            .map_err(ProgramError::NotInImage)?;
        let record = Record {
            reference: image.reference.to_string(),
            files: relative(&files, &extracted),
        };
        let target = cache.join(directory_name(program, &digest));
        record.write(&extracted).map_err(not_writable(&target))?;
        // A program that does not work is not kept.
        record.inspect(program, &extracted)?;
        verify_files(&digest, &extracted)?;
        keep(&extracted, &target).map_err(not_writable(&target))?;
        if is_own {
            choose_own(&cache, program, &digest)?;
        }
        from_directory(program, &digest)?.ok_or(ProgramError::Missing(program))
    }
}

/// The file in a program's directory that describes it.
const RECORD: &str = "image.json";

/// The directory beside it, with the program, its loader and its libraries. Rename it if they are extracted in another way:
/// the lock file has the digest of its content.
const FILES: &str = "files";

/// A program that was taken out of an image: its paths are relative to its directory.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    reference: String,
    files: Files,
}

#[derive(Debug, Serialize, Deserialize)]
struct Files {
    program: PathBuf,
    loader: Option<PathBuf>,
    libraries: PathBuf,
}

fn relative(files: &ProgramFiles, directory: &Path) -> Files {
    let below = |path: &Path| path.strip_prefix(directory).unwrap_or(path).to_owned();
    Files {
        program: below(&files.program),
        loader: files.loader.as_deref().map(below),
        libraries: below(&files.libraries),
    }
}

impl Record {
    fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        fs::write(directory.join(RECORD), text)
    }

    fn inspect(&self, program: Program, directory: &Path) -> Result<Binary, ProgramError> {
        let file = File {
            path: directory.join(&self.files.program),
            loader: self.files.loader.as_ref().map(|loader| Loader {
                path: directory.join(loader),
                libraries: directory.join(&self.files.libraries),
            }),
        };
        let path = file.path.clone();
        let origin = Origin::Image(self.reference.clone());
        inspect(program, file, origin).map_err(|source| ProgramError::Unusable {
            program,
            path,
            source,
        })
    }
}

/// Puts the directory in its place. What is there already came out of the same image, and another process may be running
/// it: it is left as it is.
fn keep(directory: &Path, target: &Path) -> io::Result<()> {
    match fs::rename(directory, target) {
        Err(_) if target.is_dir() => Ok(()),
        renamed => renamed,
    }
}

/// Compares the files of a program with those that were first taken out of the image with this digest.
fn verify_files(digest: &str, directory: &Path) -> Result<(), ProgramError> {
    let unreadable = |_| ProgramError::CachedFilesChanged {
        directory: directory.to_owned(),
    };
    let found = sha256_of_directory(&directory.join(FILES)).map_err(unreadable)?;
    match lock::verify_or_record(&lock::entry(FILES, digest), &found) {
        Err(ProgramError::DigestChanged { .. }) => Err(ProgramError::CachedFilesChanged {
            directory: directory.to_owned(),
        }),
        other => other,
    }
}

/// A name that no other image has: a directory never changes once it is there.
fn directory_name(program: Program, digest: &str) -> String {
    let digest = digest.trim_start_matches("sha256:");
    let digest = &digest[..digest.len().min(16)];
    format!("{}-{digest}-{}.image", program.name(), env::consts::ARCH)
}

/// The file with the digest of the image that the user named.
fn own_choice(cache: &Path, program: Program) -> PathBuf {
    cache.join(format!("{}.image", cache::kept_name(program)))
}

/// Makes this image the default, in place of an earlier choice.
fn choose_own(cache: &Path, program: Program, digest: &str) -> Result<(), ProgramError> {
    let choice = own_choice(cache, program);
    let partial = Partial::create(cache)?;
    let text = partial.path().join("choice");
    fs::write(&text, digest)
        .and_then(|()| fs::rename(&text, &choice))
        .map_err(not_writable(&choice))?;
    let _ = fs::remove_file(cache.join(cache::kept_name(program)));
    Ok(())
}

/// Another choice takes the place of the image that the user named, if there is one.
pub(crate) fn forget_own(cache: &Path, program: Program) {
    let _ = fs::remove_file(own_choice(cache, program));
}

/// The program out of the image that the user named.
pub(crate) fn find_own(program: Program) -> Result<Option<Binary>, ProgramError> {
    let choice = cache::directory().map(|cache| own_choice(&cache, program));
    match choice.map(fs::read_to_string) {
        Some(Ok(digest)) => from_directory(program, digest.trim()),
        _ => Ok(None),
    }
}

/// A program that was taken out of this version of the official image before.
pub(crate) fn find_official(
    program: Program,
    version: Option<&str>,
) -> Result<Option<Binary>, ProgramError> {
    let Some(official) = Official::of(program) else {
        return Ok(None);
    };
    let reference = official.reference(version.unwrap_or(official.default_version))?;
    match lock::recorded(&lock::entry(IMAGE, &reference.to_string())) {
        Ok(Some(digest)) => from_directory(program, &digest),
        Ok(None) | Err(ProgramError::NoCache) => Ok(None),
        Err(other) => Err(other),
    }
}

/// `Ok(None)`: it is not in the cache.
fn from_directory(program: Program, digest: &str) -> Result<Option<Binary>, ProgramError> {
    let Some(cache) = cache::directory() else {
        return Ok(None);
    };
    let directory = cache.join(directory_name(program, digest));
    if !directory.is_dir() {
        return Ok(None);
    }
    // Before it is run for its version.
    verify_files(digest, &directory)?;
    let record = fs::read(directory.join(RECORD)).ok();
    let record: Option<Record> = record.and_then(|text| serde_json::from_slice(&text).ok());
    match record {
        Some(record) => record.inspect(program, &directory).map(Some),
        None => Err(ProgramError::CachedFilesChanged { directory }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_an_image_that_is_there_already_is_left_as_it_is() {
        let cache = tempfile::tempdir().unwrap();
        let (first, second) = (cache.path().join("first"), cache.path().join("second"));
        let target = cache.path().join("target");
        for directory in [&first, &second] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("program"), directory.to_str().unwrap()).unwrap();
        }
        keep(&first, &target).unwrap();
        keep(&second, &target).unwrap();
        let kept = fs::read_to_string(target.join("program")).unwrap();
        assert_eq!(kept, first.to_str().unwrap());
        assert!(keep(&second, &cache.path().join("no/directory")).is_err());
    }

    #[test]
    fn every_official_image_has_a_reference_for_any_version() {
        for official in &OFFICIAL {
            let reference = official.reference(official.default_version).unwrap();
            assert!(reference.to_string().contains(official.repository));
            assert!(official.reference("1 2").is_err());
        }
        let envoy = Official::of(Program::Envoy)
            .unwrap()
            .reference("1.36.4")
            .unwrap();
        assert_eq!(
            envoy.to_string(),
            "docker.io/envoyproxy/envoy:distroless-v1.36.4"
        );
    }
}
