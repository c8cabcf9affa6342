//! Layers of images: whatever they contain, nothing outside the directory is written, and no more and no deeper than
//! the limits permit.
//!
//! Input: a byte that tells whether the rest is the bytes of one layer (plain, gzip or zstd) or a list of entries, four
//! bytes each, of two layers. The entries are made of few names, so that links, whiteouts and files meet.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use meshtax_oci::{Limits, Unpacker};

/// Small enough for a temporary directory in memory. Paths may be much longer than they may be deep, and a few of them
/// name more directories than there may be entries.
const LIMITS: Limits = Limits {
    manifest_bytes: 0,
    layers: 2,
    layer_bytes: 1 << 20,
    image_bytes: 2 << 20,
    unpacked_bytes: 4 << 20,
    expansion: 100,
    entries: 100,
    path_bytes: 4095,
    depth: 40,
};

const SENTINEL: &[u8] = b"not of the image";

/// The names that attacks are made of. `outside` stands for the directory that must not be written.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "c",
    "a",
    "b",
    "..",
    ".",
    "",
    "outside",
    "sentinel",
    ".wh.a",
    ".wh.b",
    ".wh..",
    ".wh...",
    ".wh..wh..opq",
    "root",
];

/// The types of entries: files, links, directories, special files, extended headers.
const KINDS: [u8; 16] = *b"00112225550xLKg3";

struct Place {
    outer: PathBuf,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let name = format!("meshtax-fuzz-unpack-{}", std::process::id());
        let outer = std::env::temp_dir().join(name);
        let root = outer.join("root");
        if fs::remove_dir_all(&root).is_err() {
            fs::create_dir_all(&outer).expect("a temporary directory");
        }
        fs::write(outer.join("sentinel"), SENTINEL).expect("a file");
        Self { outer, root }
    }

    fn assert_nothing_escaped(&self) {
        let mut names: Vec<_> = fs::read_dir(&self.outer)
            .expect("the directory is still there")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["root", "sentinel"]);
        let sentinel = fs::read(self.outer.join("sentinel")).expect("the file is still there");
        assert_eq!(sentinel, SENTINEL);
    }

    fn assert_limits_hold(&self) {
        let mut entries = 0;
        let mut directories = vec![(self.root.clone(), 0)];
        while let Some((directory, depth)) = directories.pop() {
            assert!(depth <= LIMITS.depth, "{}", directory.display());
            for entry in fs::read_dir(directory).expect("a directory") {
                let entry = entry.expect("an entry");
                entries += 1;
                if entry.file_type().expect("its type").is_dir() {
                    directories.push((entry.path(), depth + 1));
                }
            }
        }
        assert!(entries <= LIMITS.entries, "{entries}");
    }
}

/// A path of up to three names, by the bits of two bytes; or the same names several times, up to hundreds.
fn path(first: u8, second: u8, outside: &Path) -> Vec<u8> {
    let names = [first & 15, first >> 4, second & 15];
    let how = usize::from(second >> 4);
    let (length, times) = match how {
        0..12 => (1 + how % 3, 1),
        _ => (3, 5 << (2 * (how - 12))),
    };
    let names = names.iter().map(|name| NAMES[usize::from(*name)]);
    let names = names.take(length).collect::<Vec<_>>().repeat(times);
    let path = names.join("/");
    path.replace("outside", &outside.display().to_string())
        .into_bytes()
}

fn put(field: &mut [u8], value: &[u8]) {
    let length = value.len().min(field.len());
    field[..length].copy_from_slice(&value[..length]);
}

/// An entry in the format of POSIX (ustar), with a file's content or an extended header after it.
fn entry(bytes: &[u8; 5], outside: &Path) -> Vec<u8> {
    let [kind, name, name_and_length, target, target_and_length] = *bytes;
    let kind = KINDS[usize::from(kind & 15)];
    let path_and_target = [
        path(name, name_and_length, outside),
        path(target, target_and_length, outside),
    ];
    let content = match kind {
        b'0' => b"evil".to_vec(),
        b'L' | b'K' => path_and_target[1].clone(),
        b'x' => {
            let record = format!(" path={}\n", String::from_utf8_lossy(&path_and_target[1]));
            // The length of the record includes its own digits.
            let digits = (1..).find(|digits| (record.len() + digits).to_string().len() == *digits);
            let length = record.len() + digits.expect("a length has digits");
            format!("{length}{record}").into_bytes()
        }
        _ => Vec::new(),
    };
    let mut header = [0_u8; 512];
    put(&mut header[..100], &path_and_target[0]);
    put(&mut header[100..108], b"0004755\0");
    put(
        &mut header[124..136],
        format!("{:011o}\0", content.len()).as_bytes(),
    );
    put(&mut header[148..156], b"        ");
    header[156] = kind;
    put(&mut header[157..257], &path_and_target[1]);
    put(&mut header[257..265], b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut header[148..156], format!("{sum:06o}\0 ").as_bytes());
    let mut entry = [header.as_slice(), &content].concat();
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

fn layer(entries: &[u8], outside: &Path) -> Vec<u8> {
    let (entries, _) = entries.as_chunks::<5>();
    entries
        .iter()
        .flat_map(|bytes| entry(bytes, outside))
        .collect()
}

fuzz_target!(|data: &[u8]| {
    let [how, bytes @ ..] = data else {
        return;
    };
    let place = Place::new();
    let mut unpacker = Unpacker::new(&place.root, &LIMITS).expect("an empty directory");
    let layers = if how & 1 == 0 {
        vec![bytes.to_vec()]
    } else {
        let (lower, upper) = bytes.split_at(bytes.len() / 10 * 5);
        vec![layer(lower, &place.outer), layer(upper, &place.outer)]
    };
    for layer in layers {
        if unpacker
            .add_layer("layer", layer.len() as u64, &layer[..])
            .is_err()
        {
            break;
        }
    }
    place.assert_nothing_escaped();
    place.assert_limits_hold();
});
