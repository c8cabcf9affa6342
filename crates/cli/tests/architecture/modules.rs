//! The modules of a crate and the imports between them, from its sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Meta, UseTree, VisRestricted, Visibility};

/// The path of a module below its crate, as in `["view", "charts"]`; empty for the root.
type ModulePath = Vec<String>;

/// A module and the modules that it imports.
pub(crate) type Imports = BTreeMap<ModulePath, BTreeSet<ModulePath>>;

/// The imports between the modules of the crate whose sources are in `directory`. A path that leads through a
/// re-export counts as an import of the module that defines the item; tests are ignored.
pub(crate) fn imports(directory: &Path) -> Imports {
    let modules: BTreeMap<ModulePath, Paths> = files(directory)
        .into_iter()
        .map(|(module, file)| (module, paths_in(&file)))
        .collect();
    let names: BTreeSet<&ModulePath> = modules.keys().collect();
    let resolver = Resolver {
        re_exports: modules
            .iter()
            .map(|(module, paths)| (module, resolve_re_exports(module, paths, &names)))
            .collect(),
        names,
    };
    let imported = |module: &ModulePath, paths: &Paths| {
        let used = paths.used.iter();
        let targets = used.filter_map(|path| resolver.module_of(module, path));
        targets.filter(|target| target != module).collect()
    };
    modules
        .iter()
        .map(|(module, paths)| (module.clone(), imported(module, paths)))
        .collect()
}

/// The cycles of a graph of imports: its strongly connected components of more than one module.
pub(crate) fn cycles(imports: &Imports) -> Vec<BTreeSet<ModulePath>> {
    let reachable: BTreeMap<&ModulePath, BTreeSet<&ModulePath>> = imports
        .keys()
        .map(|module| (module, reachable_from(module, imports)))
        .collect();
    let mut cycles: Vec<BTreeSet<ModulePath>> = Vec::new();
    for (module, reached) in &reachable {
        if cycles.iter().any(|cycle| cycle.contains(*module)) {
            continue;
        }
        let back = reached
            .iter()
            .filter(|other| reachable[*other].contains(module));
        let cycle: BTreeSet<ModulePath> = back.map(|other| (*other).clone()).collect();
        if !cycle.is_empty() {
            cycles.push(cycle);
        }
    }
    cycles
}

fn reachable_from<'a>(module: &ModulePath, imports: &'a Imports) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&ModulePath> = imports[module].iter().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(&imports[module]);
        }
    }
    reached
}

/// The source files of a crate, by their module.
fn files(directory: &Path) -> Vec<(ModulePath, PathBuf)> {
    let mut found = Vec::new();
    let mut directories = vec![(ModulePath::new(), directory.to_path_buf())];
    while let Some((parent, directory)) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let mut module = parent.clone();
            if !["lib", "main", "mod"].contains(&name.as_ref()) {
                module.push(name.into_owned());
            }
            if path.is_dir() {
                directories.push((module, path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((module, path));
            }
        }
    }
    found.retain(|(module, _)| !module.iter().any(|name| name == "tests" || name == "bin"));
    found
}

/// The paths in a source file that may lead to other modules.
#[derive(Default)]
struct Paths {
    /// In private imports and in code.
    used: Vec<Vec<String>>,
    /// In public imports, by the name of the re-exported item.
    re_exported: BTreeMap<String, Vec<String>>,
}

