//! Programs out of the projects' official container images.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use meshtax_model::catalogue::Program;
use meshtax_model::experiment::{ProgramBuild, ProgramChoice};
use meshtax_oci::{
    Credentials, Digest, Limits, ProgramFiles, Proxies, PullOptions, Reference, Resolved, Retries,
    extract_program, resolve, unpack,
};
use serde::{Deserialize, Serialize};

use crate::cache::{self, Partial, not_writable};
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

/// The registry is asked this often for the few kilobytes that say what there is: a run without network must not wait long.
const TRIES: u32 = 2;
const FIRST_WAIT: Duration = Duration::from_millis(300);

/// An image that can be downloaded: its origin and its size come before any download.
#[derive(Debug)]
pub struct Offer {
    program: Program,
    /// The name of the build in the cache.
    name: String,
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
    let lock_entry = lock::entry("image", &reference.to_string());
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
        name: match registries.image {
            Some(_) => kept_image(program),
            None => directory_name(program, version),
        },
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
            name,
            path,
            lock_entry,
            options,
            resolved,
        } = self;
        let image = resolved
            .download(&options, &mut |at| progress(at.done_bytes, at.total_bytes))
            .map_err(pull_failed(program))?;
        lock::verify_or_record(&lock_entry, &image.digest.to_string())?;
        let cache = cache::writable()?;
        let partial = Partial::create(&cache)?;
        let root = partial.0.join("root");
        fs::create_dir_all(&root).map_err(not_writable(&root))?;
        unpack(&image.layers, &root, &Limits::default()).map_err(ProgramError::NotUnpackedImage)?;
        let files = extract_program(&root, Path::new(path), &partial.0.join("program"))
            .map_err(ProgramError::NotInImage)?;
        let target = cache.join(&name);
        let record = Record {
            reference: image.reference.to_string(),
            digest: image.digest.to_string(),
            files: relative(&files, &partial.0.join("program")),
        };
        keep(&record, &partial.0.join("program"), &target).map_err(not_writable(&target))?;
        from_directory(program, &target)?.ok_or(ProgramError::Missing(program))
    }
}

/// The file in a program's directory that describes it.
const RECORD: &str = "image.json";

/// A program that was taken out of an image: its paths are relative to its directory.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    reference: String,
    digest: String,
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

/// Puts the directory in its place. Of two processes that do this at once, one finds the other's.
fn keep(record: &Record, directory: &Path, target: &Path) -> io::Result<()> {
    let text = serde_json::to_string_pretty(record).map_err(io::Error::other)?;
    fs::write(directory.join(RECORD), text)?;
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    match fs::rename(directory, target) {
        Err(_) if target.join(RECORD).is_file() => Ok(()),
        renamed => renamed,
    }
}

fn directory_name(program: Program, version: &str) -> String {
    format!(
        "{}-{version}-{}.image",
        program.name(),
        std::env::consts::ARCH
    )
}

/// The name of the directory of an image that the user named.
fn kept_image(program: Program) -> String {
    format!("{}.image", cache::kept_name(program))
}

/// A program that was taken out of an image before: the one that the user named, or this version of the official one.
pub(crate) fn find(
    program: Program,
    version: Option<&str>,
) -> Result<Option<Binary>, ProgramError> {
    let (Some(cache), Some(official)) = (cache::directory(), Official::of(program)) else {
        return Ok(None);
    };
    let official_name = directory_name(program, version.unwrap_or(official.default_version));
    if version.is_none()
        && let Some(own) = from_directory(program, &cache.join(kept_image(program)))?
    {
        return Ok(Some(own));
    }
    from_directory(program, &cache.join(official_name))
}

fn from_directory(program: Program, directory: &Path) -> Result<Option<Binary>, ProgramError> {
    let Ok(text) = fs::read(directory.join(RECORD)) else {
        return Ok(None);
    };
    let damaged = |source: serde_json::Error| ProgramError::Unusable {
        program,
        path: directory.to_owned(),
        source: io::Error::from(source).into(),
    };
    let record: Record = serde_json::from_slice(&text).map_err(damaged)?;
    let file = File {
        path: directory.join(&record.files.program),
        loader: record.files.loader.map(|loader| Loader {
            path: directory.join(loader),
            libraries: directory.join(&record.files.libraries),
        }),
    };
    let path = file.path.clone();
    inspect(program, file, Origin::Image(record.reference))
        .map(Some)
        .map_err(|source| ProgramError::Unusable {
            program,
            path,
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

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
