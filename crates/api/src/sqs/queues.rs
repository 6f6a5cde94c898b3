//! Queues: made, found, listed, changed, emptied and removed.

use ron_types::{Error, Kind};
use svc_mailbox::TopicView;
use svc_mailbox::capabilities::ADMIN;
use svc_mailbox::types::{Groups, TopicName, TopicSettings};

use super::App;
use super::attributes::{self, COUNTS, Change, FIXED, SETTABLE};
use super::caller::Caller;
use super::error::SqsError;
use super::model::{self, ActionOutput, Attributes, DeadLetterSources, Map, QueueUrl, Queues};
use super::state::PURGE_MS;
use super::{names, tags};

/// Names of one page, and all that are listed where no page is asked for.
const PAGE_MAX: i64 = 1000;
/// Queues looked at in one go, and for one page, where each must be asked about.
const LOOK_STEP: usize = 64;
const LOOK_MAX: usize = 2000;

pub(super) async fn create_queue(
    app: &App,
    caller: &Caller,
    request: model::CreateQueue,
) -> Result<ActionOutput, SqsError> {
    let name = request.queue_name.ok_or_else(|| SqsError::missing("QueueName"))?;
    let given = request.attributes.unwrap_or_default();
    let is_fifo = is_fifo(&given)?;
    let name = names::new_name(&caller.namespace, &name, is_fifo)?;
    let subject = caller.allow(app, ADMIN, name.as_str())?;
    let change = attributes::read(&given, is_fifo, &caller.namespace)?;
    let mut wanted = attributes::defaults(app.mailbox.default_settings(), is_fifo);
    change.apply(&mut wanted)?;
    tags::add(&mut wanted, request.tags.unwrap_or_default(), &name)?;
    let url = || Ok(ActionOutput::QueueUrl(QueueUrl { queue_url: names::url_of(app, caller, &name) }));
    if is_there(app, caller, &name, &given, &wanted)? {
        return url();
    }
    let cooldown = app.options.deleted_name_cooldown;
    if app.state.deleted.has(&name, app.mailbox.now(), cooldown.as_millis() as u64) {
        return Err(SqsError::queue_deleted_recently(cooldown));
    }
    check_target(app, caller, &name, &wanted, &change)?;
    let created = app.mailbox.create_topic_as(Some(&subject), &name, wanted.clone(), caller.call.deadline);
    match created.await {
        Ok(_) => url(),
        // Another caller has just made it.
        Err(error) if error.kind == Kind::Conflict && is_there(app, caller, &name, &given, &wanted)? => url(),
        Err(error) => Err(refusal_of(error)),
    }
}

fn is_fifo(given: &Map) -> Result<bool, SqsError> {
    match given.get("FifoQueue") {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(SqsError::invalid_attribute_value("FifoQueue")),
    }
}

/// Whether a queue is there with the attributes given; one with others is a refusal.
fn is_there(
    app: &App,
    caller: &Caller,
    name: &TopicName,
    given: &Map,
    wanted: &TopicSettings,
) -> Result<bool, SqsError> {
    let Ok(there) = app.mailbox.topic(name) else { return Ok(false) };
    match attributes::different(given, name, &there.settings, wanted, &caller.namespace) {
        Some(attribute) => Err(SqsError::queue_exists(attribute)),
        None => Ok(true),
    }
}

/// The queue for the dead must be the caller's to look after, be there, be of the same kind, and take the dead of this
/// one.
fn check_target(
    app: &App,
    caller: &Caller,
    name: &TopicName,
    settings: &TopicSettings,
    change: &Change,
) -> Result<(), SqsError> {
    let Some(Some(redrive)) = &change.redrive else { return Ok(()) };
    let missing = || redrive.refused("Dead letter target does not exist.");
    let target = redrive.target.as_ref().ok_or_else(missing)?;
    // Before it is looked for: a caller learns of no queue that is not its own.
    caller.allow(app, ADMIN, target.as_str())?;
    let target = app.mailbox.topic(target).map_err(|_| missing())?;
    if target.settings.groups != settings.groups {
        return Err(redrive.refused("Dead-letter queue must be same type of queue as the source."));
    }
    if !attributes::allows(&target.settings, &caller.namespace, name) {
        return Err(redrive.refused("The dead-letter queue does not allow this queue as a source."));
    }
    Ok(())
}

#[expect(clippy::unused_async, reason = "an action")]
pub(super) async fn get_queue_url(
    app: &App,
    caller: &Caller,
    request: model::GetQueueUrl,
) -> Result<ActionOutput, SqsError> {
    let name = request.queue_name.ok_or_else(|| SqsError::missing("QueueName"))?;
    let name = names::sought_name(&caller.namespace, &name)?;
    if request.owner.is_some_and(|owner| !owner.is_empty() && owner != app.options.account_id) {
        return Err(SqsError::no_queue());
    }
    names::may_see(app, caller, name.as_str())?;
    let queue = app.mailbox.topic(&name)?;
    Ok(ActionOutput::QueueUrl(QueueUrl { queue_url: names::url_of(app, caller, &queue.name) }))
}

