//! A deserializer of serde for the parameters of a route: names, and values that are percent-encoded texts.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::request::Request;
use crate::route::PARAMETERS_MAX;

/// The parameters of a route in their order.
pub(crate) struct Parameters<'de> {
    /// Names, and values as they were sent.
    all: [(&'de str, &'de str); PARAMETERS_MAX],
    count: usize,
    next: usize,
}

/// Why parameters are not a value of a type.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParameterError {
    /// A value that the peer has sent is wrong.
    Value {
        /// The name of the parameter, empty until it is known.
        name: String,
        reason: String,
    },
    /// The type does not fit the route, whatever the peer sends.
    Type(String),
}

impl<'de> Parameters<'de> {
    pub(crate) fn of(request: &'de Request) -> Self {
        Self::new(request.parameters())
    }

    fn new(parameters: impl Iterator<Item = (&'de str, &'de str)>) -> Self {
        let mut all = [("", ""); PARAMETERS_MAX];
        let mut count = 0;
        for (place, parameter) in all.iter_mut().zip(parameters) {
            *place = parameter;
            count += 1;
        }
        Self { all, count, next: 0 }
    }

    fn next(&mut self) -> Option<Value<'de>> {
        let &(name, text) = self.all[..self.count].get(self.next)?;
        self.next += 1;
        Some(Value { name, text })
    }

    /// The value, if there is only one.
    fn single(mut self) -> Result<Value<'de>, ParameterError> {
        let count = self.count;
        match self.next() {
            Some(value) if count == 1 => Ok(value),
            _ => Err(ParameterError::Type(format!("it is one value, and the route has {count} parameters"))),
        }
    }
}

/// Types of one value, which the only parameter is.
macro_rules! of_single_value {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
            let value = self.single()?;
            let name = value.name;
            value.$method(visitor).map_err(|error| error.of(name))
        })*
    };
}

impl<'de> Deserializer<'de> for Parameters<'de> {
    type Error = ParameterError;

    of_single_value! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        let value = self.single()?;
        let parameter = value.name;
        value.deserialize_enum(name, variants, visitor).map_err(|error| error.of(parameter))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_map(self)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_map(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        visitor.visit_map(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_seq(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, ParameterError> {
        if length != self.count {
            let count = self.count;
            return Err(ParameterError::Type(format!("it has {length} values, and the route {count} parameters")));
        }
        visitor.visit_seq(self)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_unit()
    }
}

impl<'de> SeqAccess<'de> for Parameters<'de> {
    type Error = ParameterError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ParameterError> {
        let Some(value) = self.next() else { return Ok(None) };
        let name = value.name;
        seed.deserialize(value).map(Some).map_err(|error| error.of(name))
    }
}

impl<'de> MapAccess<'de> for Parameters<'de> {
    type Error = ParameterError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ParameterError> {
        match self.all[..self.count].get(self.next) {
            Some((name, _)) => seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, ParameterError> {
        let value = self.next().ok_or_else(|| ParameterError::Type("a value has no key".to_owned()))?;
        let name = value.name;
        seed.deserialize(value).map_err(|error| error.of(name))
    }
}

/// The value of one parameter, as it was sent.
struct Value<'de> {
    name: &'de str,
    text: &'de str,
}

impl<'de> Value<'de> {
    fn decode(&self) -> Result<Cow<'de, str>, ParameterError> {
        tidegate_http_message::percent::decode(self.text).ok_or_else(|| value_error("its value is not UTF-8"))
    }
}

/// Types that are parsed from a text.
macro_rules! parsed {
    ($($method:ident $visit:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
            visitor.$visit(self.decode()?.parse().map_err(value_error)?)
        })*
    };
}

