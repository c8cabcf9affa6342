//! The documents that explain the source tree name files and tests that exist.

use super::{read, root, sources};

/// Parts of a document in backticks, and targets of links.
fn code_and_links(markdown: &str) -> Vec<&str> {
    let code = markdown.split('`').skip(1).step_by(2);
    let links = markdown.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split(')').next());
    code.chain(links).collect()
}

/// The documents that explain the source tree.
fn guides() -> Vec<(&'static str, String)> {
    let names = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/tour.md",
        "docs/adding-a-data-plane.md",
        "docs/method.md",
    ];
    names.map(|name| (name, read(&root().join(name)))).to_vec()
}

#[test]
fn every_file_named_in_the_guides_exists() {
    let directories = ["crates/", "docs/", "bench/", "fuzz/", "examples/"];
    for (guide, text) in guides() {
        let named = code_and_links(&text);
        let paths = named
            .iter()
            .filter(|name| {
                directories
                    .iter()
                    .any(|directory| name.starts_with(directory))
            })
            .filter(|name| !name.contains(['*', '<', ' ']));
        let mut checked = 0;
        for path in paths {
            let path = path.split('#').next().unwrap_or(path);
            assert!(root().join(path).exists(), "{guide} names {path}");
            checked += 1;
        }
        assert!(checked > 3, "only {checked} paths in {guide}");
    }
}

/// Identifiers of four words or more in the guides are tests or functions.
#[test]
fn every_test_named_in_the_guides_exists() {
    let sources = sources();
    let mut checked = 0;
    for (guide, text) in guides() {
        let is_test = |name: &&&str| {
            let words: Vec<&str> = name.split('_').collect();
            let is_word = |word: &&str| {
                !word.is_empty()
                    && word
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            };
            words.len() >= 4 && words.iter().all(is_word)
        };
        for name in code_and_links(&text).iter().filter(is_test) {
            let definition = format!("fn {name}(");
            let exists = sources
                .iter()
                .any(|(_, source)| source.contains(&definition));
            assert!(exists, "{guide} names {name}");
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} tests are named");
}
