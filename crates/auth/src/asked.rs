//! What a token is asked to allow, in the words of a command line or a request, read against what services declare.

use std::collections::BTreeMap;

use ron_types::limits::CAPABILITY_RIGHTS_MAX;

use crate::capabilities::{Action, Capabilities};
use crate::right::{ResourceScope, Right, split};
use crate::types::AuthError;

/// Rights and limits as words. The long form names the service; the short form stands for the one service whose
/// resource is called a topic, so that its users need not repeat its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Rights such as `mail:read:inbox.*`; the verb `*` stands for every verb of the service.
    pub rights: &'a [String],
    /// Limits by their names with the service.
    pub limits: Option<&'a BTreeMap<String, u64>>,
    /// Short form: verbs without their service, or `all`; every verb if only topics are given.
    pub ops: &'a [String],
    /// Short form: resources; every one if only verbs are given.
    pub topics: &'a [String],
    /// Short form: limits without their service.
    pub short_limits: &'a [(&'static str, Option<u64>)],
}

/// Why a request for rights was refused, and which of its words is at fault.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", place(.field, *.index))]
pub struct AskedError {
    /// Name of the field of [`Asked`], or of the short limit.
    pub field: &'static str,
    /// Place in the list, from 0.
    pub index: Option<usize>,
    /// What is wrong with it.
    pub error: AuthError,
}