pub(super) async fn list_queues(
    app: &App,
    caller: &Caller,
    request: model::ListQueues,
) -> Result<ActionOutput, SqsError> {
    let prefix = caller.namespace.topics_from(&request.queue_name_prefix.unwrap_or_default());
    let page = Page::read(request.max_results, request.next_token.as_deref())?;
    // The empty name stands for every queue; who has a right to that need not be asked about each.
    let sees_all = names::may_see(app, caller, "").is_ok();
    let (mut shown, mut after, mut looked_at, mut is_short) = (Vec::new(), page.after.clone(), 0, false);
    // One more than wanted shows whether there is another page.
    let next = loop {
        let step = if sees_all { page.size + 1 } else { LOOK_STEP };
        let topics = app.mailbox.topics(after.as_ref(), &prefix, step);
        let is_last = topics.len() < step;
        looked_at += topics.len();
        after = topics.last().map(|topic| topic.name.clone());
        let names = topics.into_iter().map(|topic| topic.name);
        shown.extend(names.filter(|name| sees_all || names::may_see(app, caller, name.as_str()).is_ok()));
        match &after {
            _ if shown.len() > page.size => break Some(shown[page.size - 1].clone()),
            _ if is_last => break None,
            // A caller that sees few of very many queues gets a short page, and the token of the next.
            Some(last) if looked_at >= LOOK_MAX => {
                is_short = true;
                break Some(last.clone());
            }
            _ => tokio::task::yield_now().await,
        }
    };
    shown.truncate(page.size);
    let queue_urls = shown.iter().map(|name| names::url_of(app, caller, name)).collect();
    // A caller that asked for no pages gets no token, as on AWS, unless its first page ended before its queues did.
    let next_token = next.filter(|_| page.has_next || is_short).as_ref().map(names::page_token);
    Ok(ActionOutput::Queues(Queues { queue_urls, next_token }))
}

#[expect(clippy::unused_async, reason = "an action")]
pub(super) async fn list_dead_letter_source_queues(
    app: &App,
    caller: &Caller,
    request: model::ListDeadLetterSourceQueues,
) -> Result<ActionOutput, SqsError> {
    let queue = names::queue_to_look_at(app, caller, request.queue_url.as_deref())?;
    let page = Page::read(request.max_results, request.next_token.as_deref())?;
    let mut sources = app.mailbox.origins_of(&queue.name);
    sources.retain(|name| {
        let is_next = page.after.as_ref().is_none_or(|after| name > after) && caller.namespace.has(name);
        is_next && names::may_see(app, caller, name.as_str()).is_ok()
    });
    let (queue_urls, next_token) = page.cut(app, caller, sources);
    Ok(ActionOutput::DeadLetterSources(DeadLetterSources { queue_urls, next_token }))
}

/// Section of a list that a request asks for.
struct Page {
    size: usize,
    after: Option<TopicName>,
    /// Whether the caller asked for pages; one that did not gets only the first.
    has_next: bool,
}

impl Page {
    fn read(max_results: Option<i64>, next_token: Option<&str>) -> Result<Self, SqsError> {
        let size = max_results.unwrap_or(PAGE_MAX);
        if !(1..=PAGE_MAX).contains(&size) {
            return Err(SqsError::out_of_range("MaxResults", size, 1, PAGE_MAX));
        }
        let after = next_token.filter(|token| !token.is_empty()).map(names::read_page_token).transpose()?;
        Ok(Page { size: size as usize, after, has_next: max_results.is_some() })
    }

    fn cut(&self, app: &App, caller: &Caller, mut names: Vec<TopicName>) -> (Vec<String>, Option<String>) {
        let has_more = names.len() > self.size;
        names.truncate(self.size);
        let next = names.last().filter(|_| has_more && self.has_next).map(names::page_token);
        (names.iter().map(|name| names::url_of(app, caller, name)).collect(), next)
    }
}

pub(super) async fn delete_queue(
    app: &App,
    caller: &Caller,
    request: model::OfQueue,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    check_is_own(&queue)?;
    // Here a queue may go though others send it their dead; they keep their policy, which does nothing then.
    app.mailbox.delete_topic_detaching(&queue.name, attributes::detach, caller.call.deadline).await?;
    app.state.purged.forget(&queue.name);
    if !app.options.deleted_name_cooldown.is_zero() {
        app.state.deleted.forget(&queue.name);
        let cooldown_ms = app.options.deleted_name_cooldown.as_millis() as u64;
        app.state.deleted.enter(&queue.name, app.mailbox.now(), cooldown_ms);
    }
    Ok(ActionOutput::Nothing)
}

