//! `cargo xtask modules [--root DIR] [--crate NAME] [--dot | --shape [--at COMMIT]...]`: which
//! module of a crate uses which, which of them go round in a circle, and how many fields can be
//! reached from outside their file. `--shape` is a table of the sums, and of the type with the most
//! methods, of the commits that are named and of this tree.
//!
//! A module is a file. A use is any path that begins with `crate::` or `super::`, in code that is
//! not for tests. A module and those inside it may use each other; any other circle is named. The
//! check of `tidy` is that `crates/tcp` and `crates/stack` have none.
//!
//! What it cannot see: uses by way of a method of a type that another file has extended, and paths
//! inside macros. Methods are counted by the name of their type, those of traits apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use syn::visit::{self, Visit};

/// The modules of one crate.
#[derive(Default)]
pub(crate) struct Modules {
    /// By path (`ip::v4`; the root is empty): what it uses, and its exposed fields.
    by_path: BTreeMap<String, Module>,
}

#[derive(Default)]
struct Module {
    uses: BTreeSet<String>,
    /// Fields of each of its types that code outside of the file can reach.
    exposed: BTreeMap<String, usize>,
    /// Types to which it gives methods that change them.
    changed: BTreeSet<String>,
    /// How many methods it gives to each type.
    methods: BTreeMap<String, usize>,
}

impl Module {
    fn exposed(&self) -> usize {
        self.exposed.values().sum()
    }
}

/// The type with the most methods.
struct Largest<'a> {
    name: &'a str,
    methods: usize,
    /// Files that give it methods.
    files: usize,
}

/// The command.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let (mut root, mut name) = (root.to_path_buf(), "stack".to_owned());
    let (mut dot, mut shape, mut commits) = (false, false, Vec::new());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--root" => root = PathBuf::from(words.next().context("--root DIR")?),
            "--crate" => name = words.next().context("--crate NAME")?.clone(),
            "--dot" => dot = true,
            "--shape" => shape = true,
            "--at" => commits.push(words.next().context("--at COMMIT")?.clone()),
            other => bail!("unknown option {other}"),
        }
    }
    let modules = Modules::read(&root.join("crates").join(&name).join("src"))?;
    if shape {
        let mut versions = Vec::new();
        for commit in commits {
            versions.push((commit.clone(), Modules::at(&root, &commit, &name)?));
        }
        versions.push(("this tree".into(), modules));
        print!("{}", shapes(&versions));
        return Ok(());
    }
    ensure!(commits.is_empty(), "--at is for --shape");
    print!("{}", if dot { modules.dot() } else { modules.table() });
    Ok(())
}

impl Modules {
    /// Reads the sources below `src`.
    pub(crate) fn read(src: &Path) -> Result<Modules> {
        let mut files = Vec::new();
        collect(src, src, &mut files)?;
        let mut texts = Vec::new();
        for file in files {
            let text = fs::read_to_string(src.join(&file))
                .with_context(|| format!("cannot read {}", src.join(&file).display()))?;
            texts.push((module_path(&file), text));
        }
        Modules::of(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())))
    }

    /// Those of the crate `name` as a commit has it.
    fn at(root: &Path, commit: &str, name: &str) -> Result<Modules> {
        let below = crate::session::cargo_target(root).join("modules");
        let _ = fs::remove_dir_all(&below);
        fs::create_dir_all(&below).with_context(|| format!("making {}", below.display()))?;
        let src = format!("crates/{name}/src");
        let script = "git archive \"$1\" -- \"$2\" | tar -x -C \"$3\"";
        let mut unpack = Command::new("sh");
        unpack.current_dir(root).args(["-c", script, "sh", commit, &src]).arg(&below);
        ensure!(unpack.status().context("sh")?.success(), "git archive {commit} {src} failed");
        let modules = Modules::read(&below.join(&src));
        fs::remove_dir_all(&below).with_context(|| format!("removing {}", below.display()))?;
        modules
    }

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
                Reader { here: path, known: &known, inside: Vec::new(), module: Module::default() };
            reader.visit_file(&file);
            reader.module.uses.remove(path);
            by_path.insert(path.to_owned(), reader.module);
        }
        Ok(Modules { by_path })
    }

    /// Fields that code outside of their file can reach.
    fn exposed(&self) -> usize {
        self.by_path.values().map(Module::exposed).sum()
    }

    /// Those of types with methods that change them: state, and not values that are handed over.
    fn exposed_state(&self) -> usize {
        let modules = || self.by_path.values();
        let changed: BTreeSet<&String> = modules().flat_map(|module| &module.changed).collect();
        let fields = modules().flat_map(|module| &module.exposed);
        fields.filter(|(name, _)| changed.contains(name)).map(|(_, count)| count).sum()
    }

    /// The type with the most methods.
    fn largest(&self) -> Option<Largest<'_>> {
        let mut types: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (name, count) in self.by_path.values().flat_map(|module| &module.methods) {
            let (methods, files) = types.entry(name).or_default();
            (*methods, *files) = (*methods + count, *files + 1);
        }
        let largest = types.into_iter().max_by_key(|(_, (methods, _))| *methods);
        largest.map(|(name, (methods, files))| Largest { name, methods, files })
    }

    /// What `path` uses, apart from the modules that it is in and those that are in it.
    fn neighbours<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        let uses = self.by_path.get(path).into_iter().flat_map(|module| &module.uses);
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

    fn table(&self) -> String {
        let mut out = String::from("| module | fields seen outside | uses |\n|---|---|---|\n");
        for (path, module) in &self.by_path {
            let uses: Vec<&str> = self.neighbours(path).collect();
            let name = if path.is_empty() { "(root)" } else { path };
            let _ = writeln!(out, "| {name} | {} | {} |", module.exposed(), uses.join(", "));
        }
        let _ = writeln!(
            out,
            "\n{} modules, {} fields seen outside",
            self.by_path.len(),
            self.exposed()
        );
        match self.circles().as_slice() {
            [] => out.push_str("no circles\n"),
            circles => {
                for circle in circles {
                    let _ = writeln!(out, "a circle of {}: {}", circle.len(), circle.join(", "));
                }
            }
        }
        out
    }

    /// For Graphviz.
    fn dot(&self) -> String {
        let mut out = String::from("digraph modules {\n  rankdir=LR;\n  node [shape=box];\n");
        for path in self.by_path.keys().filter(|path| !path.is_empty()) {
            let _ = writeln!(out, "  \"{path}\";");
            for other in self.neighbours(path) {
                let _ = writeln!(out, "  \"{path}\" -> \"{other}\";");
            }
        }
        out.push_str("}\n");
        out
    }
}

