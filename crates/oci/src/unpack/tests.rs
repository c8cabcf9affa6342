//! Layers that behave, and layers that do not.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use proptest::prelude::*;
use tar::{EntryType, Header};
use tempfile::TempDir;

use super::*;
use crate::digest::Digest;

/// A directory with a file beside the root of the image, which must stay as it is.
struct SafeRoot {
    outer: TempDir,
    root: PathBuf,
}

const SENTINEL: &[u8] = b"not of the image";

impl SafeRoot {
    fn new() -> Self {
        let outer = TempDir::new().unwrap();
        fs::write(outer.path().join("sentinel"), SENTINEL).unwrap();
        let root = outer.path().join("root");
        Self { outer, root }
    }

    fn unpack(&self, layers: &[Vec<u8>]) -> Result<(), UnpackError> {
        self.unpack_within(layers, &Limits::default())
    }

    fn unpack_within(&self, layers: &[Vec<u8>], limits: &Limits) -> Result<(), UnpackError> {
        let mut unpacker = Unpacker::new(&self.root, limits)?;
        let mut layers = layers.iter().enumerate();
        let result = layers.try_for_each(|(n, layer)| {
            unpacker.add_layer(&format!("layer {n}"), layer.len() as u64, &layer[..])
        });
        self.assert_nothing_escaped();
        result
    }

    fn fault(&self, layers: &[Vec<u8>]) -> LayerFault {
        match self.unpack(layers).unwrap_err() {
            UnpackError::Layer { fault, .. } => fault,
            other => panic!("{other}"),
        }
    }

    fn assert_nothing_escaped(&self) {
        let names = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut found: Vec<_> = fs::read_dir(&self.outer).unwrap().map(names).collect();
        found.sort();
        assert_eq!(found, ["root", "sentinel"]);
        let sentinel = self.outer.path().join("sentinel");
        assert_eq!(fs::read(&sentinel).unwrap(), SENTINEL);
        assert_eq!(fs::metadata(sentinel).unwrap().nlink(), 1);
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).symlink_metadata().is_ok()
    }
}

