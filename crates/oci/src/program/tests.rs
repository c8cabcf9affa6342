//! Programs of this machine, taken out of images made of its files.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::*;

/// Copies a program of this machine, and the files that its loader names, into a directory as into an image.
fn image_of(program: &str) -> TempDir {
    let image = TempDir::new().unwrap();
    let listed = Command::new("ldd").arg(program).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let paths = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for path in paths.chain([program]) {
        let target = image.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
    image
}

/// Runs an extracted program. A file that this process has written is busy while another test's child has its
/// descriptor, for a moment after its start.
fn run(files: &ProgramFiles, arguments: &[&Path]) -> Output {
    let words = files.command();
    loop {
        let output = Command::new(&words[0])
            .args(&words[1..])
            .args(arguments)
            .output();
        match output {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {}
            output => return output.unwrap(),
        }
    }
}

#[test]
fn dynamic_program_runs_with_the_loader_and_libraries_of_its_image() {
    let image = image_of("/bin/ls");
    symlink("/bin/ls", image.path().join("entry")).unwrap();
    // As in images whose /lib64 is a link: an absolute one starts at the root of the image.
    let lib64 = image.path().join("lib64");
    if lib64.is_dir() {
        fs::rename(&lib64, image.path().join("merged")).unwrap();
        symlink("/merged", &lib64).unwrap();
    }
    let into = TempDir::new().unwrap();
    let files = extract_program(image.path(), Path::new("/entry"), into.path()).unwrap();
    assert!(files.loader.is_some());
    assert!(files.libraries.join("libc.so.6").is_file());
    let output = run(&files, &[into.path()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "entry\nlib\n");
}

#[test]
fn missing_library_is_named_with_who_needs_it() {
    let image = image_of("/bin/ls");
    let libc = find(image.path(), "libc.so.6");
    fs::remove_file(&libc).unwrap();
    // The host's own is not the image's.
    symlink(
        libc.strip_prefix(image.path())
            .map(|p| Path::new("/host").join(p))
            .unwrap(),
        &libc,
    )
    .unwrap();
    let into = TempDir::new().unwrap();
    let error = extract_program(image.path(), Path::new("bin/ls"), into.path()).unwrap_err();
    assert!(
        matches!(&error, ExtractError::NoLibrary { library, .. } if library == "libc.so.6"),
        "{error}"
    );
    assert!(error.to_string().contains("fix:"), "{error}");
}

fn find(directory: &Path, name: &str) -> PathBuf {
    let found = Command::new("find")
        .arg(directory)
        .args(["-name", name])
        .output()
        .unwrap();
    PathBuf::from(
        String::from_utf8(found.stdout)
            .unwrap()
            .lines()
            .next()
            .unwrap(),
    )
}

#[test]
fn scripts_directories_and_missing_files_are_errors_with_a_fix() {
    let image = TempDir::new().unwrap();
    fs::create_dir(image.path().join("directory")).unwrap();
    fs::write(image.path().join("script"), "#!/bin/sh\n").unwrap();
    // A link to a program of this machine, which the image does not have.
    symlink("/bin/ls", image.path().join("outside")).unwrap();
    let into = TempDir::new().unwrap();
    let error = |path: &str| {
        let error = extract_program(image.path(), Path::new(path), into.path()).unwrap_err();
        assert!(error.to_string().contains("fix:"), "{error}");
        error
    };
    assert!(matches!(error("/script"), ExtractError::NoProgram { .. }));
    for path in [
        "/directory",
        "/missing",
        "/outside",
        "../../../../../../bin/ls",
    ] {
        assert!(
            matches!(error(path), ExtractError::NotFound { .. }),
            "{path}"
        );
    }
}

#[test]
fn static_program_has_no_loader_and_runs_alone() {
    let image = TempDir::new().unwrap();
    let source = image.path().join("source.c");
    fs::write(&source, "int main(void) { return 9; }").unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(image.path().join("program"));
    if !compiler
        .output()
        .is_ok_and(|output| output.status.success())
    {
        skip("there is no C compiler with a static library");
        return;
    }
    let into = TempDir::new().unwrap();
    let files = extract_program(image.path(), Path::new("/program"), into.path()).unwrap();
    assert_eq!(files.loader, None);
    assert_eq!(files.command(), [into.path().join("program")]);
    assert_eq!(run(&files, &[]).status.code(), Some(9));
}

fn skip(why: &str) {
    let _ = writeln!(io::stderr(), "SKIPPED: {why}");
}

#[test]
fn libraries_are_found_by_origin_and_configuration() {
    let into = TempDir::new().unwrap();
    let image = TempDir::new().unwrap();
    let at = |path: &str| {
        let path = image.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let compile = |code: &str, to: &Path, options: &[&str]| {
        let source = into.path().join("source.c");
        fs::write(&source, code).unwrap();
        let status = Command::new("cc")
            .args(["-o"])
            .arg(to)
            .arg(&source)
            .args(options)
            .status();
        status.is_ok_and(|status| status.success())
    };
    let (near, far) = (at("app/lib/libnear.so"), at("opt/far/libfar.so"));
    if !compile("int far(void) { return 3; }", &far, &["-shared", "-fPIC"]) {
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: there is no C compiler\n");
        return;
    }
    assert!(compile(
        "int near(void) { return 4; }",
        &near,
        &["-shared", "-fPIC"]
    ));
    let directories = [&near, &far].map(|path| format!("-L{}", path.parent().unwrap().display()));
    let program = at("app/bin/program");
    let options = [
        &*directories[0],
        &*directories[1],
        "-lnear",
        "-lfar",
        "-Wl,-rpath,$ORIGIN/../lib",
    ];
    let code = "int near(void); int far(void); int main(void) { return near() + far(); }";
    assert!(compile(code, &program, &options));
    for file in ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"] {
        let _ = fs::copy(Path::new("/").join(file), at(file));
    }
    let libc = Command::new("cc")
        .arg("-print-file-name=libc.so.6")
        .output()
        .unwrap()
        .stdout;
    let libc = String::from_utf8(libc).unwrap();
    fs::copy(libc.trim(), at("usr/lib/libc.so.6")).unwrap();
    fs::write(at("etc/ld.so.conf"), "include ld.so.conf.d/*.conf\n").unwrap();
    fs::write(at("etc/ld.so.conf.d/far.conf"), "# a remark\n/opt/far\n").unwrap();
    let extracted = into.path().join("extracted");
    let files = extract_program(image.path(), Path::new("app/bin/program"), &extracted).unwrap();
    assert_eq!(run(&files, &[]).status.code(), Some(7));
}
