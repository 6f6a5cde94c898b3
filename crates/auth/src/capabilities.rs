//! What services let an operator grant: verbs, the name of what they act on, and limits. Each service declares its own.

use std::fmt;

/// A verb of a service, written `service:verb`.
///
/// A fixed text, so that comparing two of them on the way of every request is comparing a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action(&'static str);

/// A verb that can be granted.
#[derive(Clone, Copy, Debug)]
pub struct VerbSpec {
    /// The verb with its service.
    pub action: Action,
    /// What it lets the bearer do, for people.
    pub does: &'static str,
}

/// A limit that can be set in a token.
#[derive(Clone, Copy, Debug)]
pub struct LimitSpec {
    /// The name with its service, such as `mail.letters_per_day`.
    pub name: &'static str,
    /// What it bounds and in which unit, for people.
    pub does: &'static str,
}

/// What a service lets an operator grant.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Name of the service.
    pub service: &'static str,
    /// What its verbs act on, as one word: a topic, a lane, an epoch.
    pub resource: &'static str,
    /// Its verbs, in the order in which people read them.
    pub verbs: &'static [VerbSpec],
    /// Its limits.
    pub limits: &'static [LimitSpec],
}

impl Action {
    /// The action of this name. Fails the build unless it is two words of small letters, digits, `_` or `-` with a
    /// colon between them.
    pub const fn new(text: &'static str) -> Self {
        assert!(is_action(text), "an action is written service:verb");
        Action(text)
    }

    /// The name with the service, as tokens have it.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Name of the service.
    pub fn service(self) -> &'static str {
        self.parts().0
    }

    /// The verb without its service.
    pub fn verb(self) -> &'static str {
        self.parts().1
    }

    fn parts(self) -> (&'static str, &'static str) {
        self.0.split_once(':').expect("checked when it was made")
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Capabilities {
    /// The same, with the build failing if a verb or a limit belongs to another service: a slip here would grant what
    /// nobody meant to grant.
    pub const fn validated(self) -> Self {
        assert!(is_word(self.service.as_bytes(), 0, self.service.len()), "a service is named by one word");
        let mut at = 0;
        while at < self.verbs.len() {
            assert!(belongs(self.verbs[at].action.0, self.service, b':'), "a verb of another service");
            at += 1;
        }
        at = 0;
        while at < self.limits.len() {
            assert!(belongs(self.limits[at].name, self.service, b'.'), "a limit of another service");
            assert!(is_limit(self.limits[at].name), "a limit is written service.name");
            at += 1;
        }
        self
    }

    /// The verb of this name without its service.
    pub fn action(&self, verb: &str) -> Option<Action> {
        self.verbs.iter().map(|spec| spec.action).find(|action| action.verb() == verb)
    }

    /// Its verbs in one line.
    pub(crate) fn verb_names(&self) -> String {
        self.verbs.iter().map(|spec| spec.action.verb()).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a text is two words with a colon between them.
pub(crate) const fn is_action(text: &str) -> bool {
    is_pair(text, b':')
}

/// Whether a text is two words with a dot between them.
pub(crate) const fn is_limit(text: &str) -> bool {
    is_pair(text, b'.')
}

const fn is_pair(text: &str, mark: u8) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() && bytes[at] != mark {
        at += 1;
    }
    at < bytes.len() && is_word(bytes, 0, at) && is_word(bytes, at + 1, bytes.len())
}

/// Small letters, digits, `_` and `-`, at least one: nothing that a token's text form would have to escape.
const fn is_word(bytes: &[u8], start: usize, end: usize) -> bool {
    let mut at = start;
    while at < end {
        if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-') {
            return false;
        }
        at += 1;
    }
    start < end && end - start <= WORD_BYTES_MAX
}

/// Longest name of a service, a verb or a limit.
const WORD_BYTES_MAX: usize = 64;

/// Whether `name` is `service`, then `mark`, then more.
const fn belongs(name: &str, service: &str, mark: u8) -> bool {
    let (name, service) = (name.as_bytes(), service.as_bytes());
    let mut at = 0;
    while at < service.len() {
        if at >= name.len() || name[at] != service[at] {
            return false;
        }
        at += 1;
    }
    at + 1 < name.len() && name[at] == mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_two_words() {
        let put = Action::new("store:put");
        assert_eq!((put.service(), put.verb(), put.as_str()), ("store", "put", "store:put"));
        for bad in ["", ":", "a", "a:", ":b", "a:b:c", "a:*", "A:b", "a b:c", "a:b\""] {
            assert!(!is_action(bad), "{bad:?}");
        }
        assert!(!is_action(&format!("a:{}", "x".repeat(WORD_BYTES_MAX + 1))));
        assert!(is_limit("a.b_c") && !is_limit("a.b.c") && !is_limit("a:b"));
    }

    #[test]
    fn what_belongs_to_a_service_begins_with_its_name_and_a_mark() {
        for (name, expected) in
            [("store:put", true), ("store:", false), ("stores:put", false), ("sto:put", false), ("store", false)]
        {
            assert_eq!(belongs(name, "store", b':'), expected, "{name}");
        }
    }

    #[test]
    #[should_panic(expected = "a verb of another service")]
    fn a_verb_of_another_service_is_refused() {
        const STRAY: &[VerbSpec] = &[VerbSpec { action: Action::new("b:put"), does: "" }];
        let _ = Capabilities { service: "a", resource: "thing", verbs: STRAY, limits: &[] }.validated();
    }
}
