//! How a binary was built, as far as its file and its own version show it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use memchr::memmem;
use meshtax_model::catalogue::Program;
use meshtax_model::environment::Build;

/// Bytes that a match may span from one read to the next.
const OVERLAP: usize = 128;
const CHUNK: usize = 1 << 20;

/// A name, and a text that a file contains if it was built with it.
type Marker = (&'static str, &'static [u8]);

/// Each allocator's own messages.
const ALLOCATORS: &[Marker] = &[
    ("jemalloc", b"<jemalloc>"),
    ("tcmalloc", b"tcmalloc"),
    ("mimalloc", b"mimalloc:"),
];

/// AWS-LC's symbols and messages; it is a fork of BoringSSL, whose name it contains too.
const CRYPTO: &[Marker] = &[("AWS-LC", b"AWS-LC"), ("BoringSSL", b"BoringSSL")];

/// The compilers' entries in the section `.comment`, which stripping leaves, in the order in which they count: a Rust program
/// contains C, and Envoy some Rust.
fn compilers(program: Program) -> &'static [&'static [u8]] {
    match program {
        Program::Envoy | Program::IstioProxy => &[b"clang version ", b"GCC: ("],
        Program::Ztunnel | Program::LinkerdProxy | Program::LimitProxy => {
            &[b"rustc version ", b"clang version ", b"GCC: ("]
        }
    }
}

/// What `version_output`, the program's own words, and the file say. Link-time optimisation leaves no trace.
pub(crate) fn read(program: Program, path: &Path, version_output: &str) -> io::Result<Build> {
    let found = Found::in_file(path, compilers(program))?;
    let reported = Reported::by(program, version_output);
    Ok(Build {
        profile: reported.profile,
        lto: None,
        allocator: found.allocator.map(str::to_owned),
        crypto: reported.crypto.or(found.crypto.map(str::to_owned)),
        compiler: found.compiler.map(|(_, compiler)| compiler),
    })
}

/// What a program reports of its build.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reported {
    profile: Option<String>,
    crypto: Option<String>,
}

impl Reported {
    fn by(program: Program, text: &str) -> Self {
        match program {
            // `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`
            Program::Envoy | Program::IstioProxy | Program::LimitProxy => {
                let line = text.lines().find_map(|line| line.split_once("version: "));
                let mut parts = line
                    .map_or("", |(_, parts)| parts)
                    .trim()
                    .split('/')
                    .skip(3);
                Self {
                    profile: parts.next().map(str::to_lowercase),
                    crypto: parts.next().map(str::to_owned),
                }
            }
            // `BuildInfo{..., BuildProfile:"release", ..., CryptoProvider:"tls-aws-lc"}`
            Program::Ztunnel => {
                let value = |key: &str| {
                    let (_, rest) = text.split_once(&format!("{key}:\""))?;
                    Some(rest.split('"').next()?.to_owned())
                };
                Self {
                    profile: value("BuildProfile"),
                    crypto: value("CryptoProvider"),
                }
            }
            Program::LinkerdProxy => Self::default(),
        }
    }
}

/// The markers that a file contains.
#[derive(Default)]
struct Found {
    allocator: Option<&'static str>,
    crypto: Option<&'static str>,
    /// The rank among the [`compilers`], and the text.
    compiler: Option<(usize, String)>,
}

impl Found {
    fn in_file(path: &Path, compilers: &[&[u8]]) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut buffer = Vec::with_capacity(CHUNK + OVERLAP);
        let mut found = Self::default();
        loop {
            let kept = buffer.len();
            let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut buffer)?;
            found.look(&buffer, compilers);
            if read == 0 {
                return Ok(found);
            }
            // An entry may end in the next chunk, and is read whole with it.
            buffer.drain(..(kept + read).saturating_sub(OVERLAP));
        }
    }

    fn look(&mut self, bytes: &[u8], compilers: &[&[u8]]) {
        first(&mut self.allocator, ALLOCATORS, bytes);
        first(&mut self.crypto, CRYPTO, bytes);
        for (rank, marker) in compilers.iter().enumerate() {
            let is_better = self.compiler.as_ref().is_none_or(|(known, text)| {
                // Cut off at the end of a chunk, it is read again.
                rank < *known || (rank == *known && text.len() < marker.len() + 2)
            });
            if is_better && let Some(at) = memmem::find(bytes, marker) {
                self.compiler = Some((rank, printable(&bytes[at..])));
            }
        }
    }
}

/// Finds the marker that is listed first.
fn first(found: &mut Option<&'static str>, markers: &[Marker], bytes: &[u8]) {
    let rank = |name| markers.iter().position(|(known, _)| *known == name);
    let before = found.and_then(rank).unwrap_or(markers.len());
    let better = markers[..before].iter();
    let better = better
        .clone()
        .find(|(_, text)| memmem::find(bytes, text).is_some());
    if let Some((name, _)) = better {
        *found = Some(name);
    }
}

/// The text up to the first byte that is none; without the commit in parentheses.
fn printable(bytes: &[u8]) -> String {
    let text: String = bytes
        .iter()
        .take(OVERLAP)
        .take_while(|byte| byte.is_ascii_graphic() || **byte == b' ')
        .map(|byte| char::from(*byte))
        .collect();
    let text = text.replace("version ", "");
    match text.strip_prefix("GCC: ") {
        Some(gcc) => format!("gcc {}", gcc.rsplit(' ').next().unwrap_or(gcc)),
        None => text.split(" (").next().unwrap_or(&text).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_is_read_from_what_a_program_reports() {
        let text = "envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL\n";
        let envoy = Reported::by(Program::Envoy, text);
        assert_eq!(envoy.profile.as_deref(), Some("release"));
        assert_eq!(envoy.crypto.as_deref(), Some("BoringSSL"));
        let text =
            r#"BuildInfo{RustVersion:"1.95.0", BuildProfile:"release", CryptoProvider:"tls-ring"}"#;
        let ztunnel = Reported::by(Program::Ztunnel, text);
        assert_eq!(ztunnel.profile.as_deref(), Some("release"));
        assert_eq!(ztunnel.crypto.as_deref(), Some("tls-ring"));
        assert_eq!(Reported::by(Program::Ztunnel, "hello"), Reported::default());
        assert_eq!(
            Reported::by(Program::Envoy, "version: a/b"),
            Reported::default()
        );
    }

    #[test]
    fn markers_are_found_across_chunks_and_the_first_listed_counts() {
        let directory = std::env::temp_dir().join(format!("meshtax-build-{}", std::process::id()));
        let mut bytes = vec![0_u8; CHUNK - 6];
        bytes.extend(b"rustc version 1.95.0 (abc)\0GCC: (Debian) 12.2.0\0");
        bytes.extend(vec![0_u8; CHUNK]);
        bytes.extend(b"BoringSSL\0tcmalloc\0AWS-LC\0");
        std::fs::write(&directory, &bytes).unwrap();
        let found = Found::in_file(&directory, compilers(Program::Ztunnel)).unwrap();
        std::fs::remove_file(&directory).unwrap();
        assert_eq!(found.allocator, Some("tcmalloc"));
        assert_eq!(found.crypto, Some("AWS-LC"));
        assert_eq!(found.compiler.unwrap().1, "rustc 1.95.0");
    }
}
