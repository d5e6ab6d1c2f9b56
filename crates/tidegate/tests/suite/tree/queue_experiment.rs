//! The package of the queue experiment follows `crates/buffer`: modules, exported names, methods, imports and dependencies.
//!
//! `benches/experiment/buffer` has another queue in the place of `Outbound`, beside all other modules of `crates/buffer`. It is
//! outside of the workspace, so no other test of an everyday run notices that it does not compile any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand, Package};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Token, Type, Visibility};

use super::sources::root;
use crate::module_circles::{Modules, join, use_leaves};

const OURS: &str = "crates/buffer/src/lib.rs";
const EXPERIMENT: &str = "benches/experiment/buffer/lib.rs";
const QUEUES: &[&str] = &["array", "linked"];

/// The answer to each difference.
const REMEDY: &str = "Make the same change in benches/experiment/buffer, and run the tests of both of its queues: \
                      `cargo xtask long --only 'tests and lints of the'`, docs/queue-experiment.md.";

#[test]
fn the_other_queues_lie_beside_the_modules_of_the_buffer_and_export_its_names() {
    let ours = Tree::read(OURS, "");
    for queue in QUEUES {
        let theirs = Tree::read(EXPERIMENT, queue);
        let modules = different(&ours.children(""), &theirs.children(""));
        assert_eq!(modules, [""; 0], "these modules are in one of {OURS} and {EXPERIMENT}. {REMEDY}");
        let exports = different(&ours.exports(), &theirs.exports());
        assert_eq!(exports, [""; 0], "these names are exported by one of {OURS} and {EXPERIMENT}. {REMEDY}");
    }
}

#[test]
fn the_other_queues_have_the_methods_of_ours() {
    let ours = Tree::read(OURS, "").methods("outbound");
    assert!(ours.contains("Outbound::gather") && ours.contains("ParkedQueue::unpark"), "{ours:?}");
    for queue in QUEUES {
        let theirs = Tree::read(EXPERIMENT, queue).methods("outbound");
        let methods = different(&ours, &theirs);
        assert_eq!(
            methods, [""; 0],
            "these are in one of crates/buffer/src/outbound.rs and the {queue} queue. {REMEDY}"
        );
    }
}

#[test]
fn each_import_of_the_other_queues_names_an_item() {
    assert_eq!(Tree::read(OURS, "").modules().unresolved(), [""; 0], "the crate compiles");
    for queue in QUEUES {
        let missing = Tree::read(EXPERIMENT, queue).modules().unresolved();
        assert!(missing.is_empty(), "these paths name no item beside the {queue} queue: {missing:?}. {REMEDY}");
    }
}

#[test]
fn the_other_queues_have_the_version_and_the_dependencies_of_the_buffer() {
    let (ours, theirs) = (package("crates/buffer"), package("benches/experiment/buffer"));
    let described = |package: &Package| {
        let own = package.dependencies.iter().filter(|one| one.kind == DependencyKind::Normal);
        let own = own.map(|one| format!("{} {} {:?}", one.name, one.req, one.features)).collect::<BTreeSet<_>>();
        (package.name.to_string(), package.version.clone(), package.edition, package.rust_version.clone(), own)
    };
    assert_eq!(described(&theirs), described(&ours), "{REMEDY}");
    let lock = fs::read_to_string(root().join("benches/experiment/buffer/Cargo.lock")).expect("a lock file");
    for dependency in &theirs.dependencies {
        let entry = format!("name = \"{}\"", dependency.name);
        assert!(lock.contains(&entry), "benches/experiment/buffer/Cargo.lock lacks {}. {REMEDY}", dependency.name);
    }
}

#[test]
fn a_path_that_names_no_item_is_found() {
    let modules = Modules::parse(&[
        ("", "mod a; mod b; pub use a::A;"),
        ("a", "use crate::b::{B, Gone}; pub struct A;"),
        ("b", "pub struct B; fn f() { crate::a::A::new(); crate::lost::f(); crate::A::new(); }"),
    ]);
    assert_eq!(modules.unresolved(), ["a: crate::b::Gone", "b: crate::lost::f"]);
}

