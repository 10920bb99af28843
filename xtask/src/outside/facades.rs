//! What others have published, on the facades of `compat/`.
//!
//! A facade takes the place of a published package by `[patch.crates-io]`. Two kinds of packages
//! show that it does. The one whose place it takes has tests and examples: these, unmodified, are
//! built in a package of their own that depends on the facade. Programs that use that package are
//! built and tested as they were published, sources, manifest and all. Everything is taken from the
//! registry when it is run, below the target folder, and nothing of it is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::registry::{self, metadata};
use crate::{session, tree};

/// The tun2proxy that is tested on the facade of ipstack, and measured.
pub(crate) const TUN2PROXY: &str = "0.8.7";

/// A package of the registry.
struct Published {
    name: &'static str,
    version: &'static str,
    role: Role,
    /// Tests that are left out, by parts of their names, and why; examples by their whole names.
    excluded: &'static [(&'static str, &'static str)],
    /// What its tests and examples use and its manifest does not name: packages, versions and
    /// features.
    undeclared: &'static [(&'static str, &'static str, &'static [&'static str])],
}

enum Role {
    /// A facade takes its place. The examples in these files of it are tests as well.
    Replaced { documents: &'static [&'static str] },
    /// It uses the package that this facade replaces.
    User { of: &'static str },
}

const PUBLISHED: [Published; 4] = [
    Published {
        name: "ipstack",
        version: "1.0.1",
        role: Role::Replaced { documents: &["README.md"] },
        excluded: &[],
        undeclared: &[],
    },
    Published {
        name: "tun2proxy",
        version: TUN2PROXY,
        role: Role::User { of: "ipstack" },
        excluded: &[],
        undeclared: &[],
    },
    Published {
        name: "netstack-smoltcp",
        version: "0.2.4",
        role: Role::Replaced { documents: &[] },
        excluded: &[],
        undeclared: &[],
    },
    Published {
        name: "watfaq-netstack",
        version: "0.1.0",
        role: Role::Replaced { documents: &[] },
        excluded: &[
            ("netstack_lwip", "it is about another stack, which is not published"),
            ("netstack_smoltcp", "it is about another stack"),
        ],
        undeclared: &[
            ("env_logger", "0.11", &[]),
            ("ipnet", "2", &[]),
            ("libc", "0.2", &[]),
            ("socket2", "0.6", &["all"]),
            ("tun-rs", "2", &["async", "async_framed"]),
        ],
    },
];

/// Files of a replaced package that make it that package. All others go with its tests.
const NOT_TESTS: [&str; 6] =
    ["src", "Cargo.toml", "Cargo.toml.orig", "Cargo.lock", "build.rs", ".cargo"];

/// For each package what its tests are called, and the command that runs them, or what cannot be
/// fetched.
pub(crate) fn prepared(root: &Path) -> Result<Vec<(String, Result<Command, String>)>> {
    let one = |package: &Published| {
        let name = format!("the tests of {} {}, on our facade", package.name, package.version);
        Ok((name, package.prepared(root)?))
    };
    PUBLISHED.iter().map(one).collect()
}

impl Published {
    /// The facade that is meant.
    fn facade(&self) -> &'static str {
        match self.role {
            Role::Replaced { .. } => self.name,
            Role::User { of } => of,
        }
    }

    /// Writes the package and returns the command that runs its tests, or says what cannot be
    /// fetched.
    fn prepared(&self, root: &Path) -> Result<Result<Command, String>> {
        let target = session::cargo_target(root).join("outside");
        let place = target.join("facades").join(self.name);
        let fetch = target.join("facades-fetch").join(self.name);
        let published = match registry::published(&fetch, self.name, self.version)? {
            Ok(published) => published,
            Err(why) => return Ok(Err(why)),
        };
        let source = &registry::folder_of(&published)?;
        match &self.role {
            Role::User { .. } => copy(source, &place, &[])?,
            Role::Replaced { documents } => {
                copy(source, &place, &NOT_TESTS)?;
                let documents = documents.iter().map(|path| {
                    format!("#[doc = include_str!(\"../{path}\")]\nmod {} {{}}\n", module(path))
                });
                tree::write(&place.join("src/lib.rs"), documents.collect::<String>())?;
                let manifest = manifest_of_tests(self, &published, source)?;
                tree::write(&place.join("Cargo.toml"), manifest)?;
            }
        }
        if !place.join("Cargo.lock").exists() {
            // The versions of the repository, as far as they go.
            tree::write(&place.join("Cargo.lock"), &fs::read(root.join("Cargo.lock"))?)?;
        }
        let path = root.join("compat").join(self.facade());
        let patch = format!("patch.crates-io.{}.path={:?}", self.facade(), path.display());
        if let Err(why) = self.uses_facade(&place, &patch)? {
            return Ok(Err(why));
        }
        let mut command = Command::new("cargo");
        command.args(["test", "--no-fail-fast", "--config", &patch]).current_dir(&place);
        command.env("CARGO_TARGET_DIR", target.join("facades-build"));
        // Most of the time goes into building.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.arg("--");
        for (test, why) in self.excluded {
            println!("left out: {}::{test}: {why}", self.name);
            command.args(["--skip", test]);
        }
        Ok(Ok(command))
    }

