//! The key `rewrite`: another path for the upstream.

use tidegate::http::proxy::{InvalidRewrite, Rewrite};

use super::keys::{Key, Keys, Kind};
use super::mistakes::{Located, Mistakes, Place};

/// One change of the path.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RewriteRule {
    place: Located<()>,
    pattern: Option<String>,
    to: Option<String>,
    add_prefix: Option<String>,
}

impl Keys for RewriteRule {
    const TITLE: &'static str = "rewrite";
    const TEXT: &'static str = "Another path for the upstream, after `strip-path`: `pattern` with `to`, or `add-prefix`. Several are \
         applied one after the other. A path that is none then gets a 400.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "pattern",
            Kind::Text,
            "A regular expression (of the crate `regex`, for ASCII), which is matched with the decoded path, such as \
             `^/item/([0-9]+)$`. Its time is linear. A path that it does not match stays.",
            |to, value, reader| to.pattern = Some(reader.text(value)),
        )
        .known_as(&["regex", "match"]),
        Key::<Self>::new(
            "to",
            Kind::Text,
            "What replaces the part that matches: `$1` and `$name` are groups, `$$` is a dollar sign. Behind a `?`, a group adds no \
             parameter to the query.",
            |to, value, reader| to.to = Some(reader.text(value)),
        )
        .known_as(&["replacement", "replace"]),
        Key::<Self>::new(
            "add-prefix",
            Kind::Text,
            "Segments before the path, such as `/v2`.",
            |to, value, reader| to.add_prefix = Some(reader.text(value)),
        ),
    ];

    fn at(&mut self, place: Place) {
        self.place = Located::new((), place);
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        match (&self.pattern, &self.to, &self.add_prefix) {
            (Some(_), Some(_), None) | (None, None, Some(_)) => {
                if let Err(error) = self.rewrite() {
                    let text = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
                    mistakes.add(self.place.place, format!("`rewrite`: {text}"));
                }
            }
            _ => mistakes.add(self.place.place, "a rewrite has `pattern` and `to`, or `add-prefix`"),
        }
    }
}

impl RewriteRule {
    /// The change, which was checked.
    pub(crate) fn rewrite(&self) -> Result<Rewrite, InvalidRewrite> {
        match &self.add_prefix {
            Some(prefix) => Rewrite::add_prefix(prefix),
            None => {
                let text = |set: &Option<String>| set.clone().unwrap_or_default();
                Rewrite::pattern(&text(&self.pattern), &text(&self.to))
            }
        }
    }
}
