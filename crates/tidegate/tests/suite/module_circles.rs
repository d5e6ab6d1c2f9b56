//! Modules that import each other in a circle: at most five, and from three on only those on the list below, each with its
//! reason.
//!
//! A module imports another one if its code names an item that the other defines, through whichever re-exports. A
//! parent that only re-exports an item of a child does not import the child. Calls of methods count through the import
//! of their type or trait; unit tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// The circles of three to five modules that are allowed: the crate, the modules, and why they need each other.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    (
        "backplane",
        &["node", "node::kicks", "node::presence", "node::publishing"],
        "the node holds the state, and each file implements a part of its protocol",
    ),
    (
        "buffer",
        &["datagram", "entries", "pool", "segment", "slice"],
        "memory returns to the pool that it comes from, and the pool keeps the entries of queues and datagrams, which hold slices",
    ),
    (
        "compat",
        &["framed", "framed::closing", "framed::deadlines", "framed::receiving", "framed::sending"],
        "the stream holds the state of both directions, and each file implements a part of the stream",
    ),
    (
        "dns",
        &["client", "client::connection", "client::name_server", "client::sockets", "client::timer"],
        "the resolver of a loop holds the state, and each file runs a part of it",
    ),
    (
        "engine",
        &["channel", "channel::futures", "channel::split"],
        "a channel makes its futures and its halves, which use the handle that it has",
    ),
    (
        "engine",
        &["group::backplane", "group::room", "group::room_state", "group::rooms", "group::subscriber"],
        "a room gives messages to the backplane, which delivers those of other nodes to the room and its subscribers",
    ),
    (
        "engine",
        &["endpoint", "endpoint::bind", "endpoint::channel"],
        "a loop adds entries of endpoints, and a channel for tasks is one of them",
    ),
    (
        "engine",
        &["loop_core", "loop_core::closing", "slot_entry"],
        "the loop dispatches an entry, such as a closing one, and lends it the loop's state meanwhile",
    ),
    (
        "http1",
        &["encode", "response", "server"],
        "the codec encodes responses, and a response keeps inline the bytes that the encoder copies",
    ),
    (
        "load",
        &["connection", "http2::handler", "http3::connection", "idle", "worker"],
        "a thread makes its connections, of each kind, and they count their requests there",
    ),
    (
        "sys",
        &["uring", "uring::arm", "uring::direct_io", "uring::receive", "uring::send"],
        "the driver's state, and a file for each kind of operation on it",
    ),
    (
        "sys",
        &["driver", "passed_descriptors", "socket"],
        "a driver acts on sockets and reports their passed descriptors, both under its tokens",
    ),
    (
        "testkit",
        &["network", "network::driver", "network::event_queue", "network::host", "network::world"],
        "a network makes hosts, which make drivers, and all of them act on one world with its events",
    ),
    ("tls", &["client", "filter", "records", "server"], "the configuration of a role makes filters, and each keeps it"),
];

/// The circles that have more modules than that: the crate, one of the modules, and how many they are. The list may only
/// shrink.
const TOO_LARGE: &[(&str, &str, usize)] = &[];

/// Two modules may import each other without a reason.
const WITHOUT_REASON_MAX: usize = 2;
const MODULES_MAX: usize = 5;

#[test]
fn modules_import_each_other_only_in_the_circles_that_are_listed() {
    let mut found = BTreeSet::new();
    for folder in crates() {
        let name = folder.file_name().expect("a folder of a crate").to_string_lossy().into_owned();
        let modules = Modules::read(&folder.join("src"));
        let imports = modules.imports();
        for circle in circles(&imports) {
            println!("{name}: {}", describe(&circle, &imports));
            found.insert((name.clone(), circle));
        }
    }
    let differences = differences(&found, ALLOWED, TOO_LARGE);
    assert!(differences.is_empty(), "circles of modules:\n{}", differences.join("\n"));
}