/// Types that one value cannot be.
macro_rules! refused {
    ($($method:ident($($argument:ty),*) $text:literal)*) => {
        $(fn $method<V: Visitor<'de>>(self, $(_: $argument,)* _: V) -> Result<V::Value, ParameterError> {
            Err(ParameterError::Type(format!("the parameter `{}` cannot be {}", self.name, $text)))
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = ParameterError;

    parsed! {
        deserialize_bool visit_bool deserialize_char visit_char
        deserialize_i8 visit_i8 deserialize_i16 visit_i16 deserialize_i32 visit_i32 deserialize_i64 visit_i64
        deserialize_i128 visit_i128
        deserialize_u8 visit_u8 deserialize_u16 visit_u16 deserialize_u32 visit_u32 deserialize_u64 visit_u64
        deserialize_u128 visit_u128
        deserialize_f32 visit_f32 deserialize_f64 visit_f64
    }

    refused! {
        deserialize_seq() "a sequence"
        deserialize_tuple(usize) "a tuple"
        deserialize_tuple_struct(&'static str, usize) "a tuple"
        deserialize_map() "a map"
        deserialize_struct(&'static str, &'static [&'static str]) "a struct"
        deserialize_unit() "a unit"
        deserialize_unit_struct(&'static str) "a unit"
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        match self.decode()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        match self.decode()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_bytes(text.as_bytes()),
            Cow::Owned(text) => visitor.visit_byte_buf(text.into_bytes()),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParameterError> {
        visitor.visit_enum(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParameterError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { str string identifier }
}

impl<'de> EnumAccess<'de> for Value<'de> {
    type Error = ParameterError;
    type Variant = UnitVariant;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, UnitVariant), ParameterError> {
        Ok((seed.deserialize(self)?, UnitVariant))
    }
}

/// The content of a variant that has none.
struct UnitVariant;

impl<'de> VariantAccess<'de> for UnitVariant {
    type Error = ParameterError;

    fn unit_variant(self) -> Result<(), ParameterError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, ParameterError> {
        Err(not_unit())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ParameterError> {
        Err(not_unit())
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, ParameterError> {
        Err(not_unit())
    }
}

fn not_unit() -> ParameterError {
    ParameterError::Type("a variant of an enum has content".to_owned())
}

fn value_error(reason: impl Display) -> ParameterError {
    ParameterError::Value { name: String::new(), reason: reason.to_string() }
}

impl ParameterError {
    /// The same about the parameter of this name.
    fn of(mut self, parameter: &str) -> Self {
        if let Self::Value { name, .. } = &mut self
            && name.is_empty()
        {
            parameter.clone_into(name);
        }
        self
    }
}

impl Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { name, reason } => write!(f, "the parameter `{name}` of the path is not valid: {reason}"),
            Self::Type(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ParameterError {}

impl de::Error for ParameterError {
    fn custom<T: Display>(reason: T) -> Self {
        value_error(reason)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Type(format!("the route has no parameter `{field}`"))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::Type(format!("it has no field for the parameter `{field}`"))
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        Self::Type(format!("the route has {length} parameters, and it is {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    fn read<T: DeserializeOwned>(parameters: &[(&str, &str)]) -> Result<T, ParameterError> {
        T::deserialize(Parameters::new(parameters.iter().copied()))
    }

    fn reason<T: DeserializeOwned + fmt::Debug>(parameters: &[(&str, &str)]) -> String {
        read::<T>(parameters).unwrap_err().to_string()
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        High,
        Low,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Metres(f64);

    #[derive(Debug, Deserialize, PartialEq)]
    struct Tide {
        harbour: String,
        kind: Kind,
        height: Option<Metres>,
    }

    #[test]
    fn one_parameter_is_a_value_of_any_type() {
        assert_eq!(read::<u8>(&[("id", "255")]), Ok(255));
        assert_eq!(read::<i128>(&[("id", "-7")]), Ok(-7));
        assert_eq!(read::<bool>(&[("id", "true")]), Ok(true));
        assert_eq!(read::<char>(&[("id", "%C3%BC")]), Ok('ü'));
        assert_eq!(read::<String>(&[("id", "a%20b+c%2Fd")]), Ok("a b+c/d".to_owned()));
        assert_eq!(read::<Cow<'static, str>>(&[("id", "a")]), Ok("a".into()));
        assert_eq!(read::<Option<u8>>(&[("id", "1")]), Ok(Some(1)));
        assert_eq!(read::<Kind>(&[("id", "low")]), Ok(Kind::Low));
        assert_eq!(read::<Metres>(&[("id", "1.5")]), Ok(Metres(1.5)));
        assert_eq!(read::<(u8,)>(&[("id", "1")]), Ok((1,)));
        assert_eq!(read::<()>(&[("id", "1")]), Ok(()));
    }

    #[test]
    fn several_parameters_are_a_tuple_a_struct_or_a_map() {
        let all = [("harbour", "Saint%20Malo"), ("kind", "high"), ("height", "12.1")];
        let harbour = "Saint Malo".to_owned();
        assert_eq!(read::<(String, Kind, f32)>(&all), Ok((harbour.clone(), Kind::High, 12.1)));
        let tide = Tide { harbour, kind: Kind::High, height: Some(Metres(12.1)) };
        assert_eq!(read::<Tide>(&all), Ok(tide));
        assert_eq!(read::<Vec<String>>(&all).unwrap().len(), 3);
        assert_eq!(read::<HashMap<String, String>>(&all).unwrap()["kind"], "high");
    }

    #[test]
    fn a_wrong_value_names_its_parameter() {
        assert_eq!(
            reason::<u8>(&[("id", "256")]),
            "the parameter `id` of the path is not valid: number too large to fit in target type"
        );
        assert!(reason::<(u8, bool)>(&[("a", "1"), ("b", "yes")]).starts_with("the parameter `b`"));
        assert!(
            reason::<Kind>(&[("kind", "neap")]).starts_with("the parameter `kind` of the path is not valid: unknown")
        );
        let tide = [("harbour", "x"), ("kind", "high"), ("height", "much")];
        assert!(reason::<Tide>(&tide).starts_with("the parameter `height`"));
        assert_eq!(
            reason::<String>(&[("id", "%FF")]),
            "the parameter `id` of the path is not valid: its value is not UTF-8"
        );
    }

    #[test]
    fn a_type_that_does_not_fit_the_route_is_a_bug_of_the_application() {
        for error in [
            read::<u8>(&[("a", "1"), ("b", "2")]).unwrap_err(),
            read::<u8>(&[]).unwrap_err(),
            read::<(u8, u8)>(&[("a", "1")]).unwrap_err(),
            read::<(u8, (u8, u8))>(&[("a", "1"), ("b", "2")]).map(drop).unwrap_err(),
            read::<Tide>(&[("harbour", "x")]).map(drop).unwrap_err(),
            read::<HashMap<String, Vec<u8>>>(&[("a", "1")]).map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, ParameterError::Type(_)), "{error:?}");
        }
    }
}
