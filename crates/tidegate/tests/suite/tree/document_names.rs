//! An item that a document names behind its type and two colons exists: a method, a field, a variant, a constant or an associated type of
//! a type in this workspace. Documents are the Markdown files and the comments of modules. The code in them is left out,
//! since tests compile it.
//!
//! A type has the items of all types of its name, of the traits that it implements, and of the type that it is an alias of.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::sources::{markdown, rust_files};

/// Items of other crates that documents name.
const FOREIGN: &[(&str, &str)] = &[
    ("Config", "connect_raw"), // tokio-postgres
    ("Duration", "MAX"),
    ("Router", "get"),      // ours, which a macro declares
    ("Routes", "new"),      // tonic
    ("Signals", "forever"), // signal-hook
    ("Signals", "new"),
    ("StatusCode", "CREATED"), // http
    ("StatusCode", "NOT_FOUND"),
    ("StreamExt", "split"), // futures-util
];

#[test]
fn every_item_that_a_document_names_exists() {
    let sources = rust_files(&["benches", "crates", "examples", "fuzz"]);
    let types = Types::read(&sources);
    let mut missing = Vec::new();
    for (path, text) in documents(&sources) {
        for (line, name) in named_items(&text) {
            if !types.have(&name) {
                missing.push(format!("{path}:{line}: {}::{}", name.0, name.1));
            }
        }
    }
    assert!(missing.is_empty(), "documents name items that do not exist:\n{}", missing.join("\n"));
}

/// The text of each document. The text of a source is that of its `//!` comments, with the other lines empty.
fn documents(sources: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut documents = markdown();
    // These pages have the names of other frameworks beside ours.
    for (_, text) in documents.iter_mut().filter(|(path, _)| path.starts_with("docs/moving/")) {
        *text = names_of_ours(text);
    }
    documents.extend(sources.iter().map(|(path, source)| (path.clone(), module_comments(source))));
    documents
}

/// The columns of tables but the first, each line in its place.
fn names_of_ours(text: &str) -> String {
    let ours = text.lines().map(|line| line.strip_prefix('|').and_then(|row| row.split_once('|')));
    ours.map(|columns| columns.map_or("", |(_, ours)| ours)).collect::<Vec<_>>().join("\n")
}

