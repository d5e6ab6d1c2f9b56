//! The JSON schema of the file, for editors: written from the descriptions of its keys.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Config;
use super::keys::{Kind, Need, TableInfo, info};

/// The JSON schema (draft 2020-12) of the file.
pub(crate) fn schema() -> Value {
    let mut tables = BTreeMap::new();
    let root = object(&info::<Config>(), &mut tables);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of tidegate",
        "$defs": tables,
    });
    if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
        schema.extend(root);
    }
    schema
}

/// A table, whose own tables are added to `tables`.
fn object(table: &TableInfo, tables: &mut BTreeMap<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in &table.keys {
        let mut property = of_kind(key.kind, tables);
        if let Value::Object(property) = &mut property {
            property.insert("description".into(), key.text.into());
            if let Need::Default(default) = key.need
                && let Some(default) = as_json(default)
            {
                property.insert("default".into(), default);
            }
        }
        properties.insert(key.name.into(), property);
    }
    let is_required = |need| need == Need::Required;
    let required: Vec<_> = table.keys.iter().filter(|key| is_required(key.need)).map(|key| key.name).collect();
    json!({
        "type": "object",
        "description": table.text,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn of_kind(kind: Kind, tables: &mut BTreeMap<String, Value>) -> Value {
    match kind {
        Kind::Text | Kind::Path => json!({ "type": "string" }),
        Kind::Secret => json!({ "anyOf": [
            { "type": "string" },
            {
                "type": "object",
                "properties": { "file": { "type": "string" } },
                "required": ["file"],
                "additionalProperties": false,
            },
        ] }),
        // A text with a variable of the environment may stand for both.
        Kind::Boolean => json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": VARIABLE }] }),
        Kind::Integer { min, max } | Kind::Seconds { min, max } => json!({ "anyOf": [
            { "type": "integer", "minimum": min, "maximum": max },
            { "type": "string", "pattern": VARIABLE },
        ] }),
        Kind::Percent => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 100 },
            { "type": "string", "pattern": VARIABLE },
        ] }),
        Kind::Choice(names) => json!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": VARIABLE }] }),
        Kind::List(inner) => json!({ "type": "array", "items": of_kind(*inner, tables) }),
        Kind::OneOrMore(inner) => {
            let inner = of_kind(*inner, tables);
            json!({ "anyOf": [inner, { "type": "array", "items": inner }] })
        }
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": of_kind(*inner, tables) }),
        Kind::Table(info) => {
            let table = info();
            let name: String =
                table.title.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
            if !tables.contains_key(&name) {
                tables.insert(name.clone(), Value::Null);
                let described = object(&table, tables);
                tables.insert(name.clone(), described);
            }
            json!({ "$ref": format!("#/$defs/{name}") })
        }
        Kind::Either(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(|kind| of_kind(*kind, tables)).collect();
            json!({ "anyOf": kinds })
        }
    }
}

/// A default as the file would have it, as JSON. Texts, numbers, lists of texts are the same in both.
fn as_json(default: &str) -> Option<Value> {
    serde_json::from_str(default).ok()
}

const VARIABLE: &str = r"\$\{";