    /// Makes sure that the facade is used: cargo only warns if a patch is not.
    fn uses_facade(&self, place: &Path, patch: &str) -> Result<Result<(), String>> {
        let metadata = match metadata(place, &["--config", patch])? {
            Ok(metadata) => metadata,
            Err(why) => return Ok(Err(why)),
        };
        let packages = metadata["packages"].as_array().context("packages are a list")?;
        let mut ours = packages.iter().filter(|package| package["name"] == self.facade());
        // What comes from a path has no source.
        ensure!(
            ours.clone().count() == 1 && ours.all(|package| package["source"].is_null()),
            "{} {} does not use compat/{}: is its version still the published one?",
            self.name,
            self.version,
            self.facade()
        );
        Ok(Ok(()))
    }
}

/// Copies all files of `from` into `to`, but for those at its top that are `left_out`, and for a
/// lock file that tests have changed.
fn copy(from: &Path, to: &Path, left_out: &[&str]) -> Result<()> {
    let kept = to.join("Cargo.lock").exists().then_some("Cargo.lock");
    let left_out: Vec<&str> = left_out.iter().copied().chain(kept).collect();
    registry::copy(from, to, &left_out)
}

/// A name for the examples of the document `path`.
fn module(path: &str) -> String {
    path.to_lowercase().replace(|letter: char| !letter.is_alphanumeric(), "_")
}

/// A dependency of a published package, as all that ask for it want it.
#[derive(Default)]
struct Wanted {
    package: String,
    req: String,
    default_features: bool,
    features: BTreeSet<String>,
}

/// A manifest for the tests and examples of a published package: they have what it has.
fn manifest_of_tests(published: &Published, package: &Value, source: &Path) -> Result<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("it is text");
    let (name, version) = (text(&package["name"])?, text(&package["version"])?);
    let mut out = format!(
        "[package]\nname = \"outside-{name}\"\nversion = \"0.0.0\"\nedition = {}\npublish = false\n\
         autotests = false\nautoexamples = false\n\n[workspace]\n\n[dependencies]\n\
         {name} = \"={version}\"\n",
        package["edition"]
    );
    let mut wanted = wanted(package)?;
    for &(name, req, features) in published.undeclared {
        wanted.insert((String::new(), name.to_owned()), Wanted::of(name, req, features));
    }
    for ((target, alias), wanted) in wanted {
        let table = match target.as_str() {
            "" => format!("dependencies.{alias}"),
            target => format!("target.'{target}'.dependencies.{alias}"),
        };
        writeln!(
            out,
            "\n[{table}]\npackage = {:?}\nversion = {:?}\ndefault-features = {}\nfeatures = {:?}",
            wanted.package,
            wanted.req,
            wanted.default_features,
            Vec::from_iter(&wanted.features)
        )?;
    }
    out.push_str("\n[features]\n");
    for (feature, needs) in package["features"].as_object().into_iter().flatten() {
        // What they need is there in any case; `default` says which are on.
        let needs = if feature == "default" { needs.to_string() } else { "[]".to_owned() };
        writeln!(out, "{feature} = {needs}")?;
    }
    for target in package["targets"].as_array().into_iter().flatten() {
        let kind = text(&target["kind"][0])?;
        let left_out = published.excluded.iter().any(|(name, _)| target["name"] == **name);
        if kind != "test" && kind != "example" || left_out {
            continue;
        }
        let path = PathBuf::from(text(&target["src_path"])?);
        let path = path.strip_prefix(source).context("targets lie in their package")?;
        writeln!(out, "\n[[{kind}]]\nname = {}\npath = {path:?}", target["name"])?;
        if let Some(features) = target.get("required-features") {
            writeln!(out, "required-features = {features}")?;
        }
    }
    Ok(out)
}