fn module_comments(source: &str) -> String {
    let lines = source.lines().map(|line| line.trim_start().strip_prefix("//!").unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// A type, and the item that is named of it.
type ItemName = (String, String);

/// The items that spans of code name, with their lines.
fn named_items(text: &str) -> Vec<(usize, ItemName)> {
    let (mut items, mut is_in_block) = (Vec::new(), false);
    // A span may go on in the next line, but not in the next paragraph.
    let (mut paragraph, mut begin) = (String::new(), 1);
    for (number, line) in text.lines().chain([""]).enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_in_block ^= is_fence;
        if line.trim().is_empty() || is_fence || is_in_block || line.starts_with('|') {
            let complete = std::mem::take(&mut paragraph);
            items.extend(items_of(&complete).into_iter().map(|(at, name)| (begin + at, name)));
            begin = number + 2;
            if !is_fence && !is_in_block {
                items.extend(items_of(line).into_iter().map(|(_, name)| (number + 1, name)));
            }
        } else {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    items
}

/// The items that the spans of one paragraph name, with the number of line ends before each span.
fn items_of(paragraph: &str) -> Vec<(usize, ItemName)> {
    let mut lines = 0;
    let mut items = Vec::new();
    for (number, part) in paragraph.split('`').enumerate() {
        if number % 2 == 1 {
            items.extend(paths(part).into_iter().map(|name| (lines, name)));
        }
        lines += part.matches('\n').count();
    }
    items
}

/// Each `Type::item` in a span of code: a type begins with an upper-case letter.
fn paths(code: &str) -> Vec<ItemName> {
    let is_of_word = |next: char| next.is_alphanumeric() || next == '_';
    let found = code.match_indices("::").filter_map(|(at, colons)| {
        let before = &code[..at];
        let name = &before[before.trim_end_matches(is_of_word).len()..];
        let after = &code[at + colons.len()..];
        let item = &after[..after.len() - after.trim_start_matches(is_of_word).len()];
        let is_type = name.starts_with(|first: char| first.is_ascii_uppercase()) && name != "Self";
        (is_type && !item.is_empty()).then(|| (name.to_owned(), item.to_owned()))
    });
    found.collect()
}

/// The items of each type, and the types whose items it has as well.
#[derive(Default)]
struct Types {
    items: BTreeMap<String, BTreeSet<String>>,
    also: BTreeMap<String, BTreeSet<String>>,
    /// Traits that derive attributes implement.
    derived: BTreeSet<(String, String)>,
}

impl Types {
    fn read(sources: &BTreeMap<String, String>) -> Self {
        let mut types = Self::default();
        for (path, source) in sources {
            let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
            types.visit_file(&file);
        }
        types
    }

    fn have(&self, (name, item): &ItemName) -> bool {
        if FOREIGN.contains(&(&**name, &**item)) {
            return true;
        }
        let (mut seen, mut pending) = (BTreeSet::new(), vec![name]);
        while let Some(next) = pending.pop() {
            if self.items.get(next).is_some_and(|items| items.contains(item)) {
                return true;
            }
            if seen.insert(next) {
                pending.extend(self.also.get(next).into_iter().flatten());
            }
        }
        item == "default" && self.derived.contains(&(name.clone(), "Default".to_owned()))
    }

    fn add(&mut self, name: &syn::Ident, items: impl IntoIterator<Item = String>) {
        self.items.entry(name.to_string()).or_default().extend(items);
    }

    fn link(&mut self, name: String, other: String) {
        self.also.entry(name).or_default().insert(other);
    }

    fn note_derives(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
            let _ = attribute.parse_nested_meta(|meta| {
                let derived = meta.path.segments.last().map(|segment| segment.ident.to_string());
                self.derived.extend(derived.map(|derived| (name.to_string(), derived)));
                Ok(())
            });
        }
    }
}

impl Visit<'_> for Types {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.add(&item.ident, item.fields.iter().filter_map(|field| Some(field.ident.as_ref()?.to_string())));
        self.note_derives(&item.ident, &item.attrs);
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.add(&item.ident, item.variants.iter().map(|variant| variant.ident.to_string()));
        self.note_derives(&item.ident, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &syn::ItemType) {
        if let Some(target) = name_of_type(&item.ty) {
            self.link(item.ident.to_string(), target);
        }
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        let names = item.items.iter().filter_map(|item| match item {
            syn::TraitItem::Const(item) => Some(item.ident.to_string()),
            syn::TraitItem::Fn(item) => Some(item.sig.ident.to_string()),
            syn::TraitItem::Type(item) => Some(item.ident.to_string()),
            _ => None,
        });
        self.add(&item.ident, names);
        for bound in &item.supertraits {
            if let syn::TypeParamBound::Trait(bound) = bound {
                self.link(item.ident.to_string(), last_of(&bound.path));
            }
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        if let Some(name) = name_of_type(&item.self_ty) {
            let names = item.items.iter().filter_map(|item| match item {
                syn::ImplItem::Const(item) => Some(item.ident.to_string()),
                syn::ImplItem::Fn(item) => Some(item.sig.ident.to_string()),
                syn::ImplItem::Type(item) => Some(item.ident.to_string()),
                _ => None,
            });
            self.items.entry(name.clone()).or_default().extend(names);
            if let Some((_, implemented, _)) = &item.trait_ {
                self.link(name, last_of(implemented));
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_use_rename(&mut self, item: &syn::UseRename) {
        self.link(item.rename.to_string(), item.ident.to_string());
    }

    /// Items within a macro such as `pin_project!` count like any other.
    fn visit_item_macro(&mut self, item: &syn::ItemMacro) {
        if let Ok(file) = item.mac.parse_body::<syn::File>() {
            self.visit_file(&file);
        }
    }
}

fn name_of_type(found: &syn::Type) -> Option<String> {
    match found {
        syn::Type::Path(found) => Some(last_of(&found.path)),
        syn::Type::Reference(found) => name_of_type(&found.elem),
        _ => None,
    }
}

fn last_of(path: &syn::Path) -> String {
    path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default()
}

#[test]
fn a_named_item_is_found_in_its_type_its_traits_and_its_aliases() {
    let source = "
        #[derive(Default)] pub struct Limits { pub body_max: u64 }
        pub enum Outcome { Close }
        pub trait Codec: Fault { type Error; const A: u8; fn decode(&mut self); }
        pub trait Fault { fn blame(&self); }
        struct Lines; impl Codec for Lines { fn own(&self) {} }
        pub type Text = Lines; pub use Lines as Rows;
    ";
    let types = Types::read(&BTreeMap::from([("lib.rs".to_owned(), source.to_owned())]));
    let have = |text: &str| named_items(text).iter().all(|(_, name)| types.have(name));
    assert!(have("`Limits::body_max`, `Limits::default()` and `codec::Outcome::Close`"));
    assert!(have("`Codec::Error` and `Codec::A`; `Lines::decode`, `Text::own`, `Rows::blame`"));
    for missing in ["Codec::close", "Limits::time_max", "Host::station", "Outcome::default", "Text::close(Codec::A)"] {
        assert!(!have(&format!("It is `{missing}`.")), "{missing}");
    }
}

#[test]
fn names_are_found_in_spans_and_tables_and_not_in_blocks_of_code() {
    let text = "One `A::one` and\n`B::two(&mut C::three()\n, d)`.\n\n```rust\nlet `D::four`;\n```\n| `E::five` | f |\n`g::six`\n";
    let names: Vec<_> =
        named_items(text).into_iter().map(|(line, (name, item))| format!("{line} {name} {item}")).collect();
    assert_eq!(names, ["1 A one", "2 B two", "2 C three", "8 E five"]);
    assert_eq!(module_comments("//! `A::one`\nuse a;\n/// `B::two`\n"), " `A::one`\n\n");
}
