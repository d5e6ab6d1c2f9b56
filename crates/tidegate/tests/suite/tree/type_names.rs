//! A type name stands for one thing: at most twice in a crate, and at most six times in all crates. Private types count as
//! well; types of unit tests and associated types do not.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::sources::{differences, rust_files};

const IN_A_CRATE_MAX: usize = 2;
const IN_ALL_CRATES_MAX: usize = 6;

/// Names that stand more often in a crate. The list may only shrink.
const MORE_IN_A_CRATE: &[(&str, usize)] = &[];

/// Names that stand more often in all crates. The list may only shrink, but for a further protocol. `Client`, `Config`,
/// `Connection`, `Error` and `Limits` stay: their crates qualify them.
const MORE_IN_ALL_CRATES: &[(&str, usize)] =
    &[("Client", 7), ("Config", 8), ("Connection", 7), ("Error", 9), ("Limits", 7)];

#[test]
fn a_type_name_stands_at_most_twice_in_a_crate_and_six_times_in_all_crates() {
    let definitions = definitions(&rust_files(&["crates"]));
    let names: Vec<_> = definitions.iter().filter_map(|name| Some(name.split_once("::")?.1.to_owned())).collect();
    let mut found = differences(&counts(&definitions, IN_A_CRATE_MAX), MORE_IN_A_CRATE);
    found.extend(differences(&counts(&names, IN_ALL_CRATES_MAX), MORE_IN_ALL_CRATES));
    assert!(found.is_empty(), "types of the same name in a crate, or in all crates:\n{}", found.join("\n"));
}

/// The names that stand more than `max` times, and how often.
fn counts(names: &[String], max: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    names.iter().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    counts.retain(|_, count| *count > max);
    counts
}

/// The types that files of crates define, as `crate::Name`, one for each definition.
fn definitions(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut definitions = Vec::new();
    for (path, source) in files {
        let mut parts = path.split('/').skip(1);
        let (Some(name), Some("src")) = (parts.next(), parts.next()) else { continue };
        if parts.any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut types = Types::default();
        types.visit_file(&file);
        definitions.extend(types.0.into_iter().map(|found| format!("{name}::{found}")));
    }
    definitions
}

#[derive(Default)]
struct Types(Vec<String>);

impl Visit<'_> for Types {
    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_union(&mut self, item: &syn::ItemUnion) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.0.push(item.ident.to_string());
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.0.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
    }

    /// A struct within `pin_project!` counts like any other.
    fn visit_item_macro(&mut self, item: &syn::ItemMacro) {
        if let Ok(file) = item.mac.parse_body::<syn::File>() {
            self.visit_file(&file);
        }
    }

    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        let is_of_tests = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
        });
        if !is_of_tests {
            visit::visit_item_mod(self, item);
        }
    }
}

#[test]
fn private_types_count_and_types_of_tests_do_not() {
    let file = |path: &str, source: &str| (path.to_owned(), source.to_owned());
    let files = BTreeMap::from([
        file("crates/one/src/lib.rs", "pub struct State; mod inner { enum State { On } } type Other = State;"),
        file("crates/one/src/more.rs", "fn f() { struct State; } #[cfg(test)] mod tests { struct State; }"),
        file(
            "crates/one/src/pinned.rs",
            "pin_project! { struct Pinned { #[pin] a: u8 } } impl T for Pinned { type A = u8; }",
        ),
        file("crates/one/src/more/tests.rs", "struct State;"),
        file("crates/one/tests/state.rs", "struct State;"),
        file("crates/two/src/lib.rs", "trait State {} union Both { a: u8 }"),
    ]);
    let mut found = definitions(&files);
    found.sort();
    let states = ["one::State", "one::State", "one::State", "two::Both", "two::State"];
    assert_eq!(found, [&["one::Other", "one::Pinned"], &states[..]].concat());
    assert_eq!(counts(&found, IN_A_CRATE_MAX), BTreeMap::from([("one::State".to_owned(), 3)]));
}
