//! Pulling: what a reference stands for, and its blobs into the cache.

use std::io::{self, Read as _};
use std::path::PathBuf;
use std::{fs, thread};

use http::Response;
use http::header::CONTENT_RANGE;
use ureq::Body;

use crate::cache::{Cache, Partial, failed};
use crate::digest::Digest;
use crate::error::PullError;
use crate::exchange::Endpoint;
use crate::image::{ImageConfig, Layer};
use crate::manifest::{
    Descriptor, Document, DocumentError, Manifest, Platform, parse_config, runs_on, select,
};
use crate::options::PullOptions;
use crate::reference::Reference;
use crate::registry::Session;

/// Requests for one blob at most, with and without progress. A connection that is cut after each megabyte needs a tenth.
const REQUESTS: u32 = 1000;

/// How far a download is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Bytes that are in the cache. Fewer than before, if a registry does not continue a download.
    pub done_bytes: u64,
    /// Bytes of the whole image, compressed.
    pub total_bytes: u64,
    /// What is downloaded, for the user to read.
    pub what: &'a str,
}

/// What a reference stands for, before its layers are downloaded.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference as given.
    pub reference: Reference,
    /// The digest of what the reference stands for: an index, or a manifest. This is what a lock file records.
    pub digest: Digest,
    /// The digest of the manifest for the platform.
    pub manifest_digest: Digest,
    /// The platform that was asked for.
    pub platform: Platform,
    /// How its program is started.
    pub config: ImageConfig,
    /// Bytes of the configuration and the layers, compressed.
    pub size_bytes: u64,
    /// How many of them are not in the cache.
    pub missing_bytes: u64,
    config_bytes: u64,
    layers: Vec<Descriptor>,
}

/// An image in the cache.
#[derive(Debug, Clone)]
pub struct Image {
    /// The reference as given.
    pub reference: Reference,
    /// The digest of what the reference stands for: an index, or a manifest. This is what a lock file records.
    pub digest: Digest,
    /// The digest of the manifest for the platform.
    pub manifest_digest: Digest,
    /// Bytes of the configuration and the layers, compressed.
    pub size_bytes: u64,
    /// How its program is started.
    pub config: ImageConfig,
    /// The layers, the lowest first.
    pub layers: Vec<Layer>,
}

/// Asks a registry what a reference stands for. Downloads the manifest and the configuration, a few kilobytes.
///
/// # Errors
/// If the registry cannot be asked, has no such image, or not for the platform; if the digest is not the expected one;
/// if the image exceeds a limit.
pub fn resolve(reference: &Reference, options: &PullOptions) -> Result<Resolved, PullError> {
    let session = Session::new(reference, options)?;
    let cache = Cache::open(&options.cache_directory)?;
    let (session, cache) = (&session, &cache);
    Resolver { session, cache }.resolve(reference)
}

