//! Names that people give to content, and what an id in a request can be.

use std::fmt;
use std::str::FromStr;

use ron_types::limits::records::LABEL_BYTES_MAX;

use crate::{ContentId, Key, NotAContentId, NotAPublicKey, PublicKey};

const NAME_PREFIX: &str = "name:";

/// A name: `name:<label>` in the namespace of the node that is asked, or `name:<label>@<key>` in that of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    label: String,
    owner: Option<PublicKey>,
}

/// What an id in a request can be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Content by its hash.
    Content(ContentId),
    /// Whatever a name points at.
    Name(Name),
}

/// Reason why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAName {
    /// It does not begin as names do.
    #[error("a name is name:<label> or name:<label>@<64 hex digits>")]
    Prefix,
    /// The label has a length or a character that labels do not have.
    #[error("a label is 1 to {LABEL_BYTES_MAX} of a-z, 0-9, '.', '_', '-' and '/'")]
    Label,
    /// What follows the `@` is no key.
    #[error("after @: {0}")]
    Owner(#[from] NotAPublicKey),
}

/// Reason why a text is neither an id of content nor a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotASubject {
    /// It begins as a name.
    #[error(transparent)]
    Name(#[from] NotAName),
    /// It does not.
    #[error(transparent)]
    Content(#[from] NotAContentId),
}

impl Name {
    /// A name of these parts.
    pub fn new(label: &str, owner: Option<PublicKey>) -> Result<Self, NotAName> {
        if !is_label(label) {
            return Err(NotAName::Label);
        }
        Ok(Name { label: label.to_owned(), owner })
    }

    /// The part that people chose.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The key whose namespace it is in; none means that of the node that is asked.
    pub fn owner(&self) -> Option<PublicKey> {
        self.owner
    }

    /// The same name with an owner: `key`, if it had none.
    pub fn owned_by(self, key: PublicKey) -> Self {
        Name { owner: self.owner.or(Some(key)), ..self }
    }

    /// Position in the key space.
    pub fn key(&self) -> Key {
        Key::of_name(self)
    }
}

/// Whether names can have this label.
pub(crate) fn is_label(text: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'/');
    (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let rest = text.strip_prefix(NAME_PREFIX).ok_or(NotAName::Prefix)?;
        match rest.split_once('@') {
            None => Name::new(rest, None),
            Some((label, owner)) => Name::new(label, Some(owner.parse()?)),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME_PREFIX}{}", self.label)?;
        self.owner.iter().try_for_each(|owner| write!(f, "@{owner}"))
    }
}

impl FromStr for Subject {
    type Err = NotASubject;

    fn from_str(text: &str) -> Result<Self, NotASubject> {
        match text.starts_with(NAME_PREFIX) {
            true => Ok(Subject::Name(text.parse()?)),
            false => Ok(Subject::Content(text.parse()?)),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Content(id) => id.fmt(f),
            Subject::Name(name) => name.fmt(f),
        }
    }
}
