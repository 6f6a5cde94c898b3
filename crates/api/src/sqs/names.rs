//! How queues are called: names, URLs, ARNs, and the tokens that carry a name from page to page.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ron_auth::{Action, Subject};
use std::sync::Arc;
use svc_mailbox::TopicView;
use svc_mailbox::capabilities::{ACK, ADMIN, RECV, SEND};
use svc_mailbox::types::TopicName;

use super::App;
use super::caller::Caller;
use super::error::SqsError;
use super::options::{Regions, SqsOptions};

const NAME_BYTES_MAX: usize = 80;
pub(super) const FIFO_SUFFIX: &str = ".fifo";
const NAME_RULE: &str = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";

/// Whether a text is made of letters, digits, hyphens and underscores, 1 to 80 of them.
pub(super) fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

/// The place in which a caller's names are meant: an account, and a region where regions are places of their own.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    account_id: String,
    region: String,
    regions: Regions,
}

impl Namespace {
    pub fn new(options: &SqsOptions, region: &str) -> Self {
        Namespace { account_id: options.account_id.clone(), region: region.to_owned(), regions: options.regions }
    }

    /// What the topics of this place begin with. No queue has a dot in its name but before `fifo`, so that the name of
    /// one region's queue is never that of another's, and rights can be given by region as a prefix.
    fn topic_prefix(&self) -> String {
        match self.regions {
            Regions::Shared => String::new(),
            Regions::Separate => format!("{}.", self.region),
        }
    }

    /// What the topics begin with whose queues begin with this.
    pub fn topics_from(&self, prefix: &str) -> String {
        self.topic_prefix() + prefix
    }

    /// The topic of a queue; none if no topic can be called so.
    pub fn topic(&self, queue: &str) -> Option<TopicName> {
        self.topics_from(queue).parse().ok()
    }

    /// Whether a topic is a queue of this place.
    pub fn has(&self, topic: &TopicName) -> bool {
        topic.as_str().starts_with(&self.topic_prefix())
    }

    /// The queue of a topic as its clients call it; a topic of elsewhere has no other name than its own.
    pub fn queue<'a>(&self, topic: &'a str) -> &'a str {
        topic.strip_prefix(&self.topic_prefix()).unwrap_or(topic)
    }

    /// The ARN of a topic's queue: in whatever region its caller thinks it is.
    pub fn arn(&self, topic: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{}", self.region, self.account_id, self.queue(topic))
    }

    /// The topic of the queue that an ARN names; none for what is no ARN of a queue of this place.
    pub fn topic_of_arn(&self, arn: &str) -> Option<TopicName> {
        let (region, account, name) = read_arn(arn)?;
        let is_here = account == self.account_id && (self.regions == Regions::Shared || region == self.region);
        is_here.then(|| self.topic(name))?
    }
}

/// Checks the name of a queue that is to be made.
pub(super) fn new_name(namespace: &Namespace, text: &str, is_fifo: bool) -> Result<TopicName, SqsError> {
    let fits = match (is_fifo, text.strip_suffix(FIFO_SUFFIX)) {
        (true, Some(stem)) => is_plain(stem) && text.len() <= NAME_BYTES_MAX,
        (true, None) => false,
        (false, _) => is_plain(text),
    };
    let refused = if is_fifo {
        "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with \
         .fifo suffix and be 1 to 80 in length."
    } else {
        NAME_RULE
    };
    if !fits {
        return Err(SqsError::invalid_value(refused));
    }
    namespace.topic(text).ok_or_else(|| SqsError::invalid_value("The name is too long: its region counts with it."))
}

/// The name of a queue that is looked for; one that is none names no queue, but an empty one is a mistake of its own.
pub(super) fn sought_name(namespace: &Namespace, text: &str) -> Result<TopicName, SqsError> {
    match text {
        "" => Err(SqsError::invalid_value(NAME_RULE)),
        text => namespace.topic(text).ok_or_else(SqsError::no_queue),
    }
}