/// Compares the circles with those that are listed.
fn differences(
    found: &BTreeSet<(String, BTreeSet<String>)>,
    allowed: &[(&str, &[&str], &str)],
    too_large: &[(&str, &str, usize)],
) -> Vec<String> {
    let allowed: BTreeSet<_> = allowed
        .iter()
        .map(|(name, circle, _)| ((*name).to_owned(), circle.iter().map(|module| (*module).to_owned()).collect()))
        .collect();
    let mut differences = Vec::new();
    for circle @ (name, modules) in found.iter().filter(|(_, modules)| modules.len() > WITHOUT_REASON_MAX) {
        let listed = too_large.iter().find(|(of, module, _)| of == name && modules.contains(*module));
        match listed {
            Some((_, module, size)) if modules.len() != *size => {
                let size_now = modules.len();
                differences.push(format!("{name}: the circle of `{module}` has {size_now} modules, not {size}"));
            }
            Some(_) => {}
            None if modules.len() > MODULES_MAX => {
                differences.push(format!("{name}: more than {MODULES_MAX} modules: {modules:?}"));
            }
            None if !allowed.contains(circle) => differences.push(format!("{name}: no reason is listed: {modules:?}")),
            None => {}
        }
    }
    let gone = allowed.difference(found).map(|(name, modules)| format!("{name}: listed, and not there: {modules:?}"));
    differences.extend(gone);
    for (name, module, _) in too_large {
        let is_there = found.iter().any(|(of, modules)| of == name && modules.contains(*module));
        if !is_there {
            differences.push(format!("{name}: `{module}` is in no circle any more"));
        }
    }
    differences
}

#[test]
fn a_circle_of_three_needs_a_reason_and_one_of_six_may_only_shrink() {
    let circle = |size: usize| ("one".to_owned(), (0..size).map(|number| format!("folder::{number}")).collect());
    let differences =
        |size, allowed: &[_], too_large: &[_]| differences(&BTreeSet::from([circle(size)]), allowed, too_large).len();
    let three = ["folder::0", "folder::1", "folder::2"];
    let reason = [("one", &three[..], "a reason")];
    assert_eq!(differences(2, &[], &[]), 0);
    assert_eq!(differences(3, &[], &[]), 1);
    assert_eq!(differences(3, &reason, &[]), 0);
    assert_eq!(differences(4, &reason, &[]), 2, "another circle, and the listed one is gone");
    assert_eq!(differences(6, &[], &[]), 1);
    assert_eq!(differences(6, &[], &[("one", "folder::0", 6)]), 0);
    assert_eq!(differences(7, &[], &[("one", "folder::0", 6)]), 1);
    assert_eq!(differences(5, &[], &[("one", "folder::0", 6)]), 1, "the list has to shrink as well");
    assert_eq!(differences(2, &[], &[("one", "other", 6)]), 1);
}

#[test]
fn a_circle_within_a_folder_is_found() {
    let modules = Modules::parse(&[
        ("", "mod folder;"),
        ("folder", "mod a; mod b; mod c;"),
        ("folder::a", "use super::b::B; pub struct A;"),
        ("folder::b", "use crate::folder::c::C; pub struct B;"),
        ("folder::c", "use super::a::A; pub struct C;"),
    ]);
    let circle = ["folder::a", "folder::b", "folder::c"].map(str::to_owned).into();
    assert_eq!(circles(&modules.imports()), BTreeSet::from([circle]));
}

#[test]
fn a_circle_is_found_through_re_exports_and_paths() {
    let modules = Modules::parse(&[
        ("", "mod a; mod b; mod c; mod d; pub use a::A;"),
        ("a", "pub struct A; fn f() { crate::b::helper() }"),
        ("b", "use crate::A; pub fn helper() { let _: A; }"),
        ("c", "use super::d::D; pub struct C;"),
        ("d", "#[cfg(test)] mod tests { use crate::c::C; } pub struct D;"),
    ]);
    let circle = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert_eq!(circles(&modules.imports()), BTreeSet::from([circle]));
}