impl Asked<'_> {
    /// The rights, each once, or what is wrong with the first bad word. Their number is bounded while they are
    /// counted up, because verbs times topics of a small request can be many.
    pub fn rights(&self, known: &[&'static Capabilities]) -> Result<Vec<Right>, AskedError> {
        let mut rights = Vec::new();
        for (index, text) in self.rights.iter().enumerate() {
            let named = rights_of(known, text).map_err(at("rights", index))?;
            named.into_iter().try_for_each(|right| add(&mut rights, right)).map_err(at("rights", index))?;
        }
        if self.ops.is_empty() && self.topics.is_empty() {
            return Ok(rights);
        }
        let actions = self.short_actions(known)?;
        for (index, scope) in self.short_scopes()?.into_iter().enumerate() {
            let mut named = actions.iter().map(|action| Right::new(*action, scope.clone()));
            named.try_for_each(|right| add(&mut rights, right)).map_err(at("topics", index))?;
        }
        Ok(rights)
    }

    /// The limits by their full names. Of a limit given in both forms, the smaller holds.
    pub fn limits(&self, known: &[&'static Capabilities]) -> Result<BTreeMap<String, u64>, AskedError> {
        let mut limits = BTreeMap::new();
        for (name, value) in self.limits.into_iter().flatten() {
            check_limit(known, name).map_err(of("limits"))?;
            limits.insert(name.clone(), *value);
        }
        for (name, value) in self.short_limits.iter().filter_map(|(name, value)| Some((*name, (*value)?))) {
            let full = format!("{}.{name}", topical(known).map_err(of(name))?.service);
            check_limit(known, &full).map_err(of(name))?;
            limits.entry(full).and_modify(|other: &mut u64| *other = value.min(*other)).or_insert(value);
        }
        Ok(limits)
    }

    fn short_actions(&self, known: &[&'static Capabilities]) -> Result<Vec<Action>, AskedError> {
        let service = topical(known).map_err(of("ops"))?;
        let all = || service.verbs.iter().map(|spec| spec.action);
        if self.ops.is_empty() {
            return Ok(all().collect());
        }
        let mut asked = Vec::new();
        for (index, verb) in self.ops.iter().enumerate() {
            match verb.as_str() {
                "all" => asked.extend(all()),
                verb => asked.push(action_of(service, verb, "all").map_err(at("ops", index))?),
            }
        }
        // In the order of the declaration, each once.
        Ok(all().filter(|action| asked.contains(action)).collect())
    }

    fn short_scopes(&self) -> Result<Vec<ResourceScope>, AskedError> {
        if self.topics.is_empty() {
            return Ok(vec![ResourceScope::Any]);
        }
        self.topics.iter().enumerate().map(|(index, text)| text.parse().map_err(at("topics", index))).collect()
    }
}

/// The rights one text names.
fn rights_of(known: &[&'static Capabilities], text: &str) -> Result<Vec<Right>, AuthError> {
    let (service, verb, resource) = split(text)?;
    let service = known.iter().find(|declared| declared.service == service).ok_or_else(|| AuthError::Unknown {
        what: "service".to_owned(),
        text: service.to_owned(),
        known: known.iter().map(|declared| declared.service).collect::<Vec<_>>().join(", "),
    })?;
    let scope: ResourceScope = resource.parse()?;
    let actions = match verb {
        "*" => service.verbs.iter().map(|spec| spec.action).collect(),
        verb => vec![action_of(service, verb, "*")?],
    };
    Ok(actions.into_iter().map(|action| Right::new(action, scope.clone())).collect())
}

fn action_of(service: &Capabilities, verb: &str, word_for_all: &str) -> Result<Action, AuthError> {
    service.action(verb).ok_or_else(|| AuthError::Unknown {
        what: format!("verb of {}", service.service),
        text: verb.to_owned(),
        known: format!("{}, or {word_for_all}", service.verb_names()),
    })
}

/// A limit that no service of this build enforces is refused where it is asked for: whoever sets it believes it holds.
fn check_limit(known: &[&'static Capabilities], name: &str) -> Result<(), AuthError> {
    let names = || known.iter().flat_map(|declared| declared.limits).map(|limit| limit.name);
    if names().any(|known| known == name) {
        return Ok(());
    }
    let known = names().collect::<Vec<_>>().join(", ");
    Err(AuthError::Unknown { what: "limit".to_owned(), text: name.to_owned(), known })
}

/// The service the short forms stand for.
fn topical(known: &[&'static Capabilities]) -> Result<&'static Capabilities, AuthError> {
    let found = known.iter().copied().find(|declared| declared.resource == "topic");
    found.ok_or(AuthError::Empty("no service of this build has topics; name the rights as service:verb:resource"))
}

fn add(rights: &mut Vec<Right>, right: Right) -> Result<(), AuthError> {
    if rights.contains(&right) {
        return Ok(());
    }
    if rights.len() >= CAPABILITY_RIGHTS_MAX {
        return Err(AuthError::TooMany { what: "rights", max: CAPABILITY_RIGHTS_MAX });
    }
    rights.push(right);
    Ok(())
}

fn at(field: &'static str, index: usize) -> impl Fn(AuthError) -> AskedError {
    move |error| AskedError { field, index: Some(index), error }
}

fn of(field: &'static str) -> impl Fn(AuthError) -> AskedError {
    move |error| AskedError { field, index: None, error }
}

fn place(field: &str, index: Option<usize>) -> String {
    index.map_or_else(|| field.to_owned(), |index| format!("{field}[{index}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MAIL, STORE};

    const KNOWN: [&Capabilities; 2] = [&STORE, &MAIL];

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn rights(rights: &[&str], ops: &[&str], topics: &[&str]) -> Result<Vec<String>, String> {
        let (rights, ops, topics) = (words(rights), words(ops), words(topics));
        let asked = Asked { rights: &rights, ops: &ops, topics: &topics, ..Asked::default() };
        let read = asked.rights(&KNOWN).map_err(|error| error.to_string())?;
        Ok(read.iter().map(Right::to_string).collect())
    }

    #[test]
    fn long_and_short_forms_mean_the_same() {
        for (long, ops, topics, expected) in [
            (&["store:put:a"][..], &[][..], &[][..], &["store:put:a"][..]),
            (&["store:*:a/b"], &[], &[], &["store:put:a/b", "store:get:a/b"]),
            (&[], &["read"], &["x", "y.*"], &["mail:read:x", "mail:read:y.*"]),
            (&[], &["read", "all"], &["x"], &["mail:write:x", "mail:read:x"]),
            (&[], &[], &["x"], &["mail:write:x", "mail:read:x"]),
            (&[], &["read"], &[], &["mail:read:*"]),
            (&["mail:read:x", "store:put:x"], &["read"], &["x"], &["mail:read:x", "store:put:x"]),
            (&[], &[], &[], &[]),
        ] {
            assert_eq!(rights(long, ops, topics), Ok(words(expected)));
        }
    }

    #[test]
    fn the_unknown_is_refused_with_the_known() {
        for (long, ops, topics, said) in [
            (&["shop:buy:a"][..], &[][..], &[][..], &["rights[0]", "shop", "store, mail"][..]),
            (&["store:put:a", "store:read:a"], &[], &[], &["rights[1]", "read", "put, get, or *"]),
            (&["store:put:"], &[], &[], &["rights[0]", "resource"]),
            (&["store"], &[], &[], &["rights[0]", "service:verb:resource"]),
            (&[], &["read", "put"], &["a"], &["ops[1]", "put", "write, read, or all"]),
            (&[], &["read"], &["a", "b c"], &["topics[1]", "b c"]),
        ] {
            let error = rights(long, ops, topics).expect_err("refused");
            assert!(said.iter().all(|word| error.contains(word)), "{error}");
        }
        let many: Vec<String> = (0..=CAPABILITY_RIGHTS_MAX).map(|number| format!("store:put:{number}")).collect();
        let error = Asked { rights: &many, ..Asked::default() }.rights(&KNOWN).expect_err("too many");
        assert_eq!((error.field, error.index), ("rights", Some(CAPABILITY_RIGHTS_MAX)), "{error}");
        let only_stores = Asked { ops: &many[..1], ..Asked::default() }.rights(&[&STORE]);
        assert!(only_stores.expect_err("no topics").to_string().contains("service:verb:resource"));
    }

    #[test]
    fn limits_are_those_of_services_that_are_there() {
        let given = BTreeMap::from([("store.bytes_max".to_owned(), 9), ("mail.letters_per_day".to_owned(), 7)]);
        let short = [("letters_per_day", Some(5)), ("pages_max", None)];
        let asked = Asked { limits: Some(&given), short_limits: &short, ..Asked::default() };
        let expected = BTreeMap::from([("store.bytes_max".to_owned(), 9), ("mail.letters_per_day".to_owned(), 5)]);
        assert_eq!(asked.limits(&KNOWN).expect("known"), expected);
        let unknown = BTreeMap::from([("mail.letters".to_owned(), 1)]);
        let error = Asked { limits: Some(&unknown), ..Asked::default() }.limits(&KNOWN).expect_err("unknown");
        assert!(error.to_string().contains("mail.letters_per_day"), "{error}");
        let error = Asked { short_limits: &[("pages_max", Some(1))], ..Asked::default() }.limits(&KNOWN);
        assert!(error.expect_err("unknown").to_string().starts_with("pages_max: "));
    }
}