/// The account and name in a queue's URL; a name alone is taken, too.
fn read_url(url: &str) -> Option<(Option<&str>, &str)> {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?.1,
        None => url.strip_prefix('/').unwrap_or(url),
    };
    let path = path.strip_suffix('/').unwrap_or(path);
    match path.rsplit_once('/') {
        Some((rest, name)) => Some((Some(rest.rsplit_once('/').map_or(rest, |(_, account)| account)), name)),
        None => (!path.is_empty() && !url.contains("://")).then_some((None, path)),
    }
}

/// The topic of the queue that a request names by its URL.
fn topic_of(app: &App, caller: &Caller, url: Option<&str>) -> Result<TopicName, SqsError> {
    let url = url.filter(|url| !url.is_empty()).ok_or_else(|| SqsError::missing("QueueUrl"))?;
    let (account, name) = read_url(url).ok_or_else(|| SqsError::invalid_address(url))?;
    if account.is_some_and(|account| account != app.options.account_id) {
        return Err(SqsError::no_queue());
    }
    caller.namespace.topic(name).ok_or_else(SqsError::no_queue)
}

/// The queue a request names, if its caller may do this to it.
pub(super) fn queue_for(
    app: &App,
    caller: &Caller,
    action: Action,
    url: Option<&str>,
) -> Result<(TopicView, Arc<Subject>), SqsError> {
    let name = topic_of(app, caller, url)?;
    let subject = caller.allow(app, action, name.as_str())?;
    Ok((app.mailbox.topic(&name)?, subject))
}

/// The queue of a request that only looks: any right on a queue is enough to look at it.
pub(super) fn queue_to_look_at(app: &App, caller: &Caller, url: Option<&str>) -> Result<TopicView, SqsError> {
    let name = topic_of(app, caller, url)?;
    may_see(app, caller, name.as_str())?;
    Ok(app.mailbox.topic(&name)?)
}

