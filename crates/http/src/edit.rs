//! `Edit`: one change of the fields of a message: a field is set, added or removed.

use tidegate_http1::{Fields, InvalidField};

use crate::field_names::{is_of_connection, is_same};
use crate::template::{Template, TemplatePart, TemplateValues};

/// A change of the fields of a message. Fields of one connection and those that the codec writes, such as `Host`,
/// `Content-Length`, `Transfer-Encoding` and `Connection`, cannot be set.
///
/// A text is sent as it is. A [`Template`] has its values filled in for each request; where that yields nothing, no field is
/// sent.
///
/// ```
/// use tidegate::http::{Edit, Template};
///
/// let edits = [
///     Edit::set("X-Gateway", "tide")?,
///     Edit::set("X-Client", Template::parse("{client.ip}")?)?,
///     Edit::remove("X-Powered-By"),
/// ];
/// # drop(edits);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    name: String,
    /// `None` if the fields of this name are removed.
    value: Option<EditValue>,
    keeps_others: bool,
}

/// The value that an [`Edit`] sets: a text as it is, or a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditValue(ValueSource);

#[derive(Debug, Clone, PartialEq, Eq)]
enum ValueSource {
    Text(String),
    Template(Template),
}

impl From<&str> for EditValue {
    fn from(text: &str) -> Self {
        Self(ValueSource::Text(text.to_owned()))
    }
}

impl From<String> for EditValue {
    fn from(text: String) -> Self {
        Self(ValueSource::Text(text))
    }
}

impl From<&String> for EditValue {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Template> for EditValue {
    fn from(template: Template) -> Self {
        if template.is_constant() {
            let text = template.parts().iter().map(|part| match part {
                TemplatePart::Text(text) => &**text,
                TemplatePart::Value(_) => "",
            });
            return Self(ValueSource::Text(text.collect()));
        }
        Self(ValueSource::Template(template))
    }
}

impl Edit {
    /// Replaces all fields of a name by one.
    ///
    /// # Errors
    /// [`InvalidField`] if the field cannot be sent, or if it belongs to one connection.
    pub fn set(name: impl Into<String>, value: impl Into<EditValue>) -> Result<Self, InvalidField> {
        Self::new(name.into(), value.into(), false)
    }

    /// Adds a field to those of the same name.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn add(name: impl Into<String>, value: impl Into<EditValue>) -> Result<Self, InvalidField> {
        Self::new(name.into(), value.into(), true)
    }

    /// Removes all fields of a name.
    #[must_use]
    pub fn remove(name: impl Into<String>) -> Self {
        Self { name: name.into(), value: None, keeps_others: false }
    }

    fn new(name: String, value: EditValue, keeps_others: bool) -> Result<Self, InvalidField> {
        if is_of_connection(name.as_bytes()) {
            return Err(InvalidField::Reserved);
        }
        let mut checked = Fields::new();
        match &value.0 {
            ValueSource::Text(text) => checked.push(&name, text)?,
            ValueSource::Template(template) => {
                let mut literals = template.parts().iter().filter_map(|part| match part {
                    TemplatePart::Text(text) => Some(&**text),
                    TemplatePart::Value(_) => None,
                });
                checked.push(&name, "")?;
                literals.try_for_each(|text| checked.push(&name, text))?;
            }
        }
        Ok(Self { name, value: Some(value), keeps_others })
    }

    /// The name of the field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the value has parts of a response; see [`Template::needs_response`].
    #[must_use]
    pub fn needs_response(&self) -> bool {
        matches!(&self.value, Some(EditValue(ValueSource::Template(template))) if template.needs_response())
    }

    /// Whether two requests for one URL may get different values; see [`Template::reads_client`].
    #[must_use]
    pub fn reads_client(&self) -> bool {
        matches!(&self.value, Some(EditValue(ValueSource::Template(template))) if template.reads_client())
    }

    /// Whether the value has parameters of the TLS connection; see [`Template::reads_tls`].
    #[must_use]
    pub fn reads_tls(&self) -> bool {
        matches!(&self.value, Some(EditValue(ValueSource::Template(template))) if template.reads_tls())
    }

    /// Whether it is about the fields of this name.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn is_about(&self, name: &[u8]) -> bool {
        is_same(self.name.as_bytes(), name)
    }

    /// Whether the value is the same for each message, or there is none.
    #[doc(hidden)]
    #[must_use]
    pub fn is_constant(&self) -> bool {
        !matches!(&self.value, Some(EditValue(ValueSource::Template(_))))
    }

    /// Whether it removes the fields of this name that are there.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn replaces(&self, name: &[u8]) -> bool {
        !self.keeps_others && self.is_about(name)
    }

    /// Adds the field that it sets, if it sets one. `values` is called for a template alone.
    #[doc(hidden)]
    #[inline]
    pub fn add_to<'a>(&self, fields: &mut Fields, values: impl FnOnce() -> TemplateValues<'a>) {
        match &self.value {
            None => {}
            // Both are checked for a text.
            Some(EditValue(ValueSource::Text(text))) => fields.push_valid(&self.name, text.as_bytes()),
            Some(EditValue(ValueSource::Template(template))) => add_filled(fields, &self.name, template, &values()),
        }
    }
}

#[inline(never)]
fn add_filled(fields: &mut Fields, name: &str, template: &Template, values: &TemplateValues<'_>) {
    let value = template.fill(values);
    let value = value.trim_ascii();
    if !value.is_empty() {
        // The name and the literal parts are checked, and no value has control characters.
        fields.push_valid(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    #[test]
    fn a_field_that_cannot_be_sent_is_no_edit() {
        for name in ["Content-Length", "transfer-encoding", "Connection", "Keep-Alive", "Upgrade", "TE", "Host"] {
            assert_eq!(Edit::set(name, "1"), Err(InvalidField::Reserved), "{name}");
            assert_eq!(Edit::add(name, template("{client.ip}")), Err(InvalidField::Reserved), "{name}");
        }
        assert_eq!(Edit::set("Transfer_Encoding", "1"), Err(InvalidField::Reserved));
        assert_eq!(Edit::add("X Y", "1"), Err(InvalidField::Name));
        assert_eq!(Edit::add("X Y", template("{client.ip}")), Err(InvalidField::Name));
        assert_eq!(Edit::set("X", "1\r\nY: 2"), Err(InvalidField::Value));
        assert_eq!(Edit::set("X", template("{client.ip}\r\nY: 2")), Err(InvalidField::Value));
        assert_eq!(Edit::set("X", template("1\r\nY: 2")), Err(InvalidField::Value));
    }

    #[test]
    fn a_text_is_sent_as_it_is_and_a_template_with_its_values() {
        let request = request("GET", "/a", "X-A: \r\n");
        let mut fields = Fields::new();
        for edit in [
            Edit::set("A", "{client.ip}").unwrap(),
            Edit::set("B", template("[{client.ip}]")).unwrap(),
            Edit::set("C", template("{request.header.X-A}")).unwrap(),
            Edit::add("D", template("{{}}")).unwrap(),
            Edit::remove("E"),
        ] {
            edit.add_to(&mut fields, || TemplateValues::new(&request));
        }
        assert_eq!(fields.bytes(), b"A: {client.ip}\r\nB: [192.0.2.1]\r\nD: {}\r\n");
    }
}