impl Wanted {
    fn of(package: &str, req: &str, features: &[&str]) -> Wanted {
        let features = features.iter().map(|&one| one.to_owned()).collect();
        let (package, req) = (package.to_owned(), req.to_owned());
        Wanted { package, req, default_features: true, features }
    }
}

/// The dependencies of `package` and of its tests, by target and by the name that they have there.
fn wanted(package: &Value) -> Result<BTreeMap<(String, String), Wanted>> {
    let mut all: BTreeMap<(String, String), Wanted> = BTreeMap::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        if dependency["kind"] == "build" {
            continue;
        }
        let name = dependency["name"].as_str().context("a dependency has a name")?;
        let alias = dependency["rename"].as_str().unwrap_or(name);
        let target = dependency["target"].as_str().unwrap_or_default();
        let wanted = all.entry((target.to_owned(), alias.to_owned())).or_default();
        wanted.package = name.to_owned();
        wanted.req = dependency["req"].as_str().unwrap_or("*").to_owned();
        wanted.default_features |= dependency["uses_default_features"] == true;
        let features = dependency["features"].as_array().into_iter().flatten();
        wanted.features.extend(features.filter_map(|one| one.as_str().map(str::to_owned)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_names_what_is_run_and_what_is_left_out() {
        let text = include_str!("../../../docs/testing.md");
        for package in &PUBLISHED {
            let row = format!("| {} {} | ", package.name, package.version);
            assert!(text.contains(&row), "docs/testing.md has no row `{row}`");
            for (test, _) in package.excluded {
                assert!(text.contains(&format!("`{test}`")), "docs/testing.md does not say {test}");
            }
        }
    }

    #[test]
    fn facades_have_the_version_that_they_take_the_place_of() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for package in &PUBLISHED {
            if let Role::Replaced { .. } = package.role {
                let path = root.join("compat").join(package.name).join("Cargo.toml");
                let manifest = fs::read_to_string(path).unwrap();
                assert!(manifest.contains(&format!("\nversion = \"{}\"\n", package.version)));
            }
        }
    }

    #[test]
    fn a_manifest_has_what_tests_and_examples_need() {
        let package = serde_json::json!({
            "name": "net", "version": "1.2.3", "edition": "2021",
            "dependencies": [
                { "name": "tokio", "req": "^1", "kind": null, "features": ["rt"],
                  "uses_default_features": false },
                { "name": "tokio", "req": "^1", "kind": "dev", "features": ["net"],
                  "uses_default_features": true },
                { "name": "cc", "req": "^1", "kind": "build", "features": [] },
                { "name": "wintun", "req": "^0.5", "kind": "dev", "features": [],
                  "target": "cfg(windows)", "uses_default_features": true },
            ],
            "features": { "default": ["tun"], "tun": ["dep:tun"] },
            "targets": [
                { "kind": ["lib"], "name": "net", "src_path": "/p/src/lib.rs" },
                { "kind": ["test"], "name": "all", "src_path": "/p/tests/all.rs",
                  "required-features": ["tun"] },
                { "kind": ["example"], "name": "other", "src_path": "/p/examples/other.rs" },
            ],
        });
        let published = Published {
            name: "net",
            version: "1.2.3",
            role: Role::Replaced { documents: &[] },
            excluded: &[("other", "it is about another stack")],
            undeclared: &[("env_logger", "0.11", &["color"])],
        };
        let manifest = manifest_of_tests(&published, &package, Path::new("/p")).unwrap();
        for part in [
            "\nnet = \"=1.2.3\"\n",
            "[dependencies.tokio]\npackage = \"tokio\"\nversion = \"^1\"\ndefault-features = true\n\
             features = [\"net\", \"rt\"]\n",
            "[target.'cfg(windows)'.dependencies.wintun]\n",
            "[dependencies.env_logger]\npackage = \"env_logger\"\nversion = \"0.11\"\n\
             default-features = true\nfeatures = [\"color\"]\n",
            "\ndefault = [\"tun\"]\ntun = []\n",
            "[[test]]\nname = \"all\"\npath = \"tests/all.rs\"\nrequired-features = [\"tun\"]\n",
        ] {
            assert!(manifest.contains(part), "no `{part}` in\n{manifest}");
        }
        assert!(!manifest.contains("cc") && !manifest.contains("other"), "{manifest}");
    }
}