fn paths_in(file: &Path) -> Paths {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut source = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    source.items.retain(|item| !is_test(attributes(item)));
    let mut paths = Paths::default();
    paths.visit_file(&source);
    paths
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_public = !matches!(item.vis, Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for (name, path) in leaves {
            if is_public {
                self.re_exported.insert(name, path);
            } else {
                self.used.push(path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.used.push(segments.collect());
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast VisRestricted) {
        // The path in `pub(super)` imports nothing.
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        self.scan(invocation.tokens.clone());
        visit::visit_macro(self, invocation);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }
}

impl Paths {
    /// Collects the paths in tokens that are not parsed: the arguments of macros and attributes.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.used.push(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.used.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.used.push(path);
    }
}

/// The names and paths of a tree of imports.
fn flatten(tree: &UseTree, prefix: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    let leaf = |prefix: &[String], last: &str| {
        let mut path = prefix.to_vec();
        if last != "self" {
            path.push(last.to_owned());
        }
        path
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            leaves.push((name.clone(), leaf(prefix, &name)));
        }
        UseTree::Rename(rename) => {
            let path = leaf(prefix, &rename.ident.to_string());
            leaves.push((rename.rename.to_string(), path));
        }
        UseTree::Glob(_) => leaves.push(("*".to_owned(), prefix.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
    }
}

/// An absolute path below the crate; `None`: it leads to another crate, or to a local item.
fn absolute(
    module: &ModulePath,
    path: &[String],
    names: &BTreeSet<&ModulePath>,
) -> Option<Vec<String>> {
    let first = path.first()?;
    if first == "crate" {
        return Some(path[1..].to_vec());
    }
    let supers = path
        .iter()
        .take_while(|segment| *segment == "super")
        .count();
    let skipped = supers + usize::from(first == "self");
    let mut absolute = module[..module.len().checked_sub(supers)?].to_vec();
    absolute.extend_from_slice(&path[skipped..]);
    let child = [module.as_slice(), std::slice::from_ref(first)].concat();
    // A single segment is a local name, unless it is imported.
    let leads_to_child = names.contains(&child) && path.len() > 1;
    (skipped > 0 || leads_to_child).then_some(absolute)
}

fn resolve_re_exports(
    module: &ModulePath,
    paths: &Paths,
    names: &BTreeSet<&ModulePath>,
) -> BTreeMap<String, Vec<String>> {
    let re_exported = paths.re_exported.iter();
    re_exported
        .filter_map(|(name, path)| Some((name.clone(), absolute(module, path, names)?)))
        .collect()
}

struct Resolver<'a> {
    names: BTreeSet<&'a ModulePath>,
    re_exports: BTreeMap<&'a ModulePath, BTreeMap<String, Vec<String>>>,
}

impl Resolver<'_> {
    /// The module that defines what a path leads to.
    fn module_of(&self, module: &ModulePath, path: &[String]) -> Option<ModulePath> {
        self.definition(&absolute(module, path, &self.names)?, 0)
    }

    fn definition(&self, path: &[String], depth: usize) -> Option<ModulePath> {
        /// More re-exports of re-exports are a cycle.
        const MAX_DEPTH: usize = 8;
        let longest = (0..=path.len()).rev().map(|length| path[..length].to_vec());
        let module = longest
            .into_iter()
            .find(|module| self.names.contains(module))?;
        let item = path.get(module.len());
        let re_export = item.and_then(|item| self.re_exports[&module].get(item));
        match re_export {
            Some(target) if depth < MAX_DEPTH => {
                let rest = &path[module.len() + 1..];
                self.definition(&[target.as_slice(), rest].concat(), depth + 1)
            }
            _ => Some(module),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Imports {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a source");
        }
        imports(directory.path())
    }

    #[test]
    fn imports_are_found_in_code_macros_attributes_and_through_re_exports() {
        for (what, user) in [
            ("an import", "use crate::b::{C, D as E};"),
            ("a path", "fn f() -> super::b::C { super::b::C }"),
            ("a macro", "fn f() { println!(\"{}\", crate::b::C); }"),
            (
                "an attribute",
                "#[arg(value_parser = crate::b::parse)] struct F;",
            ),
            ("a re-export", "use crate::C;"),
        ] {
            let root = "mod a; mod b; pub use b::C;";
            let found = of(&[("lib.rs", root), ("a.rs", user), ("b.rs", "pub struct C;")]);
            let b = BTreeSet::from([vec!["b".to_owned()]]);
            assert_eq!(found[&vec!["a".to_owned()]], b, "{what}");
            assert!(found[&Vec::new()].is_empty(), "{what}");
            assert!(cycles(&found).is_empty(), "{what}");
        }
    }

    #[test]
    fn a_parent_and_a_child_that_import_each_other_are_a_cycle() {
        let parent = "mod child; use child::C; pub struct P;";
        let child = "use super::P; pub(super) struct C;";
        let found = of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", parent),
            ("a/child.rs", child),
        ]);
        let cycle = cycles(&found);
        assert_eq!(cycle.len(), 1, "{found:?}");
        assert_eq!(cycle[0].len(), 2);
        let test = "pub struct C; #[cfg(test)] mod tests { use super::super::P; }";
        let found = of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", parent),
            ("a/child.rs", test),
        ]);
        assert!(cycles(&found).is_empty(), "tests are ignored");
    }
}
