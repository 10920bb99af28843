//! Which modules of a crate use each other in a circle.
//!
//! A module is a file. A use is any path that begins with `crate::` or `super::`, in code that is
//! not for tests. A module and those inside it may use each other. Uses by way of a method of a
//! type that another file has extended, and paths inside macros, are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::visit::{self, Visit};

/// The modules of one crate.
pub(crate) struct Modules {
    /// By path (`ip::v4`; the root is empty): what it uses.
    by_path: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    /// The modules below the folder `src`, which ends in a slash, among files with their texts.
    pub(crate) fn below<'a>(
        src: &str,
        files: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Modules> {
        let mut texts = Vec::new();
        for (path, text) in files {
            let Some(file) = path.strip_prefix(src).map(Path::new) else { continue };
            let for_tests = file.with_extension("").iter().any(|part| part == "tests");
            if !for_tests && path.ends_with(".rs") {
                texts.push((module_path(file), text));
            }
        }
        Modules::of(texts.iter().map(|(path, text)| (path.as_str(), *text)))
    }

    /// The modules with these paths and texts.
    fn of<'a>(texts: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Result<Modules> {
        let known: BTreeSet<String> = texts.clone().map(|(path, _)| path.to_owned()).collect();
        let mut by_path = BTreeMap::new();
        for (path, text) in texts {
            let file = syn::parse_file(text).with_context(|| format!("module `{path}`"))?;
            let mut reader =
                Reader { here: path, known: &known, inside: Vec::new(), uses: BTreeSet::new() };
            reader.visit_file(&file);
            reader.uses.remove(path);
            by_path.insert(path.to_owned(), reader.uses);
        }
        Ok(Modules { by_path })
    }

    /// What `path` uses, apart from the modules that it is in and those that are in it.
    fn neighbours<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let uses = self.by_path.get(path).into_iter().flatten();
        uses.map(String::as_str)
            .filter(move |other| !contains(path, other) && !contains(other, path))
    }

    /// Groups of modules each of which uses every other one, directly or not.
    pub(crate) fn circles(&self) -> Vec<Vec<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.by_path.keys().map(|path| (path.as_str(), self.reachable(path))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (&path, reached) in &reach {
            if seen.contains(path) || !reached.contains(path) {
                continue;
            }
            let circle: Vec<&str> =
                reached.iter().copied().filter(|other| reach[other].contains(path)).collect();
            seen.extend(circle.iter().copied());
            circles.push(circle);
        }
        circles
    }

    /// The modules outside of `inner` that use it or what is in it, the root apart.
    pub(crate) fn users_of(&self, inner: &str) -> Vec<&str> {
        let outside = self.by_path.keys().map(String::as_str);
        let outside = outside.filter(|path| !path.is_empty() && !contains(inner, path));
        outside.filter(|path| self.neighbours(path).any(|used| contains(inner, used))).collect()
    }

    fn reachable<'a>(&'a self, from: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> = self.neighbours(from).collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(self.neighbours(next));
            }
        }
        found
    }
}

/// Whether the module `outer` is `inner` or contains it.
fn contains(outer: &str, inner: &str) -> bool {
    outer.is_empty()
        || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// `ip/v4.rs` is `ip::v4`, `ip/mod.rs` is `ip`, `lib.rs` is the root.
fn module_path(file: &Path) -> String {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts.join("::")
}

/// Reads one file.
struct Reader<'a> {
    here: &'a str,
    known: &'a BTreeSet<String>,
    /// Inline modules around the place that is being read.
    inside: Vec<String>,
    uses: BTreeSet<String>,
}

impl Reader<'_> {
    /// Notes a path, given from its first segment on.
    fn note(&mut self, segments: &[String]) {
        let mut base: Vec<&str> = self.here.split("::").filter(|part| !part.is_empty()).collect();
        base.extend(self.inside.iter().map(String::as_str));
        let rest = match segments.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                &segments[1..]
            }
            Some("self") => &segments[1..],
            Some("super") => {
                let ups = segments.iter().take_while(|segment| *segment == "super").count();
                base.truncate(base.len().saturating_sub(ups));
                &segments[ups..]
            }
            _ => return,
        };
        base.extend(rest.iter().map(String::as_str));
        // The deepest file that the path leads into.
        while !base.is_empty() && !self.known.contains(&base.join("::")) {
            base.pop();
        }
        self.uses.insert(base.join("::"));
    }

    fn note_tree(&mut self, tree: &syn::UseTree, before: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.note_tree(item, before));
            }
            syn::UseTree::Name(name) => self.note_leaf(before, Some(name.ident.to_string())),
            syn::UseTree::Rename(name) => self.note_leaf(before, Some(name.ident.to_string())),
            syn::UseTree::Glob(_) => self.note_leaf(before, None),
        }
    }

    fn note_leaf(&mut self, before: &[String], last: Option<String>) {
        let mut segments = before.to_vec();
        segments.extend(last);
        self.note(&segments);
    }
}

/// Whether an item is for tests only.
fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|attr| {
        let syn::Meta::List(list) = &attr.meta else { return attr.path().is_ident("test") };
        // `cfg(test)` and `cfg(all(loom, test))`, but not `cfg(not(all(loom, test)))`.
        let text = list.tokens.to_string();
        list.path.is_ident("cfg") && text.contains("test") && !text.contains("not")
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attrs) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inside.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.note(&segments);
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in super)` is no use.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(texts: &[(&str, &str)]) -> Modules {
        Modules::of(texts.iter().copied()).unwrap()
    }

    #[test]
    fn finds_uses_in_code_and_in_use_lines() {
        let modules = modules(&[
            ("", "mod a; mod b;"),
            ("a", "use crate::{b::c::C, d}; fn f() { crate::b::g(); super::d::h() }"),
            ("b", ""),
            ("b::c", "pub struct C;"),
            ("d", "#[cfg(test)] mod tests { use crate::a; } #[test] fn t() { crate::a::f() }"),
        ]);
        assert_eq!(modules.neighbours("a").collect::<Vec<_>>(), ["b", "b::c", "d"]);
        assert_eq!(modules.neighbours("d").count(), 0, "tests may use anything");
        assert!(modules.circles().is_empty());
    }

    #[test]
    fn a_module_and_what_is_in_it_are_no_circle() {
        let texts =
            [("", ""), ("a", "use self::b::B;"), ("a::b", "use super::A; use crate::a::A;")];
        assert!(modules(&texts).circles().is_empty());
    }

    #[test]
    fn names_every_module_of_a_circle_once() {
        let texts = [
            ("", ""),
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::A; use crate::d::D;"),
            ("d", ""),
        ];
        assert_eq!(modules(&texts).circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn files_are_modules() {
        let path = |file: &str| module_path(Path::new(file));
        assert_eq!(path("lib.rs"), "");
        assert_eq!(path("ip/mod.rs"), "ip");
        assert_eq!(path("device/tun/vnet.rs"), "device::tun::vnet");
    }
}
