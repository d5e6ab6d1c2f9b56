//! The keys of a `[[route]]` with `folder`, its error pages, and its names and passwords.

use tidegate::http::Response;

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use super::model::{BasicAuthRule, ErrorPage, Owner, REALM, Route};
use super::reader::Reader;
use super::upstream::literal;
use super::value::Value;

/// A key that only a folder has, which is true or false.
macro_rules! folder_key {
    ($const:ident, $field:ident, $name:literal, $default:literal, $text:literal) => {
        pub(super) const $const: Key<Route> = Key::<Route>::new($name, Kind::Boolean, $text, |route, value, reader| {
            route.used.push(($name, value.place, Owner::Folder));
            route.files.$field = reader.boolean(value);
        })
        .default($default);
    };
}

folder_key!(INDEX, index, "index", "true", "Serve a directory by its `index.html`.");
folder_key!(LISTING, listing, "listing", "false", "List directories without one.");
folder_key!(
    PRECOMPRESSED,
    precompressed,
    "precompressed",
    "false",
    "Serve `NAME.br`, `NAME.zst` or `NAME.gz` in place of `NAME` to clients that accept it."
);
folder_key!(COMPRESSION, compression, "compression", "true", "Compress types that compress well.");
folder_key!(SYMLINKS, symlinks, "symlinks", "false", "Follow symbolic links, within the folder only.");
folder_key!(DOT_FILES, dot_files, "dot-files", "false", "Serve files whose names begin with a dot.");

pub(super) const CACHE_CONTROL: Key<Route> =
    Key::<Route>::new("cache-control", Kind::Text, "The value of `Cache-Control`.", |route, value, reader| {
        route.used.push(("cache-control", value.place, Owner::Folder));
        let text = literal(value, reader);
        if let Err(error) = Response::new().header("Cache-Control", &text) {
            reader.mistake(value.place, format!("`{}`: {error}", text.escape_debug()));
        }
        route.files.cache_control = Some(text);
    });

/// Pages by status.
pub(super) fn error_pages(value: &Value, reader: &mut Reader<'_>) -> Vec<ErrorPage> {
    let mut pages = Vec::new();
    for (name, page) in reader.entries(value) {
        let path = reader.path(page);
        match ErrorPage::new(&name.text, path) {
            Ok(page) => pages.push(page),
            Err((text, is_status)) => reader.mistake(if is_status { name.place } else { page.place }, text),
        }
    }
    pages
}

impl Keys for BasicAuthRule {
    const TITLE: &'static str = "basic-auth";
    const TEXT: &'static str = "Names and passwords that a client needs.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("realm", Kind::Text, "What the browser shows.", |to, value, reader| {
            to.realm = reader.text(value);
            let is_plain = |byte| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
            if !to.realm.bytes().all(is_plain) {
                reader.mistake(value.place, "a realm is ASCII without quotes and backslashes");
            }
        })
        .default("\"restricted\""),
        Key::<Self>::new("users", Kind::Map(&Kind::Secret), "Passwords by name.", |to, value, reader| {
            for (name, password) in reader.entries(value) {
                if name.text.contains(':') {
                    reader.mistake(name.place, format!("the user name `{}` has a colon", name.text.escape_debug()));
                }
                let place = password.place;
                let password = reader.secret(password);
                if password.is_empty() {
                    reader.mistake(place, format!("the password of `{}` is empty", name.text.escape_debug()));
                }
                to.users.push((name.text.clone(), password));
            }
        })
        .required(),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
        self.realm = REALM.into();
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        if self.users.is_empty() {
            mistakes.add(self.place, "there are no users");
        }
    }
}
