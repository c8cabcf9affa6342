//! What is in the layers of an image.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use meshtax_oci::{LayerFault, Limits, UnpackError, extract_program, unpack};
use tar::EntryType;
use tempfile::TempDir;

use crate::images::{entry, file, files_of_this_machine, gzip};
use crate::setup;

#[test]
fn hostile_layers_are_rejected_and_nothing_is_written_outside() {
    let bomb = vec![0; 80 << 20];
    type Expected = fn(&LayerFault) -> bool;
    let cases: [(&str, Vec<Vec<u8>>, Expected); 8] = [
        ("../", vec![file("../evil", b"")], |f| {
            matches!(f, LayerFault::PathEscapes { .. })
        }),
        (
            "symlink",
            vec![entry(EntryType::Symlink, "a", "../../evil", b"")],
            |f| matches!(f, LayerFault::SymlinkEscapes { .. }),
        ),
        (
            "through a symlink",
            vec![
                entry(EntryType::Symlink, "a", "/tmp", b""),
                file("a/evil", b""),
            ],
            |f| matches!(f, LayerFault::NotADirectory { .. }),
        ),
        (
            "hard link",
            vec![entry(EntryType::Link, "a", "../cache/blobs", b"")],
            |f| matches!(f, LayerFault::HardLinkEscapes { .. }),
        ),
        (
            "hard link to the machine's file",
            vec![entry(EntryType::Link, "a", "/etc/passwd", b"")],
            |f| matches!(f, LayerFault::HardLinkDangles { .. }),
        ),
        ("whiteout", vec![file(".wh...", b"")], |f| {
            matches!(f, LayerFault::InvalidWhiteout { .. })
        }),
        (
            "device",
            vec![entry(EntryType::Char, "dev/null", "", b"")],
            |f| matches!(f, LayerFault::SpecialFile { .. }),
        ),
        ("bomb", vec![file("zeros", &bomb)], |f| {
            matches!(f, LayerFault::Bomb { .. })
        }),
    ];
    for (name, entries, is_expected) in cases {
        let setup = setup!(&[gzip(&entries)]);
        let image = setup.pull_from(setup.registry.port).unwrap();
        let root = setup.place.path().join("root");
        let error = unpack(&image.layers, &root, &Limits::default()).unwrap_err();
        assert!(error.to_string().contains("fix:"), "{error}");
        match &error {
            UnpackError::Layer { layer, fault } if is_expected(fault) => {
                assert_eq!(*layer, image.layers[0].digest.to_string());
            }
            other => panic!("{name}: {other}"),
        }
        setup.assert_only_the_cache();
    }
    let setup = setup!(&[gzip(&[file("/absolute/path", b"1")])]);
    let image = setup.pull_from(setup.registry.port).unwrap();
    let root = setup.place.path().join("root");
    unpack(&image.layers, &root, &Limits::default()).unwrap();
    assert_eq!(fs::read(root.join("absolute/path")).unwrap(), b"1");
    assert!(!Path::new("/absolute").exists());
    setup.assert_only_the_cache();
}

#[test]
fn program_of_an_image_runs_with_its_own_loader_and_libraries() {
    let listed = Command::new("ldd").arg("/bin/ls").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let mut paths: Vec<&str> = listed
        .split_whitespace()
        .filter(|w| w.starts_with('/'))
        .collect();
    paths.push("/bin/ls");
    let setup = setup!(&[files_of_this_machine(&paths)]);
    let image = setup.pull_from(setup.registry.port).unwrap();
    let root = setup.place.path().join("root");
    unpack(&image.layers, &root, &Limits::default()).unwrap();
    let into = TempDir::new().unwrap();
    let path = Path::new(&image.config.entrypoint[0]);
    let program = extract_program(&root, path, into.path()).unwrap();
    assert!(program.loader.is_some());
    let words = program.command();
    let output = loop {
        let mut command = Command::new(&words[0]);
        match command.args(&words[1..]).arg(&root).output() {
            // Another test's child has the descriptor by which this process wrote the file, for a moment.
            Err(e) if e.kind() == ErrorKind::ExecutableFileBusy => {}
            output => break output.unwrap(),
        }
    };
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.lines().any(|line| line == "bin"), "{listed}");
}
