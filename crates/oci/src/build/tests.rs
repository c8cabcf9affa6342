//! Images of programs of this machine, and of files.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::limits::Limits;
use crate::unpack::Unpacker;

/// A program that every machine with a shell has, linked dynamically.
const DYNAMIC: &str = "/bin/ls";

fn name() -> Reference {
    "meshtax:1.2.3".parse().unwrap()
}

fn archive(image: &BuiltImage) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.write_archive(&name(), &mut bytes).unwrap();
    bytes
}

/// The files of an archive by their paths.
fn files_of(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (path, bytes)
    });
    entries.collect()
}

fn unpacked(image: &BuiltImage) -> TempDir {
    let root = TempDir::new().unwrap();
    let mut unpacker = Unpacker::new(root.path(), &Limits::default()).unwrap();
    let layer = image.layer();
    let size = layer.len() as u64;
    unpacker.add_layer("layer", size, layer).unwrap();
    root
}

fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {why}");
}

/// A program that is linked statically and ends with 9, or `None` where none can be compiled.
fn static_program(directory: &Path) -> Option<PathBuf> {
    let source = directory.join("source.c");
    fs::write(&source, "int main(void) { return 9; }").unwrap();
    let program = directory.join("program");
    let compiled = Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    let is_compiled = compiled.is_ok_and(|output| output.status.success());
    if !is_compiled {
        skip("there is no C compiler with a static library");
    }
    is_compiled.then_some(program)
}

#[test]
fn image_is_the_same_for_the_same_files_at_other_paths_and_times() {
    let place = TempDir::new().unwrap();
    let image_of = |directory: &str| {
        let directory = place.path().join(directory);
        fs::create_dir(&directory).unwrap();
        let (program, extra) = (directory.join("program"), directory.join("extra"));
        fs::copy(DYNAMIC, &program).unwrap();
        fs::write(&extra, directory.file_name().unwrap().len().to_string()).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        File::open(&extra).unwrap().set_modified(time).unwrap();
        let builder = ImageBuilder::new(program).with_label("a", "b");
        builder.with_file("/extra", extra, 0o600).build().unwrap()
    };
    let (first, second) = (image_of("1"), image_of("2"));
    assert_eq!(first.digest, second.digest);
    assert_eq!(archive(&first), archive(&second));
    assert_ne!(first.digest, image_of("33").digest, "other content");
    let other_label = ImageBuilder::new(DYNAMIC).with_label("a", "c");
    let without = ImageBuilder::new(DYNAMIC).with_label("a", "b");
    assert_ne!(
        other_label.build().unwrap().digest,
        without.build().unwrap().digest
    );
}

#[test]
fn unpacked_image_has_the_program_with_its_loader_and_a_writable_tmp() {
    let image = ImageBuilder::new(DYNAMIC).build().unwrap();
    let root = unpacked(&image);
    let at = |path: &str| root.path().join(path);
    assert_eq!(fs::read(at("meshtax")).unwrap(), fs::read(DYNAMIC).unwrap());
    assert!(at("tmp").is_dir());
    let Linkage::Dynamic { loader, libraries } = &image.linkage else {
        panic!("{:?}", image.linkage);
    };
    assert!(*libraries > 0);
    let own = fs::read(loader).unwrap();
    let copied = at(loader.strip_prefix("/").unwrap().to_str().unwrap());
    assert_eq!(fs::read(copied).unwrap(), own);
}

