//! Blocks of a token as data: the facts and checks this project writes are recognized one by one, and everything else
//! is refused. Nothing of a block is ever run, so that a block cannot cost more than reading it.

use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::format::schema::{self, check, op, op_binary, term};
use prost::Message as _;
use ron_types::limits::{CAPABILITY_LIMITS_MAX, CAPABILITY_RIGHTS_MAX};

use crate::right::{ResourceScope, Right};
use crate::token::name;
use crate::types::{AuthError, Grant, NAME_BYTES_MAX, Narrowing};

/// Version of a block that uses nothing added to the language later; ours are marked so.
const PLAIN_VERSION: u32 = 3;
/// First index of the strings that blocks bring along; those below are known to everybody.
const OWN_SYMBOLS: u64 = 1024;

/// Longest string of a block in bytes: an action is two words with a colon between them. A block names a string by its
/// index, so that without this bound a small block could name a long one very often.
const SYMBOL_BYTES_MAX: usize = NAME_BYTES_MAX + 1;

/// Strings of the blocks read so far: a block names its own and those before it.
pub(crate) struct Symbols {
    known: SymbolTable,
    own: Vec<String>,
}

/// What a block carries that it may not.
type Refused = &'static str;
const STRANGE_FACT: Refused = "a fact that no node writes";
const STRANGE_CHECK: Refused = "a check that no client writes";

/// A check as this project writes it.
enum Clause {
    /// Good before this millisecond since 1970.
    Until(u64),
    /// Good for what one of these covers.
    Within(Vec<Right>),
}

/// A term of a kind that this project writes.
enum Value {
    Text(String),
    Number(u64),
    Variable(u32),
}

/// A name with one or two terms: all facts and conditions of this project are such.
struct Atom<'a>(&'a str, Value, Option<Value>);

/// One comparison of two terms.
type Comparison = (Value, Value, op_binary::Kind);

impl Symbols {
    /// Nothing but the strings known to everybody.
    pub fn new() -> Self {
        Symbols { known: SymbolTable::new(), own: Vec::new() }
    }

    /// Reads the minted block. Its names are not judged again: only the key of a node signs such a block.
    pub fn read_grant(&mut self, bytes: &[u8]) -> Result<Grant, AuthError> {
        self.read(0, bytes, Symbols::grant)
    }

    /// Reads a block that a holder appended; `index` counts from the minted one, which is 0.
    pub fn read_narrowing(&mut self, index: usize, bytes: &[u8]) -> Result<Narrowing, AuthError> {
        self.read(index, bytes, Symbols::narrowing)
    }

    fn read<T>(
        &mut self,
        index: usize,
        bytes: &[u8],
        content: fn(&Symbols, &schema::Block) -> Result<T, Refused>,
    ) -> Result<T, AuthError> {
        let foreign = |what| AuthError::Foreign { block: index, what };
        let mut block = schema::Block::decode(bytes).map_err(|_| foreign("bytes that are no block"))?;
        self.own.append(&mut block.symbols);
        if self.own.iter().any(|text| text.len() > SYMBOL_BYTES_MAX) {
            return Err(foreign("a string longer than any name"));
        }
        if let Some(what) = extra(&block) {
            return Err(foreign(what));
        }
        let content = content(self, &block).map_err(foreign)?;
        // Last, because what was added to the language is better told by name.
        match block.version {
            Some(PLAIN_VERSION) => Ok(content),
            _ => Err(foreign("another version of the language")),
        }
    }

    fn grant(&self, block: &schema::Block) -> Result<Grant, Refused> {
        if block.facts.len() > 1 + CAPABILITY_RIGHTS_MAX + CAPABILITY_LIMITS_MAX {
            return Err("more facts than a grant has");
        }
        let mut grant = Grant::default();
        for fact in &block.facts {
            let atom = self.atom(&fact.predicate).ok_or(STRANGE_FACT)?;
            add_fact(&mut grant, atom).ok_or(STRANGE_FACT)?;
        }
        grant.expires_ms = match self.clauses(block)?.as_slice() {
            [] => None,
            [Clause::Until(expires_ms)] => Some(*expires_ms),
            _ => return Err(STRANGE_CHECK),
        };
        if grant.subject.is_empty() { Err("no subject") } else { Ok(grant) }
    }

    /// At most one check on rights and one on time, and nothing else.
    fn narrowing(&self, block: &schema::Block) -> Result<Narrowing, Refused> {
        if !block.facts.is_empty() {
            return Err("facts, which only a node may state");
        }
        let mut narrowing = Narrowing::default();
        for clause in self.clauses(block)? {
            match clause {
                Clause::Until(expires_ms) if narrowing.expires_ms.is_none() => narrowing.expires_ms = Some(expires_ms),
                Clause::Within(rights) if narrowing.rights.is_empty() => narrowing.rights = rights,
                _ => return Err("the same kind of check twice"),
            }
        }
        narrowing.validate().map(|()| narrowing).map_err(|_| STRANGE_CHECK)
    }

    fn clauses(&self, block: &schema::Block) -> Result<Vec<Clause>, Refused> {
        if block.checks.len() > 2 {
            return Err("more checks than a narrowing has");
        }
        block.checks.iter().map(|check| self.clause(check).ok_or(STRANGE_CHECK)).collect()
    }

