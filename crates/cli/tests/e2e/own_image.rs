//! meshtax's own image: built without Docker, and pushed to a registry on loopback.

use std::fs;
use std::path::Path;

use meshtax_fixtures::registry::Registry;
use meshtax_oci::{Limits, PullOptions, Reference, pull, unpack};

use crate::support::{BINARY, Scratch, beside_others, finish, meshtax};

#[test]
fn own_image_is_reproducible_and_names_its_digest() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let build = |out: &str| {
        let arguments = ["image", "build", "--json", "--out", out];
        finish(meshtax(&scratch, &arguments)).expect_code(0).json()
    };
    let (first, second) = (build("1.tar"), build("2.tar"));
    assert_eq!(first["digest"], second["digest"]);
    let bytes = |out: &str| fs::read(scratch.path(out)).expect("an archive");
    assert!(bytes("1.tar") == bytes("2.tar"));
    let named = ["image", "build", "--out", "3.tar", "--name", "a/b:1"];
    let told = finish(meshtax(&scratch, &named));
    told.expect_code(0);
    assert!(told.stdout.contains("docker.io/a/b:1"), "{}", told.stdout);
    let digest = first["digest"].as_str().expect("a digest");
    assert!(told.stdout.contains(digest), "{}", told.stdout);
}

#[test]
fn pushed_own_image_has_the_binary_that_ran() {
    let _shared = beside_others();
    let Some(registry) = Registry::start(Path::new(env!("CARGO_TARGET_TMPDIR"))) else {
        return;
    };
    let scratch = Scratch::new();
    let reference = format!("127.0.0.1:{}/team/meshtax:1", registry.port);
    let arguments = ["image", "push", "--json", &reference];
    let pushed = finish(meshtax(&scratch, &arguments)).expect_code(0).json();
    let pinned = pushed["reference"].as_str().expect("a reference");
    let pinned: Reference = pinned.parse().expect("a reference");
    let options = PullOptions {
        plain_http: true,
        ..PullOptions::new(scratch.path("cache"))
    };
    let image = pull(&pinned, &options, &mut |_| {}).expect("the image");
    assert_eq!(pushed["digest"], image.digest.to_string());
    let root = scratch.path("root");
    unpack(&image.layers, &root, &Limits::default()).expect("its files");
    let program = fs::read(root.join("meshtax")).expect("the program");
    assert!(program == fs::read(BINARY).expect("the binary"));
}

#[test]
fn image_that_cannot_be_built_or_pushed_names_the_fix() {
    let _shared = beside_others();
    let scratch = Scratch::new();
    let wrong: [(&[&str], i32); 4] = [
        (
            &["image", "build", "--out", "a.tar", "--program", "none"],
            11,
        ),
        (&["image", "build", "--out", "none/a.tar"], 11),
        (&["image", "push", "127.0.0.1:1/a/b:c"], 11),
        (&["image", "push", "not an image"], 2),
    ];
    for (arguments, code) in wrong {
        let failed = finish(meshtax(&scratch, arguments));
        failed.expect_code(code);
        assert!(failed.stderr.contains("fix:"), "{}", failed.stderr);
    }
}
