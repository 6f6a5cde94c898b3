//! A right: one verb of a service on one resource, or on all that begin alike.

use std::fmt;
use std::str::FromStr;

use crate::capabilities::{Action, is_action};
use crate::types::{AuthError, check_name};

/// The resources a right covers: written as a name, as a beginning with `*` after it, or as `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceScope {
    /// This resource alone.
    Exact(String),
    /// Every resource whose name begins like this.
    Prefix(String),
    /// Every resource of the service, and what concerns no single one.
    Any,
}

/// One verb of a service on these resources: written `service:verb:resource`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    /// The verb with its service, such as `mail:read`.
    pub action: String,
    /// The resources.
    pub scope: ResourceScope,
}

/// What services call their resources may have a colon or a slash in it (an address, a path); a quotation mark or a
/// comma may not be, because the text form of a token is read without unescaping.
const RESOURCE_RULE: &str = "1 to 128 letters, digits or any of -_.:@/; a '*' may stand at the end";
const RIGHT_RULE: &str = "service:verb:resource, such as mail:read:inbox.*";

impl ResourceScope {
    /// Whether the resource is one of these.
    pub fn covers(&self, resource: &str) -> bool {
        match self {
            ResourceScope::Exact(name) => name == resource,
            ResourceScope::Prefix(start) => resource.starts_with(start.as_str()),
            ResourceScope::Any => true,
        }
    }

    /// The name or the beginning; nothing for every resource.
    pub(crate) fn text(&self) -> &str {
        match self {
            ResourceScope::Exact(text) | ResourceScope::Prefix(text) => text,
            ResourceScope::Any => "",
        }
    }

    fn validate(&self) -> Result<(), AuthError> {
        match self {
            ResourceScope::Exact(text) | ResourceScope::Prefix(text) => {
                check_name("the resource", text, RESOURCE_RULE, "-_.:@/")
            }
            ResourceScope::Any => Ok(()),
        }
    }
}

impl Right {
    /// The right to this action on these resources.
    pub fn new(action: Action, scope: ResourceScope) -> Self {
        Right { action: action.as_str().to_owned(), scope }
    }

    /// Whether it allows the action on the resource.
    pub fn covers(&self, action: Action, resource: &str) -> bool {
        self.action == action.as_str() && self.scope.covers(resource)
    }

    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        if !is_action(&self.action) {
            return Err(malformed(&self.to_string()));
        }
        self.scope.validate()
    }
}

/// Splits `service:verb:resource`; the resource may have colons of its own.
pub(crate) fn split(text: &str) -> Result<(&str, &str, &str), AuthError> {
    let mut words = text.splitn(3, ':');
    match (words.next(), words.next(), words.next()) {
        (Some(service), Some(verb), Some(resource)) => Ok((service, verb, resource)),
        _ => Err(malformed(text)),
    }
}

fn malformed(text: &str) -> AuthError {
    AuthError::BadName { what: "the right", text: text.to_owned(), rule: RIGHT_RULE }
}

impl FromStr for ResourceScope {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Self, AuthError> {
        let scope = match text.strip_suffix('*') {
            Some("") => ResourceScope::Any,
            Some(start) => ResourceScope::Prefix(start.to_owned()),
            None => ResourceScope::Exact(text.to_owned()),
        };
        scope.validate().map(|()| scope)
    }
}

impl FromStr for Right {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Self, AuthError> {
        let (service, verb, resource) = split(text)?;
        let right = Right { action: format!("{service}:{verb}"), scope: resource.parse()? };
        right.validate().map(|()| right)
    }
}

impl fmt::Display for ResourceScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResourceScope::Exact(name) => f.write_str(name),
            ResourceScope::Prefix(start) => write!(f, "{start}*"),
            ResourceScope::Any => f.write_str("*"),
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.action, self.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        let cases = [
            ("orders", Some(ResourceScope::Exact("orders".into()))),
            ("b3:0f", Some(ResourceScope::Exact("b3:0f".into()))),
            ("jobs.*", Some(ResourceScope::Prefix("jobs.".into()))),
            ("jobs*", Some(ResourceScope::Prefix("jobs".into()))),
            ("*", Some(ResourceScope::Any)),
            ("", None),
            ("a*b", None),
            ("**", None),
            ("a\"b", None),
            ("a, b", None),
            (&"x".repeat(129), None),
        ];
        for (text, expected) in cases {
            let read = text.parse::<ResourceScope>().ok();
            assert_eq!(read, expected, "{text:?}");
            assert_eq!(read.map(|scope| scope.to_string()), expected.map(|_| text.to_owned()));
        }
    }

    #[test]
    fn rights_are_read_as_they_are_written() {
        for text in ["mail:read:inbox", "mail:read:inbox.*", "mail:read:*", "names:find:b3:0f", "a:b:c/d@e"] {
            assert_eq!(text.parse::<Right>().expect(text).to_string(), text);
        }
        for text in ["", "mail", "mail:read", "mail:read:", ":read:x", "mail::x", "mail:*:x", "Mail:read:x", "a:b:c d"]
        {
            assert!(text.parse::<Right>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_covers_what_begins_with_it() {
        for (scope, resource, expected) in [
            ("jobs.*", "jobs.a", true),
            ("jobs.*", "jobs", false),
            ("jobs.*", "jobsx", false),
            ("jobs", "jobs", true),
            ("jobs", "jobs.a", false),
            ("*", "", true),
        ] {
            let scope: ResourceScope = scope.parse().expect("valid");
            assert_eq!(scope.covers(resource), expected, "{scope} {resource}");
        }
    }
}