    fn clause(&self, check: &schema::Check) -> Option<Clause> {
        let is_one_of = check.kind.is_none_or(|kind| kind == check::Kind::One as i32);
        let is_bounded = (1..=CAPABILITY_RIGHTS_MAX).contains(&check.queries.len());
        if !is_one_of || !is_bounded {
            return None;
        }
        if let [query] = check.queries.as_slice()
            && let Some(expires_ms) = self.until(query)
        {
            return Some(Clause::Until(expires_ms));
        }
        check.queries.iter().map(|query| self.within(query)).collect::<Option<_>>().map(Clause::Within)
    }

    /// `time_ms($now), $now < 1800000000000`
    fn until(&self, query: &schema::Rule) -> Option<u64> {
        match self.query(query)? {
            (
                Atom(name::TIME_MS, Value::Variable(now), None),
                None,
                Some((Value::Variable(left), Value::Number(expires_ms), op_binary::Kind::LessThan)),
            ) if left == now => Some(expires_ms),
            _ => None,
        }
    }

    /// `operation("mail:read")`, with `resource("a")` or with `resource($resource), $resource.starts_with("a")`.
    fn within(&self, query: &schema::Rule) -> Option<Right> {
        let (Atom(name::OPERATION, Value::Text(action), None), resource, comparison) = self.query(query)? else {
            return None;
        };
        let scope = match (resource, comparison) {
            (None, None) => ResourceScope::Any,
            (Some(Atom(name::RESOURCE, Value::Text(name), None)), None) => ResourceScope::Exact(name),
            (
                Some(Atom(name::RESOURCE, Value::Variable(resource), None)),
                Some((Value::Variable(left), Value::Text(start), op_binary::Kind::Prefix)),
            ) if left == resource => ResourceScope::Prefix(start),
            _ => return None,
        };
        Some(Right { action, scope })
    }

    /// One or two conditions and at most one comparison.
    fn query(&self, query: &schema::Rule) -> Option<(Atom<'_>, Option<Atom<'_>>, Option<Comparison>)> {
        let is_plain = self.text(query.head.name) == Some(name::QUERY) && query.head.terms.is_empty();
        let (first, second) = match query.body.as_slice() {
            [first] => (self.atom(first)?, None),
            [first, second] => (self.atom(first)?, Some(self.atom(second)?)),
            _ => return None,
        };
        let comparison = match query.expressions.as_slice() {
            [] => None,
            [expression] => Some(self.comparison(expression)?),
            _ => return None,
        };
        (is_plain && query.scope.is_empty()).then_some((first, second, comparison))
    }

    fn comparison(&self, expression: &schema::Expression) -> Option<Comparison> {
        let [left, right, by] = expression.ops.as_slice() else { return None };
        let (op::Content::Value(left), op::Content::Value(right), op::Content::Binary(by)) =
            (left.content.as_ref()?, right.content.as_ref()?, by.content.as_ref()?)
        else {
            return None;
        };
        let kind = op_binary::Kind::from_i32(by.kind).filter(|_| by.ffi_name.is_none())?;
        Some((self.value(left)?, self.value(right)?, kind))
    }

    fn atom(&self, predicate: &schema::Predicate) -> Option<Atom<'_>> {
        let name = self.text(predicate.name)?;
        match predicate.terms.as_slice() {
            [first] => Some(Atom(name, self.value(first)?, None)),
            [first, second] => Some(Atom(name, self.value(first)?, Some(self.value(second)?))),
            _ => None,
        }
    }

    fn value(&self, term: &schema::Term) -> Option<Value> {
        match term.content.as_ref()? {
            term::Content::Variable(number) => Some(Value::Variable(*number)),
            term::Content::Integer(number) => u64::try_from(*number).ok().map(Value::Number),
            term::Content::String(index) => self.text(*index).map(|text| Value::Text(text.to_owned())),
            _ => None,
        }
    }

    fn text(&self, index: u64) -> Option<&str> {
        match index.checked_sub(OWN_SYMBOLS) {
            Some(index) => self.own.get(usize::try_from(index).ok()?).map(String::as_str),
            None => self.known.get_symbol(index),
        }
    }
}

/// Takes up one fact of a minted block; none if it is not one that a grant has, or has once only.
fn add_fact(grant: &mut Grant, fact: Atom<'_>) -> Option<()> {
    match fact {
        Atom(name::SUBJECT, Value::Text(subject), None) if grant.subject.is_empty() => {
            grant.subject = subject;
            Some(())
        }
        Atom(name::RIGHT, Value::Text(action), Some(Value::Text(resource))) => {
            grant.rights.push(Right { action, scope: ResourceScope::Exact(resource) });
            Some(())
        }
        Atom(name::RIGHT_PREFIX, Value::Text(action), Some(Value::Text(start))) => {
            let scope = if start.is_empty() { ResourceScope::Any } else { ResourceScope::Prefix(start) };
            grant.rights.push(Right { action, scope });
            Some(())
        }
        Atom(name::QUOTA, Value::Text(limit), Some(Value::Number(value))) => {
            grant.limits.insert(limit, value).is_none().then_some(())
        }
        _ => None,
    }
}

/// What a block carries that none of this project does, besides its facts and checks.
fn extra(block: &schema::Block) -> Option<Refused> {
    [
        (!block.rules.is_empty(), "rules"),
        (!block.scope.is_empty(), "a scope"),
        (!block.public_keys.is_empty(), "public keys"),
        (block.context.is_some(), "a context"),
    ]
    .into_iter()
    .find_map(|(is_there, what)| is_there.then_some(what))
}