/// Downloads an image into the cache. What is there already, whole or in part, is not downloaded again.
///
/// # Errors
/// As [`resolve`], and if a layer cannot be downloaded or is not what its digest says.
pub fn pull(
    reference: &Reference,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Image, PullError> {
    let session = Session::new(reference, options)?;
    let cache = Cache::open(&options.cache_directory)?;
    let (session, cache) = (&session, &cache);
    let resolved = Resolver { session, cache }.resolve(reference)?;
    resolved.download_with(session, cache, progress)
}

impl Resolved {
    /// Downloads the layers that are not in the cache.
    ///
    /// # Errors
    /// If a layer cannot be downloaded or is not what its digest says; if the cache cannot be written.
    pub fn download(
        self,
        options: &PullOptions,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Image, PullError> {
        let reference = self.reference.clone();
        let session = Session::new(&reference, options)?;
        let cache = Cache::open(&options.cache_directory)?;
        self.download_with(&session, &cache, progress)
    }

    /// Downloads with the connections and tokens that are there.
    fn download_with(
        self,
        session: &Session<'_>,
        cache: &Cache,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Image, PullError> {
        let mut before_bytes = self.config_bytes;
        let mut layers = Vec::with_capacity(self.layers.len());
        for descriptor in &self.layers {
            let download = Download {
                session,
                cache,
                descriptor,
                what: format!("layer {}", descriptor.digest).into(),
            };
            let path = download.run(&mut |done| {
                progress(Progress {
                    done_bytes: before_bytes + done,
                    total_bytes: self.size_bytes,
                    what: &session.image,
                });
            })?;
            before_bytes += descriptor.size;
            layers.push(Layer {
                digest: descriptor.digest,
                size_bytes: descriptor.size,
                media_type: descriptor.media_type.clone(),
                path,
            });
        }
        Ok(Image {
            reference: self.reference,
            digest: self.digest,
            manifest_digest: self.manifest_digest,
            size_bytes: self.size_bytes,
            config: self.config,
            layers,
        })
    }
}

struct Resolver<'a> {
    session: &'a Session<'a>,
    cache: &'a Cache,
}

impl Resolver<'_> {
    fn resolve(&self, reference: &Reference) -> Result<Resolved, PullError> {
        let options = self.session.options;
        let wanted = &options.platform;
        let version = self.session.version();
        let unchanged = |found| self.unchanged(found);
        let (digest, document) = self.document(&version, reference.digest(), &unchanged)?;
        let (manifest_digest, manifest) = match document {
            Document::Manifest(manifest) => (digest, manifest),
            Document::Index(manifests) => self.selected(&manifests)?,
        };
        self.check(&manifest)?;
        let (config, platform) = self.config(&manifest.config)?;
        if !runs_on(&platform, wanted) {
            return Err(self.no_platform(vec![platform]));
        }
        let sizes = |all: &[Descriptor]| all.iter().map(|layer| layer.size).sum::<u64>();
        let is_missing = |layer: &&Descriptor| !self.cache.has(&layer.digest, layer.size);
        let missing = manifest.layers.iter().filter(is_missing);
        Ok(Resolved {
            reference: reference.clone(),
            digest,
            manifest_digest,
            platform: wanted.clone(),
            config,
            size_bytes: manifest.config.size + sizes(&manifest.layers),
            missing_bytes: missing.map(|layer| layer.size).sum(),
            config_bytes: manifest.config.size,
            layers: manifest.layers,
        })
    }

    /// Compares what the reference stands for with what it stood for when it was used first.
    fn unchanged(&self, found: Digest) -> Result<(), PullError> {
        let expected = self.session.options.expected;
        match expected.filter(|expected| *expected != found) {
            None => Ok(()),
            Some(expected) => Err(PullError::Changed {
                image: self.session.image.clone(),
                expected,
                found,
            }),
        }
    }

    /// The manifest for the platform in an index.
    fn selected(&self, manifests: &[Descriptor]) -> Result<(Digest, Manifest), PullError> {
        let Some(selected) = select(manifests, &self.session.options.platform) else {
            let known = |platform: &Platform| platform.os != "unknown";
            let platforms = manifests.iter().filter_map(|m| m.platform.clone());
            return Err(self.no_platform(platforms.filter(known).collect()));
        };
        let digest = selected.digest;
        match self.document(&digest.to_string(), Some(digest), &|_| Ok(()))? {
            (_, Document::Manifest(manifest)) => Ok((digest, manifest)),
            (_, Document::Index(_)) => Err(self.malformed(
                "the manifest",
                DocumentError::Unknown {
                    media_type: "an index within an index".to_owned(),
                },
            )),
        }
    }

    fn no_platform(&self, available: Vec<Platform>) -> PullError {
        PullError::NoPlatform {
            image: self.session.image.clone(),
            wanted: self.session.options.platform.clone(),
            available,
        }
    }

    fn malformed(&self, what: &str, source: DocumentError) -> PullError {
        let registry = self.session.endpoints.last();
        PullError::Malformed {
            image: self.session.image.clone(),
            registry: registry.map_or_else(Box::default, |endpoint| endpoint.name.clone()),
            what: what.into(),
            source,
        }
    }

    /// Reads a manifest or index, from the cache if its digest is known. `accept` judges the digest.
    fn document(
        &self,
        version: &str,
        expected: Option<Digest>,
        accept: &dyn Fn(Digest) -> Result<(), PullError>,
    ) -> Result<(Digest, Document), PullError> {
        let cached = expected.and_then(|digest| self.cache.read(&digest));
        let bytes = match cached {
            Some(bytes) => bytes,
            None => self.fetch_document(version, expected, accept)?,
        };
        let digest = Digest::of(&bytes);
        accept(digest)?;
        let document = Document::parse(&bytes);
        let document = document.map_err(|source| self.malformed("the manifest", source))?;
        Ok((digest, document))
    }

    /// Asks one endpoint after the other, until one has what is accepted: a mirror may know an older tag.
    fn fetch_document(
        &self,
        version: &str,
        expected: Option<Digest>,
        accept: &dyn Fn(Digest) -> Result<(), PullError>,
    ) -> Result<Vec<u8>, PullError> {
        let bytes = self.session.at_any_endpoint(&mut |endpoint| {
            let bytes = self.session.manifest(endpoint, version)?;
            let found = Digest::of(&bytes);
            match expected.filter(|expected| *expected != found) {
                None => accept(found).map(|()| bytes),
                Some(expected) => Err(PullError::WrongDigest {
                    image: self.session.image.clone(),
                    registry: endpoint.name.clone(),
                    what: "the manifest".into(),
                    expected,
                    found,
                }),
            }
        })?;
        self.cache.write(&Digest::of(&bytes), &bytes)?;
        Ok(bytes)
    }

    /// Compares what a manifest announces with the limits, before anything is downloaded.
    fn check(&self, manifest: &Manifest) -> Result<(), PullError> {
        let limits = &self.session.options.limits;
        let check = |what: &str, size: u64, limit: u64| {
            if size <= limit {
                return Ok(());
            }
            Err(PullError::TooLarge {
                image: self.session.image.clone(),
                what: what.into(),
                size,
                limit,
            })
        };
        let layers = manifest.layers.len() as u64;
        check("the number of layers", layers, limits.layers as u64)?;
        check(
            "the configuration",
            manifest.config.size,
            limits.manifest_bytes,
        )?;
        let mut total_bytes = manifest.config.size;
        for layer in &manifest.layers {
            check("a layer", layer.size, limits.layer_bytes)?;
            total_bytes = total_bytes.saturating_add(layer.size);
        }
        check("the sum of all layers", total_bytes, limits.image_bytes)
    }

    fn config(&self, descriptor: &Descriptor) -> Result<(ImageConfig, Platform), PullError> {
        let what = "the configuration";
        let download = Download {
            session: self.session,
            cache: self.cache,
            descriptor,
            what: what.into(),
        };
        let path = download.run(&mut |_| {})?;
        let bytes = fs::read(&path).map_err(failed(&path))?;
        parse_config(&bytes).map_err(|e| self.malformed(what, e.into()))
    }
}

/// One blob.
struct Download<'a> {
    session: &'a Session<'a>,
    cache: &'a Cache,
    descriptor: &'a Descriptor,
    what: Box<str>,
}