/// Whether a process may change its root in a user namespace of its own.
fn can_change_root() -> bool {
    let output = Command::new("unshare")
        .args(["-r", "chroot", "/", "true"])
        .output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn dynamic_program_runs_with_nothing_but_the_image() {
    if !can_change_root() {
        skip("user namespaces are not permitted");
        return;
    }
    let root = unpacked(&ImageBuilder::new(DYNAMIC).build().unwrap());
    let output = Command::new("unshare")
        .args(["-r", "chroot"])
        .arg(root.path())
        .args([ENTRYPOINT, "/"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("meshtax\n") && listed.contains("tmp\n"));
    assert!(!listed.contains("home"), "{listed}");
}

#[test]
fn running_program_is_found_by_its_link_in_proc() {
    let image = ImageBuilder::new("/proc/self/exe").build().unwrap();
    let root = unpacked(&image);
    let own = Digest::of_file(&std::env::current_exe().unwrap()).unwrap();
    let copied = Digest::of_file(&root.path().join("meshtax")).unwrap();
    assert_eq!(copied, own);
    assert_eq!(image.platform, Platform::of_this_machine());
}

#[test]
fn static_program_is_alone_in_its_image() {
    let place = TempDir::new().unwrap();
    let Some(program) = static_program(place.path()) else {
        return;
    };
    let image = ImageBuilder::new(&program).build().unwrap();
    assert_eq!(image.linkage, Linkage::Static);
    let root = unpacked(&image);
    let entries = fs::read_dir(root.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["meshtax", "tmp"]);
}

#[test]
fn other_programs_and_files_are_at_their_paths() {
    let place = TempDir::new().unwrap();
    let notes = place.path().join("notes");
    fs::write(&notes, "text").unwrap();
    let image = ImageBuilder::new(DYNAMIC)
        .with_program("/usr/local/bin/cat", "/bin/cat")
        .with_file("/etc/notes", &notes, 0o644)
        .build()
        .unwrap();
    let root = unpacked(&image);
    let read = |path: &str| fs::read(root.path().join(path)).unwrap();
    assert_eq!(read("usr/local/bin/cat"), fs::read("/bin/cat").unwrap());
    assert_eq!(read("etc/notes"), b"text");
}

#[test]
fn layer_names_no_user_time_or_group_of_this_machine() {
    let image = ImageBuilder::new(DYNAMIC).build().unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(image.layer()));
    let mut modes = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.mtime().unwrap(), 0);
        assert_eq!(header.username().unwrap().unwrap_or_default(), "");
        let path = entry.path().unwrap().display().to_string();
        modes.insert(path, header.mode().unwrap());
    }
    assert_eq!(modes["meshtax"], 0o755);
    assert_eq!(modes["tmp/"], 0o1777);
}

#[test]
fn documents_name_their_content_by_digest() {
    let label = "org.opencontainers.image.title";
    let builder = ImageBuilder::new(DYNAMIC).with_label(label, "meshtax");
    let image = builder.build().unwrap();
    let files = files_of(&archive(&image));
    let json = |path: &str| serde_json::from_slice::<Value>(&files[path]).unwrap();
    for (path, content) in &files {
        if let Some(hex) = path.strip_prefix("blobs/sha256/").filter(|h| !h.is_empty()) {
            assert_eq!(Digest::of(content).hex(), hex);
        }
    }
    assert_eq!(json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let named = &json("index.json")["manifests"][0];
    assert_eq!(named["digest"], image.digest.to_string());
    let annotations = &named["annotations"];
    assert_eq!(annotations["org.opencontainers.image.ref.name"], "1.2.3");
    let full = "docker.io/library/meshtax:1.2.3";
    assert_eq!(annotations["io.containerd.image.name"], full);
    let docker = &json("manifest.json")[0];
    assert_eq!(docker["RepoTags"][0], full);
    let manifest = json(&documents::blob_path(&image.digest));
    let layer = &files[docker["Layers"][0].as_str().unwrap()];
    assert_eq!(
        manifest["layers"][0]["digest"],
        Digest::of(layer).to_string()
    );
    assert_eq!(manifest["layers"][0]["size"], layer.len());
    let config = json(docker["Config"].as_str().unwrap());
    let mut archive = Vec::new();
    GzDecoder::new(&layer[..])
        .read_to_end(&mut archive)
        .unwrap();
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        Digest::of(&archive).to_string()
    );
    assert_eq!(config["config"]["Entrypoint"][0], ENTRYPOINT);
    assert_eq!(config["config"]["Labels"][label], "meshtax");
    assert_eq!(config["os"], "linux");
}

