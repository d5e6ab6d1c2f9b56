//! The keys of a `[[route]]` with `folder`, its error pages, and its names and passwords.

use tidegate::http::{Passwords, Response};

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Mistakes, Place};
use super::model::{BasicAuthRule, ErrorPage, Owner, REALM, Route};
use super::reader::Reader;
use super::source::read_text;
use super::upstream::literal;
use super::value::Value;
use crate::admission::parse_rate;

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

pub(super) const INTERCEPT_ERRORS: Key<Route> = Key::<Route>::new(
    "intercept-errors",
    Kind::Boolean,
    "Replace the errors of the upstream by `error-pages`, too.",
    |route, value, reader| {
        route.used.push(("intercept-errors", value.place, Owner::Upstream));
        route.intercepts_errors = reader.boolean(value);
    },
)
.default("false")
.known_as(&["proxy-intercept-errors"]);

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
        Key::<Self>::new("users", Kind::Map(&Kind::Secret), "Passwords by name: hashes of argon2 or bcrypt, as `htpasswd -nB NAME` makes them, or all in the clear.", |to, value, reader| {
            for (name, password) in reader.entries(value) {
                if name.text.contains(':') {
                    reader.mistake(name.place, format!("the user name `{}` has a colon", name.text.escape_debug()));
                }
                let place = password.place;
                let password = reader.secret(password);
                if password.is_empty() {
                    reader.mistake(place, format!("the password of `{}` is empty", name.text.escape_debug()));
                }
                if is_hash(&password) {
                    to.add_hashes(&format!("{}:{password}\n", name.text), place, reader);
                } else {
                    to.users.push((name.text.clone(), password));
                }
            }
        }),
        Key::<Self>::new(
            "file",
            Kind::Path,
            "A file of `htpasswd` with further users: a line `NAME:HASH` each, with hashes of argon2 or bcrypt. A reload reads it \
             again.",
            |to, value, reader| {
                let path = reader.path(value);
                match read_text(&path.value, HASHES_BYTES_MAX) {
                    Ok(text) => to.add_hashes(&text, value.place, reader),
                    Err(error) => reader.mistake(value.place, format!("`{}`: {error}", path.value.display())),
                }
            },
        )
        .known_as(&["users-file", "auth-basic-user-file", "htpasswd"]),
        Key::<Self>::new(
            "guesses",
            Kind::Text,
            "Pairs of one client that may be checked with hashes, such as `1/s:20`; further ones get a 429. A pair that was right \
             counts once in five minutes.",
            |to, value, reader| {
                let text = reader.text(value);
                match parse_rate(&text) {
                    Ok(rate) => to.guesses = Some(rate),
                    Err(error) => reader.mistake(value.place, format!("`{text}` is {error}")),
                }
            },
        )
        .default("\"1/s:20\""),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
        self.realm = REALM.into();
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        match (self.users.is_empty(), self.hashes.is_empty()) {
            (true, true) => mistakes.add(self.place, "there are no users: `users`, or `file`"),
            (false, false) => mistakes.add(
                self.place,
                "some passwords are hashes and some are in the clear: make hashes of all, as by `htpasswd -nB NAME`",
            ),
            (true, false) => {
                // Each part is right by itself; together, a name may come twice.
                if let Err(error) = Passwords::parse(&self.hashes) {
                    mistakes.add(self.place, format!("the users together: {error}"));
                }
            }
            (false, true) if self.guesses.is_some() => {
                mistakes.add(self.place, "`guesses` is for passwords with hashes");
            }
            (false, true) => {}
        }
    }
}

impl BasicAuthRule {
    /// Adds lines with hashes; a mistake has the place of the value, and the line if there are several.
    fn add_hashes(&mut self, text: &str, place: Place, reader: &mut Reader<'_>) {
        match Passwords::parse(text) {
            Ok(_) => {
                self.hashes.push_str(text);
                self.hashes.push('\n');
            }
            Err(error) => reader.mistake(place, error.to_string()),
        }
    }
}

/// Whether a password is a hash.
fn is_hash(password: &str) -> bool {
    ["$2y$", "$2b$", "$2a$", "$argon2"].iter().any(|prefix| password.starts_with(prefix))
}

/// A hundred thousand users.
const HASHES_BYTES_MAX: u64 = 8 * 1024 * 1024;