pub(super) async fn purge_queue(app: &App, caller: &Caller, request: model::OfQueue) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    if !app.state.purged.enter(&queue.name, app.mailbox.now(), PURGE_MS) {
        return Err(SqsError::purge_in_progress(caller.namespace.queue(queue.name.as_str())));
    }
    let purged = app.mailbox.purge(&queue.name, caller.call.deadline).await;
    if purged.is_err() {
        app.state.purged.forget(&queue.name);
    }
    Ok(purged.map(|_| ActionOutput::Nothing)?)
}

pub(super) async fn get_queue_attributes(
    app: &App,
    caller: &Caller,
    request: model::GetQueueAttributes,
) -> Result<ActionOutput, SqsError> {
    let queue = names::queue_to_look_at(app, caller, request.queue_url.as_deref())?;
    let asked = request.attribute_names.unwrap_or_default();
    let known = || COUNTS.iter().chain(&FIXED).chain(&SETTABLE);
    if let Some(unknown) = asked.iter().find(|name| *name != "All" && !known().any(|known| known == name)) {
        return Err(SqsError::unknown_attribute(unknown));
    }
    let wants_all = asked.iter().any(|name| name == "All");
    let is_wanted = |name: &str| wants_all || asked.iter().any(|asked| asked == name);
    let mut shown = Map::new();
    for name in SETTABLE.into_iter().filter(|name| is_wanted(name)) {
        let value = attributes::shown(name, &queue.name, &queue.settings, &caller.namespace);
        shown.extend(value.map(|value| (name.to_owned(), value)));
    }
    let fixed = [
        (queue.created_ms / 1000).to_string(),
        (queue.modified_ms / 1000).to_string(),
        caller.namespace.arn(queue.name.as_str()),
    ];
    shown.extend(
        FIXED.into_iter().zip(fixed).filter(|(name, _)| is_wanted(name)).map(|(name, value)| (name.to_owned(), value)),
    );
    if COUNTS.iter().any(|name| is_wanted(name)) {
        let total = app.mailbox.stats(&queue.name, caller.call.deadline).await?.total;
        let counts = COUNTS.into_iter().zip([total.ready, total.leased, total.delayed]);
        shown.extend(
            counts.filter(|(name, _)| is_wanted(name)).map(|(name, count)| (name.to_owned(), count.to_string())),
        );
    }
    Ok(ActionOutput::Attributes(Attributes { attributes: shown }))
}

pub(super) async fn set_queue_attributes(
    app: &App,
    caller: &Caller,
    request: model::SetQueueAttributes,
) -> Result<ActionOutput, SqsError> {
    let (queue, _) = names::queue_for(app, caller, ADMIN, request.queue_url.as_deref())?;
    let given = request.attributes.filter(|given| !given.is_empty()).ok_or_else(|| SqsError::missing("Attributes"))?;
    let is_fifo = queue.settings.groups == Groups::Fifo;
    let change = attributes::read(&given, is_fifo, &caller.namespace)?;
    check_target(app, caller, &queue.name, &queue.settings, &change)?;
    edit(app, caller, &queue, |settings| change.apply(settings)).await?;
    Ok(ActionOutput::Nothing)
}

/// Reads, changes and writes the settings of a queue as one step.
pub(super) async fn edit(
    app: &App,
    caller: &Caller,
    queue: &TopicView,
    change: impl FnOnce(&mut TopicSettings) -> Result<(), SqsError> + Send,
) -> Result<(), SqsError> {
    check_is_own(queue)?;
    let mut refused = None;
    let refusable = |settings: &mut TopicSettings| {
        change(settings).map_err(|error| {
            refused = Some(error);
            Error::schema("refused")
        })
    };
    let edited = app.mailbox.edit_topic(&queue.name, refusable, caller.call.deadline).await;
    match (edited, refused) {
        (_, Some(refused)) => Err(refused),
        (edited, None) => edited.map(drop).map_err(refusal_of),
    }
}

/// Maps an error of the mailbox about settings that passed the checks here: it can only be about their size, or the
/// queue for the dead has just gone.
fn refusal_of(error: Error) -> SqsError {
    match error.kind {
        Kind::Schema if error.detail.starts_with("dlq:") => {
            SqsError::invalid_value("Dead letter target does not exist.")
        }
        Kind::Schema => SqsError::over_limit("The policies and tags of the queue are larger than a queue can keep."),
        _ => error.into(),
    }
}

/// The dead letters that every topic of the native surface has go and change with it.
fn check_is_own(queue: &TopicView) -> Result<(), SqsError> {
    match &queue.dead_letters_of {
        None => Ok(()),
        Some(owner) => {
            let message = format!("The queue {} holds the dead letters of {owner} and goes with it.", queue.name);
            Err(SqsError::unsupported(message))
        }
    }
}