#[test]
fn saved_archive_replaces_the_file_and_leaves_nothing_beside_it() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("image.tar");
    fs::write(&path, "before").unwrap();
    let image = ImageBuilder::new(DYNAMIC).build().unwrap();
    image.save(&name(), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), archive(&image));
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
    let error = image.save(&name(), &place.path().join("none/image.tar"));
    assert!(matches!(error, Err(BuildError::Write { .. })), "{error:?}");
    let pinned = name().with_digest(image.digest);
    let error = image.save(&pinned, &path);
    assert!(matches!(error, Err(BuildError::NameWithDigest { .. })));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
}

#[test]
fn scripts_directories_and_missing_programs_are_errors_with_a_fix() {
    let place = TempDir::new().unwrap();
    let script = place.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let missing = place.path().join("missing");
    let error = |builder: ImageBuilder| {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains("fix:"), "{error}");
        error
    };
    let of = |path: &Path| error(ImageBuilder::new(path));
    assert!(matches!(of(&script), BuildError::NoProgram { .. }));
    assert!(matches!(of(place.path()), BuildError::NoProgram { .. }));
    assert!(matches!(of(&missing), BuildError::NotFound { .. }));
    let with = |path: &Path| error(ImageBuilder::new(DYNAMIC).with_file("/a", path, 0o644));
    assert!(matches!(with(&missing), BuildError::Read { .. }));
    assert!(matches!(with(place.path()), BuildError::Read { .. }));
    let twice = ImageBuilder::new(DYNAMIC).with_program(ENTRYPOINT, "/bin/cat");
    assert!(matches!(error(twice), BuildError::Conflict { .. }));
}

#[test]
fn program_for_another_processor_is_rejected_beside_this_machines() {
    let place = TempDir::new().unwrap();
    let Some(program) = static_program(place.path()) else {
        return;
    };
    // `e_machine` is at byte 18 of the header.
    let changed = |machine: u16| {
        let mut bytes = fs::read(&program).unwrap();
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        let path = place.path().join(machine.to_string());
        fs::write(&path, bytes).unwrap();
        path
    };
    let foreign = if Platform::of_this_machine().architecture == "arm64" {
        EM_X86_64
    } else {
        EM_AARCH64
    };
    let image = ImageBuilder::new(changed(foreign)).build().unwrap();
    assert_ne!(image.platform, Platform::of_this_machine());
    let mixed = ImageBuilder::new(&program).with_program("/other", changed(foreign));
    let error = mixed.build().unwrap_err();
    assert!(
        matches!(error, BuildError::OtherProcessor { .. }),
        "{error}"
    );
    let error = ImageBuilder::new(changed(9999)).build().unwrap_err();
    assert!(
        matches!(error, BuildError::Processor { machine: 9999, .. }),
        "{error}"
    );
}

/// Names that files of an image can have, long ones among them.
fn names() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let component = "[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,60}";
    let path = prop::collection::vec(component, 1..5).prop_map(|parts| parts.join("/"));
    let content = prop::collection::vec(any::<u8>(), 0..2000);
    prop::collection::vec((path, content), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn files_are_unpacked_as_they_were_added(files in names()) {
        let place = TempDir::new().unwrap();
        let mut added = Files::default();
        let mut expected = BTreeMap::new();
        for (number, (path, content)) in files.iter().enumerate() {
            let source = place.path().join(number.to_string());
            fs::write(&source, content).unwrap();
            if added.add(&Path::new("/").join(path), &source, 0o644).is_ok() {
                expected.insert(path, content);
            }
        }
        let first = layer::build(&added).unwrap();
        prop_assert_eq!(&first.bytes, &layer::build(&added).unwrap().bytes);
        let root = TempDir::new().unwrap();
        let mut unpacker = Unpacker::new(root.path(), &Limits::default()).unwrap();
        let size = first.bytes.len() as u64;
        unpacker.add_layer("layer", size, &first.bytes[..]).unwrap();
        for (path, content) in expected {
            prop_assert_eq!(&fs::read(root.path().join(path)).unwrap(), content);
        }
    }
}
