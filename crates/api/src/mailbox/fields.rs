//! Fields of requests and answers: each type holds its rule, how it is written, and how it is described.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use ron_types::limits::mailbox as limits;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use svc_mailbox::bounds;
use svc_mailbox::types::{MessageId, TopicName};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// Padding is written; in requests it may be missing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Bytes as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base64(pub Bytes);

/// An idempotency key or a group: 1 to 128 printable ASCII characters without spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(pub String);

/// Attributes: names and values in the order they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attrs(pub Vec<(String, String)>);

/// Attributes to look for: those that the node keeps for itself as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SoughtAttrs(pub Vec<(String, String)>);

/// The same, borrowed for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttrsView<'a>(pub &'a [(String, String)]);

/// The name of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topic(pub TopicName);

/// The id of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub MessageId);

/// A BLAKE3 hash: `b3:` and 64 hex digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash<'a>(pub &'a [u8; 32]);

/// Text that is borrowed from the request where nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub Cow<'a, str>);

/// Reads text by a rule, without a copy of the text in between.
struct Ruled<T>(&'static str, fn(&str) -> Result<T, Cow<'static, str>>, PhantomData<T>);

impl<T> Visitor<'_> for Ruled<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(E::custom)
    }
}

fn ruled<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
    rule: fn(&str) -> Result<T, Cow<'static, str>>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Ruled(expected, rule, PhantomData))
}

fn parsed<T: FromStr<Err = ron_types::Error>>(text: &str) -> Result<T, Cow<'static, str>> {
    text.parse().map_err(|error: ron_types::Error| error.detail)
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ruled(deserializer, "text in base64", |text| {
            // With vector instructions; what this refuses may still lack nothing but padding.
            if let Ok(bytes) = base64_simd::STANDARD.decode_to_vec(text) {
                return Ok(Base64(bytes.into()));
            }
            let mut bytes = vec![0; base64::decoded_len_estimate(text.len())];
            let length = BASE64.decode_slice(text, &mut bytes).map_err(|error| format!("not base64: {error}"))?;
            bytes.truncate(length);
            Ok(Base64(bytes.into()))
        })
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base64_simd::STANDARD.encode_to_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ruled(deserializer, "a text", |text| {
            // Here already, because one bad key in a batch refuses all of it.
            match bounds::is_key(text) {
                true => Ok(Key(text.to_owned())),
                false => Err(bounds::key_refusal().into()),
            }
        })
    }
}

impl<'de> Deserialize<'de> for Topic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ruled(deserializer, "the name of a topic", parsed).map(Topic)
    }
}

impl Serialize for Topic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_str())
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ruled(deserializer, "the id of a message", parsed).map(Id)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.write_in(&mut [0; MessageId::TEXT_BYTES]))
    }
}

impl Serialize for Hash<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"b3:0000000000000000000000000000000000000000000000000000000000000000";
        for (pair, byte) in text[3..].chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        serializer.serialize_str(std::str::from_utf8(&text).expect("hex digits are ASCII"))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Cow<'de, str>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Borrowing).map(Text)
    }
}

impl<'de> Deserialize<'de> for Attrs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs(bounds::AttributeRoom::of_caller())).map(Attrs)
    }
}

impl<'de> Deserialize<'de> for SoughtAttrs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Pairs(bounds::AttributeRoom::of_envelope())).map(SoughtAttrs)
    }
}

/// Reads attributes as long as there is room for them.
struct Pairs(bounds::AttributeRoom);

impl<'de> Visitor<'de> for Pairs {
    type Value = Vec<(String, String)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut attrs, mut room) = (Self::Value::new(), self.0);
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            room.take(&name, &value).map_err(|error| A::Error::custom(error.detail))?;
            // A mistake of the JSON object; a message of the mailbox may have a name twice.
            if attrs.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("attrs: {name:?} is there twice")));
            }
            attrs.push((name, value));
        }
        Ok(attrs)
    }
}

impl Serialize for AttrsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

fn text_schema(described: &'static str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(described))
}

macro_rules! described {
    ($($type:ty, $name:literal => $schema:expr;)*) => {$(
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }
        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    )*};
}

described! {
    Base64, "Base64" => text_schema("Bytes in base64 of the standard alphabet; padding may be missing in requests.")
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Byte)));
    Key, "Key" => text_schema("Printable ASCII without spaces.").min_length(Some(1))
        .max_length(Some(limits::KEY_BYTES_MAX)).pattern(Some("^[!-~]+$"));
    Topic, "TopicName" => text_schema("The name of a topic.").min_length(Some(1))
        .max_length(Some(limits::TOPIC_NAME_BYTES_MAX)).pattern(Some("^[A-Za-z0-9_-][A-Za-z0-9._-]*$"));
    Id, "MessageId" => text_schema("The id of a message: a ULID; the UUID of the same bits is taken, too.")
        .min_length(Some(26)).max_length(Some(36));
    Hash<'_>, "Hash" => text_schema("A BLAKE3 hash.").pattern(Some("^b3:[0-9a-f]{64}$"));
    Text<'_>, "Receipt" => text_schema("Proof of a lease; opaque.");
    Attrs, "Attrs" => attrs_schema();
    SoughtAttrs, "Attrs" => attrs_schema();
    AttrsView<'_>, "Attrs" => attrs_schema();
}

fn attrs_schema() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "Names and values, 64 KiB in all. Names that begin with $ are the node's own and only shown.",
        ))
        .max_properties(Some(limits::ATTRIBUTES_MAX))
        .additional_properties(Some(ObjectBuilder::new().schema_type(Type::String)))
}