impl Download<'_> {
    /// Downloads the blob, unless it is in the cache. `report` is called with the bytes that are there.
    fn run(&self, report: &mut dyn FnMut(u64)) -> Result<PathBuf, PullError> {
        let (digest, size) = (&self.descriptor.digest, self.descriptor.size);
        if let Some(path) = self.cache.verified(digest) {
            report(size);
            return Ok(path);
        }
        let mut partial = self.cache.lock(digest, &mut || report(0))?;
        // Another process may have downloaded it while this one waited.
        if let Some(path) = self.cache.verified(digest) {
            partial.discard()?;
            report(size);
            return Ok(path);
        }
        if partial.length() > size {
            partial.restart()?;
        }
        let downloaded = self
            .session
            .at_any_endpoint(&mut |endpoint| self.fill(endpoint, &mut partial, report));
        match downloaded {
            Ok(()) => partial.keep(&self.cache.path(digest)),
            Err(error) => {
                if partial.length() == 0 {
                    partial.discard()?;
                }
                Err(error)
            }
        }
    }

    /// Fills the partial file, and verifies it. Wrong content is removed.
    fn fill(
        &self,
        endpoint: &Endpoint,
        partial: &mut Partial,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), PullError> {
        let expected = self.descriptor.digest;
        let mut is_continued = partial.length() > 0;
        loop {
            self.transfer(endpoint, partial, report)?;
            let found = partial.digest();
            if found == expected {
                return Ok(());
            }
            partial.restart()?;
            // The first part is of an earlier run or another endpoint, which may be the one that was wrong.
            if !is_continued {
                return Err(PullError::WrongDigest {
                    image: self.session.image.clone(),
                    registry: endpoint.name.clone(),
                    what: self.what.clone(),
                    expected,
                    found,
                });
            }
            is_continued = false;
        }
    }

    /// Downloads what is missing, in as many requests as it takes. Only tries without progress are counted.
    fn transfer(
        &self,
        endpoint: &Endpoint,
        partial: &mut Partial,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), PullError> {
        let retries = &self.session.options.retries;
        let size = self.descriptor.size;
        let (mut failures, mut best) = (0, partial.length());
        let (mut has_ranges, mut requests) = (true, 0);
        while partial.length() < size {
            if !has_ranges {
                partial.restart()?;
            }
            let source = match self.request(endpoint, partial, report)? {
                Ended::Whole => continue,
                Ended::NoRange => {
                    has_ranges = false;
                    io::Error::other("it does not continue downloads")
                }
                Ended::Cut(source) => source,
            };
            // A registry that starts over each time makes no progress by sending the same bytes again.
            if partial.length() > best {
                (best, failures) = (partial.length(), 0);
            }
            failures += 1;
            requests += 1;
            if failures >= retries.tries || requests >= REQUESTS {
                return Err(self.cut(endpoint, partial.length(), source));
            }
            thread::sleep(retries.wait_after(failures));
        }
        Ok(())
    }

    fn cut(&self, endpoint: &Endpoint, received_bytes: u64, source: io::Error) -> PullError {
        PullError::Cut {
            image: self.session.image.clone(),
            registry: endpoint.name.clone(),
            what: self.what.clone(),
            received_bytes,
            size_bytes: self.descriptor.size,
            source,
        }
    }

    /// Sends one request, and stores what arrives.
    fn request(
        &self,
        endpoint: &Endpoint,
        partial: &mut Partial,
        report: &mut dyn FnMut(u64),
    ) -> Result<Ended, PullError> {
        let (digest, size) = (&self.descriptor.digest, self.descriptor.size);
        let from = partial.length();
        let response = self.session.blob(endpoint, digest, from, size - 1)?;
        match response.status().as_u16() {
            206 if !continues_at(&response, from) => return Ok(Ended::NoRange),
            416 => return Ok(Ended::NoRange),
            206 => {}
            _ if from > 0 => partial.restart()?,
            _ => {}
        }
        let mut body = response.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = match body.read(&mut buffer) {
                Ok(0) if partial.length() == size => return Ok(Ended::Whole),
                Ok(0) => return Ok(Ended::Cut(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => length,
                Err(e) => return Ok(Ended::Cut(e)),
            };
            if partial.length() + length as u64 > size {
                partial.restart()?;
                return Err(PullError::WrongSize {
                    image: self.session.image.clone(),
                    registry: endpoint.name.clone(),
                    what: self.what.clone(),
                    size_bytes: size,
                });
            }
            partial.append(&buffer[..length])?;
            report(partial.length());
        }
    }
}

/// How a response ended.
enum Ended {
    Whole,
    /// Before its end.
    Cut(io::Error),
    /// The registry does not send a part of a blob.
    NoRange,
}

/// Whether a partial response starts at this byte (RFC 9110, section 14.4).
fn continues_at(response: &Response<Body>, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE);
    let range = range.and_then(|value| value.to_str().ok()?.strip_prefix("bytes "));
    let first = range.and_then(|range| range.split_once('-')?.0.trim().parse().ok());
    first == Some(from)
}