type Imports = BTreeMap<String, BTreeSet<String>>;

/// The modules of a crate, by path: `connection::link`. The root is the empty path.
pub(crate) struct Modules(BTreeMap<String, Module>);

#[derive(Default)]
struct Module {
    /// Names that the module defines.
    items: BTreeSet<String>,
    /// Names that the module imports, and from where.
    uses: BTreeMap<String, Vec<String>>,
    /// Those that it imports for itself, and not only for others.
    own_uses: BTreeSet<String>,
    /// Paths in its code.
    paths: Vec<Vec<String>>,
}

impl Modules {
    fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        source_files(root, &mut files);
        let sources: Vec<_> = files
            .iter()
            .filter(|file| !file.ends_with("tests.rs") && !file.components().any(|part| part.as_os_str() == "tests"))
            .map(|file| {
                let source = std::fs::read_to_string(file).expect("a source file");
                (module_path(file.strip_prefix(root).expect("below the root")), source)
            })
            .collect();
        Self::parse(&sources.iter().map(|(path, source)| (&**path, &**source)).collect::<Vec<_>>())
    }

    pub(crate) fn parse(sources: &[(&str, &str)]) -> Self {
        let mut modules = BTreeMap::new();
        for (path, source) in sources {
            let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
            let mut module = Module::default();
            for item in &file.items {
                module.add(item);
            }
            modules.insert((*path).to_owned(), module);
        }
        Self(modules)
    }

    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module) in &self.0 {
            let own = module.own_uses.iter().map(|name| &module.uses[name]);
            let targets = own.chain(&module.paths).filter_map(|to| self.resolve(path, to, 0));
            let targets = targets.filter(|target| target != path).collect();
            imports.insert(path.clone(), targets);
        }
        imports
    }

    /// The paths from the root of the crate that name no item, each behind the module that has it.
    pub(crate) fn unresolved(&self) -> Vec<String> {
        let mut unresolved = BTreeSet::new();
        for (module, content) in &self.0 {
            let paths = content.uses.values().chain(&content.paths);
            let missing = paths.filter(|path| path[0] == "crate" && self.resolve(module, path, 0).is_none());
            unresolved.extend(missing.map(|path| format!("{module}: {}", path.join("::"))));
        }
        unresolved.into_iter().collect()
    }

    /// The module that defines the item that `to` names in the module `from`.
    fn resolve(&self, from: &str, to: &[String], depth: usize) -> Option<String> {
        let (first, rest) = to.split_first()?;
        match &**first {
            _ if depth > 20 => None,
            "crate" => self.find("", rest, depth),
            "self" => self.find(from, rest, depth),
            "super" => self.resolve(parent(from)?, &with_self(rest), depth),
            _ => self.find(from, to, depth),
        }
    }

    fn find(&self, module: &str, path: &[String], depth: usize) -> Option<String> {
        let Some((first, rest)) = path.split_first() else { return Some(module.to_owned()) };
        if first == "super" {
            return self.find(parent(module)?, rest, depth);
        }
        let child = join(module, first);
        if self.0.contains_key(&child) {
            return self.find(&child, rest, depth);
        }
        let this = self.0.get(module)?;
        if this.items.contains(first) {
            return Some(module.to_owned());
        }
        if first == "*" {
            return Some(module.to_owned());
        }
        let target = this.uses.get(first)?;
        self.resolve(module, &target.iter().chain(rest).cloned().collect::<Vec<_>>(), depth + 1)
    }
}

