//! Which topics a stream of events is about, and whether its reader may know of them.

use ron_types::Error;
use svc_mailbox::Event;
use svc_mailbox::capabilities::ADMIN;
use svc_mailbox::types::TopicName;

use super::super::{App, dto};
use crate::auth::Bearer;

/// Topics and beginnings of names one stream may ask for.
const TOPICS_MAX: usize = 32;

/// Topics by name and by how their names begin; none of either means everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    names: Vec<TopicName>,
    prefixes: Vec<String>,
}

impl Filter {
    /// Adds a topic, or with a star at its end the topics that begin so.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        if self.names.len() + self.prefixes.len() >= TOPICS_MAX {
            return Err(Error::schema(format!("topic: a stream may be about {TOPICS_MAX} topics")));
        }
        match text.strip_suffix('*') {
            None => self.names.push(dto::parse("topic", text)?),
            // What a name may begin with is itself a name, or nothing.
            Some("") => self.prefixes.push(String::new()),
            Some(prefix) => self.prefixes.push(dto::parse::<TopicName>("topic", prefix)?.as_str().to_owned()),
        }
        Ok(())
    }

    /// The reader may look after everything asked for.
    pub fn allow(&self, app: &App, bearer: &Bearer) -> Result<(), Error> {
        let names = self.names.iter().map(|name| name.as_str().to_owned());
        // A right on `jobs.*` covers the name `jobs.*`, and one on the topic `jobs.` alone does not.
        let prefixes = self.prefixes.iter().map(|prefix| match prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}*"),
        });
        let all = self.is_everything().then(String::new);
        names.chain(prefixes).chain(all).try_for_each(|resource| app.allow(bearer, ADMIN, &resource).map(drop))
    }

    fn is_everything(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// Whether the event is about one of these topics; events of the whole node go to readers of all topics only.
    pub fn matches(&self, event: &Event) -> bool {
        let mut topics = event.topics();
        self.is_everything() || self.prefixes.iter().any(String::is_empty) || topics.any(|topic| self.covers(topic))
    }

    /// Whether the filter includes this topic.
    pub fn covers(&self, topic: &TopicName) -> bool {
        let begins = |prefix: &String| topic.as_str().starts_with(prefix.as_str());
        self.is_everything() || self.names.contains(topic) || self.prefixes.iter().any(begins)
    }
}