/// A table of what each version is like.
fn shapes(versions: &[(String, Modules)]) -> String {
    let mut out = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&Modules) -> String| {
        let cells: Vec<_> = versions.iter().map(|(_, modules)| cell(modules)).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    };
    row("modules", &|modules| modules.by_path.len().to_string());
    row("type with the most methods", &|modules| {
        modules.largest().map_or_else(String::new, |largest| {
            format!("`{}`: {} in {} files", largest.name, largest.methods, largest.files)
        })
    });
    row("fields seen outside their file", &|modules| modules.exposed().to_string());
    row("of those, in types with methods that change them", &|modules| {
        modules.exposed_state().to_string()
    });
    row("circles of modules", &|modules| modules.circles().len().to_string());
    row("modules in circles", &|modules| modules.circles().concat().len().to_string());
    let names: Vec<_> = versions.iter().map(|(name, _)| name.as_str()).collect();
    let line = "|---".repeat(versions.len() + 1);
    format!("| | {} |\n{line}|\n{out}", names.join(" | "))
}

/// Whether the module `outer` is `inner` or contains it.
fn contains(outer: &str, inner: &str) -> bool {
    outer.is_empty()
        || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The sources below `dir`, without those of tests, relative to `src`.
fn collect(src: &Path, dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            collect(src, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path.strip_prefix(src).context("it lies below")?.to_path_buf());
        }
    }
    Ok(())
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
    module: Module,
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
        self.module.uses.insert(base.join("::"));
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

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, syn::Type::Path(path)) = (&item.trait_, &*item.self_ty)
            && let Some(name) = path.path.segments.last()
        {
            let name = name.ident.to_string();
            let methods = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(method) if !is_test(&method.attrs) => Some(&method.sig),
                _ => None,
            });
            let changes = |sig: &syn::Signature| {
                sig.receiver()
                    .is_some_and(|this| this.reference.is_some() && this.mutability.is_some())
            };
            if methods.clone().any(changes) {
                self.module.changed.insert(name.clone());
            }
            *self.module.methods.entry(name).or_default() += methods.count();
        }
        visit::visit_item_impl(self, item);
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

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        // What is public for everybody is a value that the crate's users make or read.
        let exposed = item.fields.iter().filter(|field| {
            matches!(field.vis, syn::Visibility::Restricted(_)) && !is_test(&field.attrs)
        });
        let count = exposed.count();
        *self.module.exposed.entry(item.ident.to_string()).or_default() += count;
        visit::visit_item_struct(self, item);
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
    fn counts_fields_that_other_files_can_reach() {
        let text = "pub struct P { pub a: u8 }
            pub(crate) struct Q { pub(crate) a: u8, b: u8, pub(super) c: u8, pub d: u8 }
            struct R(pub(crate) u8);
            #[cfg(test)] struct T { pub(crate) a: u8 }";
        assert_eq!(modules(&[("", text)]).exposed(), 3);
        let methods = "impl R { fn a(&self) {} } impl Q { fn b(&self) {} fn c(&mut self) {} }
            impl P { fn d(mut self) {} }";
        assert_eq!(modules(&[("", text), ("a", methods)]).exposed_state(), 2, "those of `Q`");
    }

    #[test]
    fn the_type_with_the_most_methods_is_named_with_its_files() {
        let texts = [
            ("", "struct A; struct B; impl B { fn a() {} fn b() {} fn c() {} }"),
            ("a", "impl<T> super::A { fn a() {} fn b() {} #[test] fn t() {} }"),
            ("b", "impl A { fn c() {} fn d() {} } impl Clone for B { fn clone() {} fn e() {} }"),
            ("c", "#[cfg(test)] impl B { fn f() {} fn g() {} }"),
        ];
        let modules = modules(&texts);
        let largest = modules.largest().unwrap();
        assert_eq!((largest.name, largest.methods, largest.files), ("A", 4, 2));
        let table = shapes(&[("one".into(), modules), ("two".into(), Modules::default())]);
        assert!(table.starts_with("| | one | two |\n|---|---|---|\n| modules | 4 | 0 |\n"));
        assert!(
            table.contains("| type with the most methods | `A`: 4 in 2 files |  |\n"),
            "{table}"
        );
    }

    #[test]
    fn files_are_modules() {
        let path = |file: &str| module_path(Path::new(file));
        assert_eq!(path("lib.rs"), "");
        assert_eq!(path("ip/mod.rs"), "ip");
        assert_eq!(path("device/tun/vnet.rs"), "device::tun::vnet");
    }
}
