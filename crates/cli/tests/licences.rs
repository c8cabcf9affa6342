//! Holds `deny.toml` without cargo-deny: licences, banned crates and sources of every dependency.
//!
//! Licences are looked at for the platform that this runs on, whose packages are there anyway;
//! banned crates and sources for all of `Cargo.lock`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use cargo_metadata::{Metadata, MetadataCommand};
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: BTreeSet<String>,
    allow_git: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    source: Option<String>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read<T: for<'de> Deserialize<'de>>(file: &str) -> T {
    let path = root().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
    toml::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn metadata() -> Metadata {
    let host = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let host = host.lines().find_map(|l| l.strip_prefix("host: ")).unwrap();
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked", "--offline", "--filter-platform", host].map(String::from))
        .exec()
        .unwrap()
}

#[test]
fn every_licence_is_allowed() {
    let allow = read::<Deny>("deny.toml").licenses.allow;
    let metadata = metadata();
    let mut looked_at = 0;
    let mut refused = Vec::new();
    for package in &metadata.packages {
        looked_at += 1;
        let expression = package.license.as_deref().unwrap_or("none named");
        if !met(expression, &allow) {
            refused.push(format!(
                "{} {}: {expression}",
                package.name, package.version
            ));
        }
    }
    assert!(
        looked_at > 50,
        "only {looked_at} packages: nothing is proven"
    );
    assert!(refused.is_empty(), "deny.toml does not allow: {refused:#?}");
}

#[test]
fn no_banned_crate_is_locked() {
    let bans = read::<Deny>("deny.toml").bans.deny;
    let locked = read::<Lock>("Cargo.lock").package;
    assert!(!bans.is_empty() && locked.len() > 50, "nothing is proven");
    for ban in bans {
        let found: Vec<_> = locked.iter().filter(|p| p.name == ban.name).collect();
        assert!(found.is_empty(), "{}: {}", ban.name, ban.reason);
    }
}

#[test]
fn every_source_is_allowed() {
    let sources = read::<Deny>("deny.toml").sources;
    assert!(
        sources.allow_git.is_empty(),
        "teach this test about git sources"
    );
    for package in read::<Lock>("Cargo.lock").package {
        // Without a source: of this workspace.
        let Some(source) = package.source else {
            assert!(
                package.name.starts_with("meshtax"),
                "{} is vendored",
                package.name
            );
            continue;
        };
        let registry = source.strip_prefix("registry+").unwrap_or(&source);
        assert!(
            sources.allow_registry.contains(registry),
            "{} {} comes from {source}",
            package.name,
            package.version
        );
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allow = ["MIT", "Apache-2.0", "ISC"].map(String::from).into();
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "Apache-2.0 AND ISC",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "MIT OR Apache-2.0 AND GPL-3.0",
        "GPL-3.0 AND MIT OR ISC",
        "LGPL-2.1 OR (MIT AND (ISC OR GPL-3.0))",
    ] {
        assert!(met(good, &allow), "{good}");
    }
    for bad in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "Apache-2.0 WITH Some-exception",
        "(MIT OR ISC) AND GPL-3.0",
        "",
        "MIT AND",
        "(MIT",
        "MIT ISC",
        "none named",
    ] {
        assert!(!met(bad, &allow), "{bad}");
    }
}

/// Whether an SPDX expression can be met with the allowed licences. What is no expression cannot.
fn met(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser {
        words: &words,
        allow,
    };
    parser
        .any()
        .is_some_and(|met| met && parser.words.is_empty())
}

/// AND binds closer than OR; both sides are always read.
struct Parser<'a> {
    words: &'a [&'a str],
    allow: &'a BTreeSet<String>,
}

impl Parser<'_> {
    fn next_if(&mut self, wanted: &str) -> bool {
        let found = self.words.first() == Some(&wanted);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn any(&mut self) -> Option<bool> {
        let mut met = self.all()?;
        while self.next_if("OR") {
            met |= self.all()?;
        }
        Some(met)
    }

    fn all(&mut self) -> Option<bool> {
        let mut met = self.one()?;
        while self.next_if("AND") {
            met &= self.one()?;
        }
        Some(met)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_if("(") {
            let met = self.any()?;
            return self.next_if(")").then_some(met);
        }
        let (name, rest) = self.words.split_first()?;
        if matches!(*name, "AND" | "OR" | "WITH" | ")") {
            return None;
        }
        self.words = rest;
        let mut licence = (*name).to_owned();
        if self.next_if("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            licence = format!("{licence} WITH {exception}");
        }
        Some(self.allow.contains(&licence))
    }
}
