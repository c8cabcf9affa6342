//! SHA-256 of a file, and of all files in a directory.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// If the file cannot be read.
pub fn sha256_of_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hasher.update(&buffer[..length]);
    }
    Ok(hexadecimal(hasher))
}

/// The SHA-256 of the paths and contents of all files in a directory and below, in hexadecimal.
pub(crate) fn sha256_of_directory(directory: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect_files(directory, &mut files)?;
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let digest = sha256_of_file(&file)?;
        let below = file.strip_prefix(directory).unwrap_or(&file);
        hasher.update(below.as_os_str().as_bytes());
        // No path contains a zero, and a digest has a fixed length.
        hasher.update([0]);
        hasher.update(digest);
    }
    Ok(hexadecimal(hasher))
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect_files(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

fn hexadecimal(hasher: Sha256) -> String {
    let bytes = hasher.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_a_directory_depends_on_paths_and_contents_only() {
        let digest = |files: &[(&str, &str)]| {
            let directory = tempfile::tempdir().unwrap();
            for (path, content) in files {
                let path = directory.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            sha256_of_directory(directory.path()).unwrap()
        };
        let first = digest(&[("a", "1"), ("lib/b", "2")]);
        assert_eq!(first, digest(&[("lib/b", "2"), ("a", "1")]));
        for other in [
            &[("a", "1"), ("lib/b", "3")][..],
            &[("a", "1"), ("lib/c", "2")],
            &[("a", "1")],
            &[("a", "1"), ("lib/b", "2"), ("c", "")],
        ] {
            assert_ne!(first, digest(other), "{other:?}");
        }
    }
}