/// An entry, written as it is: the `tar` crate would refuse the hostile ones.
fn entry(kind: EntryType, name: &str, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o4755);
    header.set_size(content.len() as u64);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_cksum();
    let mut bytes = [header.as_bytes().as_slice(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(EntryType::Regular, name, "", content.as_bytes())
}

fn directory(name: &str) -> Vec<u8> {
    entry(EntryType::Directory, name, "", b"")
}

fn link_to(name: &str, target: &str) -> Vec<u8> {
    entry(EntryType::Symlink, name, target, b"")
}

fn hard_link(name: &str, target: &str) -> Vec<u8> {
    entry(EntryType::Link, name, target, b"")
}

fn layer(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn layers_of_every_compression_are_applied_in_order() {
    let place = SafeRoot::new();
    let first = layer(&[directory("etc"), file("etc/a", "1"), file("./b", "1")]);
    let second = gzip(&layer(&[file("etc/a", "2"), link_to("c", "etc/a")]));
    let third = layer(&[file("d/e/f", "3"), hard_link("g", "etc/a")]);
    let third = zstd::encode_all(&third[..], 3).unwrap();
    place.unpack(&[first, second, third]).unwrap();
    assert_eq!(place.read("etc/a"), "2");
    assert_eq!(place.read("b"), "1");
    assert_eq!(place.read("c"), "2");
    assert_eq!(place.read("d/e/f"), "3");
    assert_eq!(place.read("g"), "2");
}

#[test]
fn setuid_bits_are_dropped() {
    let place = SafeRoot::new();
    place.unpack(&[layer(&[file("su", "")])]).unwrap();
    let mode = place
        .root
        .join("su")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7000, 0, "{mode:o}");
    assert_eq!(mode & 0o700, 0o700, "{mode:o}");
}

#[test]
fn whiteouts_hide_lower_layers_and_not_their_own() {
    let place = SafeRoot::new();
    let lower = layer(&[
        file("a/old", ""),
        file("b/old", ""),
        file("c", ""),
        file("d/x/y", ""),
    ]);
    let upper = layer(&[
        file("a/new", ""),
        file("a/.wh..wh..opq", ""),
        file("b/.wh.old", ""),
        file("c", "new"),
        file(".wh.c", ""),
        file("d/x/z", ""),
        file("d/.wh.x", ""),
        file("nowhere/.wh.x", ""),
        file("b/.wh..wh.plnk", ""),
    ]);
    place.unpack(&[lower, upper]).unwrap();
    assert!(place.exists("a/new") && !place.exists("a/old"));
    assert!(place.exists("b") && !place.exists("b/old"));
    assert_eq!(place.read("c"), "new");
    assert!(place.exists("d/x/z") && !place.exists("d/x/y"));
    assert!(!place.exists("nowhere") && !place.exists("b/.wh..wh.plnk"));
}

#[test]
fn opaque_root_hides_everything_below() {
    let place = SafeRoot::new();
    let lower = layer(&[file("a/b", ""), file("c", "")]);
    place
        .unpack(&[lower, layer(&[file(".wh..wh..opq", ""), file("d", "")])])
        .unwrap();
    assert!(place.exists("d") && !place.exists("a") && !place.exists("c"));
}

#[test]
fn path_with_dots_is_rejected() {
    for name in ["../evil", "a/../../evil", "..", "/../evil", "a/.."] {
        let fault = SafeRoot::new().fault(&[layer(&[file(name, "")])]);
        assert!(
            matches!(fault, LayerFault::PathEscapes { .. }),
            "{name}: {fault}"
        );
    }
}

#[test]
fn absolute_path_stays_within_the_root() {
    let place = SafeRoot::new();
    place
        .unpack(&[layer(&[file("/etc/passwd", "image's")])])
        .unwrap();
    assert_eq!(place.read("etc/passwd"), "image's");
}

#[test]
fn escaping_symlink_is_rejected() {
    for (name, target) in [
        ("a", "../sentinel"),
        ("a/b", "../../sentinel"),
        ("a", "b/../../c"),
    ] {
        let fault = SafeRoot::new().fault(&[layer(&[link_to(name, target)])]);
        assert!(
            matches!(fault, LayerFault::SymlinkEscapes { .. }),
            "{fault}"
        );
    }
}

#[test]
fn absolute_symlink_is_kept_and_starts_at_the_image_root() {
    let place = SafeRoot::new();
    let outside = place.outer.path().display().to_string();
    let entries = [
        directory("real"),
        link_to("lib", "/real"),
        file("lib/inside", "1"),
        link_to("out", &outside),
    ];
    place.unpack(&[layer(&entries)]).unwrap();
    assert_eq!(place.read("real/inside"), "1");
    let target = fs::read_link(place.root.join("out")).unwrap();
    assert_eq!(target, place.outer.path());
    // Through the link, the host's file is not reached: the image has none there.
    let through = layer(&[link_to("out", &outside), file("out/sentinel", "2")]);
    let fault = SafeRoot::new().fault(&[through]);
    assert!(matches!(fault, LayerFault::NotADirectory { .. }), "{fault}");
}

#[test]
fn file_replaces_a_symlink_and_is_not_written_through_it() {
    let place = SafeRoot::new();
    let outside = place.outer.path().join("sentinel").display().to_string();
    place
        .unpack(&[layer(&[link_to("a", &outside), file("a", "own")])])
        .unwrap();
    assert_eq!(place.read("a"), "own");
}

#[test]
fn escaping_hard_link_is_rejected() {
    let place = SafeRoot::new();
    let outside = place.outer.path().join("sentinel").display().to_string();
    let fault = place.fault(&[layer(&[hard_link("a", "../sentinel")])]);
    assert!(
        matches!(fault, LayerFault::HardLinkEscapes { .. }),
        "{fault}"
    );
    // An absolute target is one in the image, where there is none.
    let fault = SafeRoot::new().fault(&[layer(&[hard_link("a", &outside)])]);
    assert!(
        matches!(fault, LayerFault::HardLinkDangles { .. }),
        "{fault}"
    );
    // A link to a link is a link: its target is not followed.
    let place = SafeRoot::new();
    let entries = [
        link_to("a", &outside),
        hard_link("b", "a"),
        file("b", "own"),
    ];
    place.unpack(&[layer(&entries)]).unwrap();
    assert_eq!(place.read("b"), "own");
}

#[test]
fn hard_link_to_itself_keeps_the_file() {
    let place = SafeRoot::new();
    place
        .unpack(&[layer(&[file("a", "1"), hard_link("a", "a")])])
        .unwrap();
    assert_eq!(place.read("a"), "1");
}

#[test]
fn whiteout_attack_is_rejected() {
    for name in [".wh...", "a/.wh..", ".wh."] {
        let fault = SafeRoot::new().fault(&[layer(&[directory("a"), file(name, "")])]);
        assert!(
            matches!(fault, LayerFault::InvalidWhiteout { .. }),
            "{name}: {fault}"
        );
    }
    // Through a link, a whiteout hides what the image has there, and nothing else.
    let place = SafeRoot::new();
    let outside = place.outer.path().display().to_string();
    let lower = layer(&[link_to("out", &outside)]);
    let upper = layer(&[file("out/.wh.sentinel", ""), file("out/.wh..wh..opq", "")]);
    place.unpack(&[lower, upper]).unwrap();
}

#[test]
fn device_files_are_rejected() {
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        let fault = SafeRoot::new().fault(&[layer(&[entry(kind, "dev/x", "", b"")])]);
        assert!(matches!(fault, LayerFault::SpecialFile { .. }), "{fault}");
    }
    let fault = SafeRoot::new().fault(&[layer(&[entry(EntryType::GNUSparse, "x", "", b"")])]);
    assert!(matches!(fault, LayerFault::UnknownEntry { .. }), "{fault}");
}