/// The names that one of two sets has.
fn different(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> Vec<String> {
    ours.symmetric_difference(theirs).cloned().collect()
}

/// The files of a crate by the paths of their modules, with the text of each.
struct Tree(BTreeMap<String, String>);

impl Tree {
    /// The crate with this root, built with this queue.
    fn read(lib: &str, queue: &str) -> Self {
        let mut tree = Self(BTreeMap::new());
        tree.add("", &root().join(lib), queue);
        tree
    }

    fn add(&mut self, module: &str, file: &Path, queue: &str) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| {
            panic!("{}, the file of the module `{module}`: {error}. {REMEDY}", file.display());
        });
        for item in syn::parse_file(&text).expect("Rust").items {
            if let Item::Mod(item) = item
                && item.content.is_none()
            {
                let name = item.ident.to_string();
                let path = item.attrs.iter().find_map(|attribute| path_of(attribute, queue));
                self.add(&join(module, &name), &file_of(file, &name, path), queue);
            }
        }
        self.0.insert(module.to_owned(), text);
    }

    fn modules(&self) -> Modules {
        Modules::parse(&self.0.iter().map(|(path, text)| (&**path, &**text)).collect::<Vec<_>>())
    }

    fn items(&self, module: &str) -> Vec<Item> {
        syn::parse_file(&self.0[module]).expect("Rust").items
    }

    /// The names of the modules of this one.
    fn children(&self, module: &str) -> BTreeSet<String> {
        let names = self.items(module).into_iter().filter_map(|item| match item {
            Item::Mod(item) => Some(item.ident.to_string()),
            _ => None,
        });
        names.collect()
    }

    /// The names that the root exports.
    fn exports(&self) -> BTreeSet<String> {
        let mut leaves = Vec::new();
        for item in self.items("") {
            if let Item::Use(item) = item {
                use_leaves(&item.tree, &mut Vec::new(), &mut leaves);
            }
        }
        leaves.into_iter().map(|(name, _)| name).collect()
    }

    /// The methods of all types in this module and those below it, except the private ones.
    fn methods(&self, module: &str) -> BTreeSet<String> {
        let below = format!("{module}::");
        let modules = self.0.keys().filter(|path| *path == module || path.starts_with(&below));
        modules.flat_map(|module| self.items(module)).flat_map(|item| methods(&item)).collect()
    }
}

/// The methods in an `impl` block without a trait, except the private ones.
fn methods(item: &Item) -> Vec<String> {
    let Item::Impl(block) = item else { return Vec::new() };
    let Type::Path(of) = &*block.self_ty else { return Vec::new() };
    let of = &of.path.segments.last().expect("a name").ident;
    let names = block.items.iter().filter_map(|item| match item {
        ImplItem::Fn(method) if !matches!(method.vis, Visibility::Inherited) => Some(&method.sig.ident),
        _ => None,
    });
    names.map(|name| format!("{of}::{name}")).collect()
}

/// The path of a module's file that an attribute gives in a build with this queue.
fn path_of(attribute: &Attribute, queue: &str) -> Option<String> {
    if !attribute.path().is_ident("cfg_attr") {
        return text_of(&attribute.meta, "path");
    }
    let metas = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let is_of_queue = text_of(metas.first()?, "tidegate_queue")? == queue;
    metas.iter().find_map(|meta| text_of(meta, "path")).filter(|_| is_of_queue)
}

/// The text of `name = "text"`.
fn text_of(meta: &Meta, name: &str) -> Option<String> {
    match meta {
        Meta::NameValue(pair) if pair.path.is_ident(name) => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The file of a module that `parent` declares.
fn file_of(parent: &Path, name: &str, path: Option<String>) -> PathBuf {
    let folder = parent.parent().expect("the folder of a file");
    if let Some(path) = path {
        return folder.join(path);
    }
    let below = parent.with_extension("");
    let files = [&below, folder].map(|folder| [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")]);
    files.into_iter().flatten().find(|file| file.exists()).unwrap_or_else(|| folder.join(format!("{name}.rs")))
}

fn package(folder: &str) -> Package {
    let mut command = MetadataCommand::new();
    let manifest = root().join(folder).join("Cargo.toml");
    command.manifest_path(&manifest).no_deps().other_options(["--offline".to_owned()]);
    let packages = command.exec().expect("cargo describes the package").packages;
    let manifest = fs::canonicalize(manifest).expect("a manifest");
    let is_this = |package: &Package| fs::canonicalize(&package.manifest_path).is_ok_and(|path| path == manifest);
    packages.into_iter().find(is_this).expect("the package of the manifest")
}
