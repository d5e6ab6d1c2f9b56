//! JSON objects in which each name occurs once.
//!
//! RFC 7515 §4 and RFC 7519 §4 leave to a reader whether it refuses a name that occurs twice. Two readers that choose
//! differently would see two users in one token, so such a token is refused. serde_json bounds the depth, at 128.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The object that these bytes are, and nothing else.
pub(super) fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice::<StrictValue>(bytes) {
        Ok(StrictValue(Value::Object(object))) => Some(object),
        _ => None,
    }
}

struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("no finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, StrictValue(value))) = entries.next_entry::<String, StrictValue>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_serde_json_reads_it() {
        let text = r#"{"sub":"ebb","n":[1,-2,2.5,true,null,{"a":"ü"}]}"#;
        assert_eq!(object(text.as_bytes()).map(Value::Object), serde_json::from_str::<Value>(text).ok());
    }

    #[test]
    fn names_that_occur_twice_deep_values_and_others_than_objects_are_refused() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let texts = [
            r#"{"sub":"ebb","sub":"flow"}"#,
            r#"{"a":{"b":1,"b":1}}"#,
            r#"{"s\u0075b":1,"sub":2}"#,
            "[]",
            "7",
            "",
            "{",
            &deep,
        ];
        for text in texts {
            assert!(object(text.as_bytes()).is_none(), "{text}");
        }
        assert!(
            object(b"{} {}").is_none() && object(b"{\"a\":\"\xff\"}").is_none() && object(b"{\"a\":1e999}").is_none()
        );
    }
}