#[test]
fn decompression_bomb_is_rejected() {
    let zeros = vec![0; 80 << 20];
    let bomb = layer(&[entry(EntryType::Regular, "zeros", "", &zeros)]);
    for bomb in [gzip(&bomb), zstd::encode_all(&bomb[..], 3).unwrap()] {
        let fault = SafeRoot::new().fault(&[bomb]);
        assert!(matches!(fault, LayerFault::Bomb { .. }), "{fault}");
    }
    // One that hides behind the archive's end.
    let hidden = gzip(&[layer(&[]), zeros].concat());
    let fault = SafeRoot::new().fault(&[hidden]);
    assert!(matches!(fault, LayerFault::Bomb { .. }), "{fault}");
}

#[test]
fn limits_of_an_image_hold_across_layers() {
    let limits = Limits {
        unpacked_bytes: 10_000,
        entries: 3,
        path_bytes: 20,
        ..Limits::default()
    };
    let fault = |layers: &[Vec<u8>]| match SafeRoot::new().unpack_within(layers, &limits) {
        Err(UnpackError::Layer { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    let big = layer(&[entry(EntryType::Regular, "a", "", &[1; 6000])]);
    let found = fault(&[big.clone(), big]);
    assert!(
        matches!(
            found,
            LayerFault::TooLarge {
                limit_bytes: 10_000
            }
        ),
        "{found}"
    );
    let two = layer(&[file("a", ""), file("b", "")]);
    let found = fault(&[two.clone(), two]);
    assert!(
        matches!(found, LayerFault::TooManyEntries { limit: 3 }),
        "{found}"
    );
    let found = fault(&[layer(&[file(&"x".repeat(21), "")])]);
    assert!(
        matches!(
            found,
            LayerFault::PathTooLong {
                bytes: 21,
                limit: 20
            }
        ),
        "{found}"
    );
}

/// An entry whose path is longer than a header has room for.
fn long(kind: EntryType, name: &str) -> Vec<u8> {
    let extension = entry(EntryType::GNULongName, "x", "", name.as_bytes());
    [extension, entry(kind, "short", "", b"")].concat()
}

#[test]
fn path_deeper_than_the_limit_is_rejected_and_creates_nothing() {
    let deep = |components: usize| vec!["a"; components].join("/");
    for (kind, path) in [
        (EntryType::Regular, deep(101)),
        (EntryType::Directory, deep(2000)),
        (EntryType::Regular, deep(100) + "/.wh.b"),
        (EntryType::Symlink, "./".to_owned() + &deep(101)),
    ] {
        let place = SafeRoot::new();
        let fault = place.fault(&[layer(&[long(kind, &path)])]);
        let is_own = matches!(fault, LayerFault::TooDeep { limit: 100, .. });
        assert!(is_own && fault.to_string().len() < 200, "{fault}");
        assert!(!place.exists("a"), "{path}");
    }
    let place = SafeRoot::new();
    let deepest = layer(&[long(EntryType::Directory, &deep(100))]);
    place.unpack(&[deepest]).unwrap();
    assert!(place.exists(&deep(100)));
}

#[test]
fn link_does_not_lead_deeper_than_the_limit() {
    let (half, place) = (vec!["a"; 49].join("/"), SafeRoot::new());
    let entries = [
        directory(&half),
        link_to("b", &half),
        directory(&format!("b/{half}")),
        link_to("c", &format!("b/{half}")),
        file("c/a/b", ""),
        directory("c/a/a/a"),
    ];
    let fault = place.fault(&[layer(&entries)]);
    assert!(matches!(fault, LayerFault::TooDeep { .. }), "{fault}");
    assert!(place.exists("c/a/b") && !place.exists("c/a/a"));
}

#[test]
fn directories_that_only_paths_name_count_as_entries() {
    let limits = Limits {
        entries: 12,
        ..Limits::default()
    };
    let too_many = |place: &SafeRoot, layers: &[Vec<u8>]| {
        let error = place.unpack_within(layers, &limits).unwrap_err();
        let fault = match error {
            UnpackError::Layer { fault, .. } => fault,
            other => panic!("{other}"),
        };
        let is_expected = matches!(fault, LayerFault::TooManyEntries { limit: 12 });
        assert!(is_expected, "{fault}");
    };
    let place = SafeRoot::new();
    too_many(
        &place,
        &[layer(&[file("1/a/a/a/a/b", ""), file("2/a/a/a/a/a/b", "")])],
    );
    assert!(place.exists("1/a/a/a/a/b") && !place.exists("2"));
    // Nothing is created, but each name for the same directories takes memory.
    let through = |link: &str| [link_to(link, "1"), file(&format!("{link}/a/a/b"), "")];
    let lower = layer(&[file("1/a/a/b", "")]);
    let upper = layer(&[through("2"), through("3"), through("4")].concat());
    too_many(&SafeRoot::new(), &[lower.clone(), upper]);
    // The same names count once in a layer.
    let again = layer(&[file("1/a/a/c", ""), file("1/a/a/d", "")]);
    SafeRoot::new()
        .unpack_within(&[lower, again], &limits)
        .unwrap();
}

#[test]
fn extended_headers_name_the_entry_after_them() {
    let place = SafeRoot::new();
    let long = format!("{}/name", "directory".repeat(20));
    let pax = format!(" path={long}\n");
    let pax = format!("{}{pax}", pax.len() + 3);
    let entries = [
        entry(EntryType::XHeader, "x", "", pax.as_bytes()),
        file("short", "1"),
        entry(EntryType::GNULongName, "x", "", b"gnu\0"),
        file("other", "2"),
        entry(EntryType::XGlobalHeader, "x", "", b""),
    ];
    place.unpack(&[layer(&entries)]).unwrap();
    assert_eq!(place.read(&long), "1");
    assert_eq!(place.read("gnu"), "2");
    assert!(!place.exists("short") && !place.exists("other"));
}

#[test]
fn extended_headers_are_bounded_and_do_not_change_sizes() {
    let long = entry(EntryType::GNULongName, "x", "", &vec![b'a'; 2 << 20]);
    let fault = SafeRoot::new().fault(&[gzip(&layer(&[long]))]);
    assert!(matches!(fault, LayerFault::PathTooLong { .. }), "{fault}");
    let size = entry(EntryType::XHeader, "x", "", b"9 size=1\n");
    let fault = SafeRoot::new().fault(&[layer(&[size, file("a", "")])]);
    assert!(matches!(fault, LayerFault::Damaged(_)), "{fault}");
    let sparse = entry(EntryType::XHeader, "x", "", b"22 GNU.sparse.major=1\n");
    let fault = SafeRoot::new().fault(&[layer(&[sparse, file("a", "")])]);
    assert!(fault.to_string().contains("sparse"), "{fault}");
    let escapes = entry(EntryType::XHeader, "x", "", b"11 path=..\n");
    let fault = SafeRoot::new().fault(&[layer(&[escapes, file("a", "")])]);
    assert!(matches!(fault, LayerFault::PathEscapes { .. }), "{fault}");
}

#[test]
fn truncated_layer_is_damaged() {
    let whole = layer(&[entry(EntryType::Regular, "a", "", &[7; 3000])]);
    let compressed = gzip(&whole);
    for cut in [
        &whole[..700],
        &whole[..2000],
        &compressed[..compressed.len() - 3],
    ] {
        let fault = SafeRoot::new().fault(&[cut.to_vec()]);
        assert!(matches!(fault, LayerFault::Damaged(_)), "{fault}");
    }
}

#[test]
fn directory_that_is_not_empty_is_rejected() {
    let place = SafeRoot::new();
    fs::create_dir(&place.root).unwrap();
    symlink("/", place.root.join("planted")).unwrap();
    let error = place.unpack(&[]).unwrap_err();
    assert!(matches!(error, UnpackError::NotEmpty { .. }), "{error}");
}

#[test]
fn symlink_planted_while_unpacking_is_not_followed() {
    let place = SafeRoot::new();
    let mut unpacker = Unpacker::new(&place.root, &Limits::default()).unwrap();
    symlink(place.outer.path(), place.root.join("planted")).unwrap();
    let result = unpacker.add_layer("layer", 0, &layer(&[file("planted/evil", "")])[..]);
    assert!(result.is_err());
    place.assert_nothing_escaped();
}

#[test]
fn damaged_blob_is_told_from_its_digest() {
    let place = SafeRoot::new();
    let path = place.outer.path().join("sentinel");
    let layer = Layer {
        digest: Digest::of(b"other"),
        size_bytes: 5,
        media_type: "application/vnd.oci.image.layer.v1.tar".to_owned(),
        path,
    };
    let error = unpack(&[layer], &place.root, &Limits::default()).unwrap_err();
    let UnpackError::Layer { fault, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(fault, LayerFault::WrongDigest { .. }), "{fault}");
}

fn kinds() -> impl Strategy<Value = EntryType> {
    prop::sample::select(vec![
        EntryType::Regular,
        EntryType::Regular,
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Symlink,
        EntryType::Link,
    ])
}

/// Few names, so that entries meet, and those that attacks are made of.
fn paths() -> impl Strategy<Value = String> {
    let names = vec![
        "a",
        "b",
        "c",
        "..",
        ".",
        "",
        ".wh.a",
        ".wh..wh..opq",
        "sentinel",
    ];
    prop::collection::vec(prop::sample::select(names), 1..5).prop_map(|names| names.join("/"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_written_outside_the_root(
        layers in prop::collection::vec(prop::collection::vec((kinds(), paths(), paths()), 0..8), 1..3)
    ) {
        let place = SafeRoot::new();
        let layers: Vec<_> = layers.iter().map(|entries| {
            let entries = entries.iter().map(|(kind, name, target)| {
                let content: &[u8] = if *kind == EntryType::Regular { b"evil" } else { b"" };
                entry(*kind, name, target, content)
            });
            layer(&entries.collect::<Vec<_>>())
        }).collect();
        let _ = place.unpack(&layers);
    }

    #[test]
    fn any_bytes_are_unpacked_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let _ = SafeRoot::new().unpack(&[bytes]);
    }
}