/// Whether a caller may do anything at all to a queue.
pub(super) fn may_see(app: &App, caller: &Caller, name: &str) -> Result<(), SqsError> {
    let mut refused = None;
    for action in [SEND, RECV, ACK, ADMIN] {
        match caller.allow(app, action, name) {
            Ok(_) => return Ok(()),
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(()), Err)
}

/// The URL of a queue.
pub(super) fn url_of(app: &App, caller: &Caller, name: &TopicName) -> String {
    let (base, account) = (caller.base_url.as_str(), app.options.account_id.as_str());
    let name = caller.namespace.queue(name.as_str());
    let mut url = String::with_capacity(base.len() + account.len() + name.len() + 2);
    for part in [base, "/", account, "/", name] {
        url.push_str(part);
    }
    url
}

/// The region, the account and the name in the ARN of a queue.
pub(super) fn read_arn(arn: &str) -> Option<(&str, &str, &str)> {
    let mut fields = arn.split(':');
    let (scheme, partition, service) = (fields.next()?, fields.next()?, fields.next()?);
    let (region, account, name) = (fields.next()?, fields.next()?, fields.next()?);
    let is_queue = scheme == "arn" && partition.starts_with("aws") && service == "sqs" && fields.next().is_none();
    (is_queue && !name.is_empty()).then_some((region, account, name))
}

/// Token for the page that follows this name.
pub(super) fn page_token(last: &TopicName) -> String {
    URL_SAFE_NO_PAD.encode(last.as_str())
}

/// Last name of the page before, read from a page token.
pub(super) fn read_page_token(token: &str) -> Result<TopicName, SqsError> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).and_then(|name| name.parse().ok());
    name.ok_or_else(|| SqsError::invalid_value("Invalid or expired next token."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_new_queues_are_held_to_the_rules() {
        let namespace = Namespace::new(&SqsOptions::default(), "us-east-1");
        let long = "q".repeat(80);
        let (fifo_max, fifo_over) = (format!("{}.fifo", "q".repeat(75)), format!("{}.fifo", "q".repeat(76)));
        for (name, is_fifo, fits) in [
            ("q", false, true),
            ("A-z_09", false, true),
            (&long, false, true),
            (&format!("{long}q"), false, false),
            ("", false, false),
            ("a.b", false, false),
            ("a.fifo", false, false),
            ("a b", false, false),
            ("ä", false, false),
            ("a.fifo", true, true),
            (&fifo_max, true, true),
            (&fifo_over, true, false),
            (".fifo", true, false),
            ("a", true, false),
            ("a.b.fifo", true, false),
        ] {
            let made = new_name(&namespace, name, is_fifo);
            assert_eq!(made.is_ok(), fits, "{name} fifo {is_fifo}: {made:?}");
            if let Err(error) = made {
                let said = if is_fifo { "The name of a FIFO queue" } else { "Can only include" };
                assert!(error.message.starts_with(said) && error.code == "InvalidParameterValue", "{error:?}");
            }
        }
    }

    #[test]
    fn a_queue_is_found_by_its_url_or_its_name() {
        for (url, expected) in [
            ("http://localhost:9324/000000000000/jobs", Some((Some("000000000000"), "jobs"))),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/jobs.fifo", Some((Some("123456789012"), "jobs.fifo"))),
            ("http://host/prefix/123456789012/jobs/", Some((Some("123456789012"), "jobs"))),
            ("/000000000000/jobs", Some((Some("000000000000"), "jobs"))),
            ("jobs", Some((None, "jobs"))),
            ("http://localhost:9324", None),
            ("http://localhost:9324/", None),
            ("http://localhost:9324/jobs", None),
            ("/", None),
        ] {
            assert_eq!(read_url(url), expected, "{url}");
        }
    }

    #[test]
    fn regions_share_their_queues_or_have_their_own() {
        let here = |regions| Namespace::new(&SqsOptions { regions, ..SqsOptions::default() }, "eu-west-1");
        let (shared, separate) = (here(Regions::Shared), here(Regions::Separate));
        for (namespace, topic) in [(&shared, "jobs.fifo"), (&separate, "eu-west-1.jobs.fifo")] {
            let name = namespace.topic("jobs.fifo").expect("a name");
            assert_eq!((name.as_str(), namespace.queue(name.as_str())), (topic, "jobs.fifo"));
            assert!(namespace.has(&name));
            assert_eq!(namespace.arn(topic), "arn:aws:sqs:eu-west-1:000000000000:jobs.fifo");
            assert_eq!(namespace.topic_of_arn(&namespace.arn(topic)), Some(name));
        }
        let elsewhere = "us-east-1.jobs".parse().expect("a name");
        assert!(shared.has(&elsewhere) && !separate.has(&elsewhere));
        assert_eq!(separate.topic_of_arn("arn:aws:sqs:us-east-1:000000000000:jobs"), None);
        let longest = "q".repeat(NAME_BYTES_MAX - "eu-west-1.".len());
        assert!(new_name(&separate, &longest, false).is_ok());
        let error = new_name(&separate, &format!("{longest}q"), false).expect_err("too long with its region");
        assert_eq!(error.code, "InvalidParameterValue");
    }

    #[test]
    fn arns_of_any_region_name_a_queue_of_the_account() {
        let namespace = Namespace::new(&SqsOptions::default(), "us-east-1");
        for (arn, expected) in [
            ("arn:aws:sqs:us-east-1:000000000000:jobs", Some("jobs")),
            ("arn:aws:sqs:mars-north-7:000000000000:jobs.fifo", Some("jobs.fifo")),
            ("arn:aws-cn:sqs:cn-north-1:000000000000:jobs", Some("jobs")),
            ("arn:aws:sqs::000000000000:jobs", Some("jobs")),
            ("arn:aws:sqs:us-east-1:111111111111:jobs", None),
            ("arn:aws:sns:us-east-1:000000000000:jobs", None),
            ("arn:aws:sqs:us-east-1:000000000000:jobs:more", None),
            ("arn:aws:sqs:us-east-1:000000000000:", None),
            ("jobs", None),
            ("", None),
        ] {
            let name = namespace.topic_of_arn(arn);
            assert_eq!(name.as_ref().map(TopicName::as_str), expected, "{arn}");
        }
    }

    #[test]
    fn a_page_token_comes_back_as_the_name_it_was_made_of() {
        let name: TopicName = "jobs.fifo".parse().expect("a name");
        assert_eq!(read_page_token(&page_token(&name)), Ok(name));
        for token in ["", "!!", "ä", "Li4u"] {
            assert!(read_page_token(token).is_err(), "{token}");
        }
    }
}