impl Module {
    fn add(&mut self, item: &Item) {
        let (name, attributes) = match item {
            Item::Const(item) => (Some(&item.ident), &item.attrs),
            Item::Enum(item) => (Some(&item.ident), &item.attrs),
            Item::Fn(item) => (Some(&item.sig.ident), &item.attrs),
            Item::Macro(item) => (item.ident.as_ref(), &item.attrs),
            Item::Mod(item) => (None, &item.attrs),
            Item::Static(item) => (Some(&item.ident), &item.attrs),
            Item::Struct(item) => (Some(&item.ident), &item.attrs),
            Item::Trait(item) => (Some(&item.ident), &item.attrs),
            Item::Type(item) => (Some(&item.ident), &item.attrs),
            Item::Union(item) => (Some(&item.ident), &item.attrs),
            Item::Use(item) => (None, &item.attrs),
            Item::Impl(item) => (None, &item.attrs),
            _ => return,
        };
        if is_test_only(attributes) {
            return;
        }
        self.items.extend(name.map(ToString::to_string));
        match item {
            Item::Use(item) => {
                let is_private = matches!(item.vis, Visibility::Inherited);
                let mut leaves = Vec::new();
                use_leaves(&item.tree, &mut Vec::new(), &mut leaves);
                for (name, path) in leaves {
                    if is_private {
                        self.own_uses.insert(name.clone());
                    }
                    self.uses.insert(name, path);
                }
            }
            item => Paths(self).visit_item(item),
        }
    }
}

/// Collects the paths in the code of a module.
struct Paths<'a>(&'a mut Module);

impl Visit<'_> for Paths<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.0.paths.push(names);
        visit::visit_path(self, path);
    }

    /// `pub(super)` imports nothing.
    fn visit_visibility(&mut self, _: &Visibility) {}

    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
}

fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// Each name that a `use` brings into scope, with its path.
pub(crate) fn use_leaves(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            use_leaves(&path.tree, before, leaves);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => leaves.push((name.ident.to_string(), extended(before, &name.ident.to_string()))),
        UseTree::Rename(rename) => {
            leaves.push((rename.rename.to_string(), extended(before, &rename.ident.to_string())));
        }
        UseTree::Glob(_) => leaves.push((format!("{}::*", before.join("::")), extended(before, "*"))),
        UseTree::Group(group) => group.items.iter().for_each(|tree| use_leaves(tree, before, leaves)),
    }
}

/// The sets of modules of which each reaches every other by imports.
fn circles(imports: &Imports) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (module, reachable(module, imports))).collect();
    imports
        .keys()
        .filter(|module| reached[module].contains(*module))
        .map(|module| reached[module].iter().filter(|other| reached[other].contains(module)).cloned().collect())
        .collect()
}

/// The modules that `module` reaches by one import or more.
fn reachable(module: &str, imports: &Imports) -> BTreeSet<String> {
    let (mut reached, mut pending) = (BTreeSet::new(), vec![module.to_owned()]);
    while let Some(next) = pending.pop() {
        for target in imports.get(&next).into_iter().flatten() {
            if reached.insert(target.clone()) {
                pending.push(target.clone());
            }
        }
    }
    reached
}

/// The imports within a circle, a line each.
fn describe(circle: &BTreeSet<String>, imports: &Imports) -> String {
    let lines = circle.iter().map(|module| {
        let targets: Vec<_> = imports[module].intersection(circle).map(|target| target.as_str()).collect();
        format!("\n  {module} -> {}", targets.join(" "))
    });
    format!("a circle of {}{}", circle.len(), lines.collect::<String>())
}

fn module_path(file: &Path) -> String {
    let parts = file.with_extension("");
    let names = parts.iter().map(|part| part.to_string_lossy().into_owned());
    names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str())).collect::<Vec<_>>().join("::")
}

fn parent(module: &str) -> Option<&str> {
    (!module.is_empty()).then(|| module.rsplit_once("::").map_or("", |(parent, _)| parent))
}

pub(crate) fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn extended(before: &[String], name: &str) -> Vec<String> {
    before.iter().cloned().chain([name.to_owned()]).collect()
}

fn with_self(rest: &[String]) -> Vec<String> {
    ["self".to_owned()].into_iter().chain(rest.iter().cloned()).collect()
}

fn source_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(folder).expect("the folder of crates");
    let mut crates: Vec<_> = entries.map(|entry| entry.expect("a readable entry").path()).collect();
    crates.sort();
    crates
}
