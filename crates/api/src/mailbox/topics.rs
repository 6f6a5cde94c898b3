//! Topics: made, listed, changed, emptied, removed and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::IntoResponse as _;
use http::StatusCode;
use ron_types::limits::mailbox as limits;
use ron_types::{Error, Kind};
use serde::{Deserialize, Deserializer, Serialize};
use svc_mailbox::capabilities::ADMIN;
use svc_mailbox::types::{BreakerSettings, Expired, Groups, PartStats, TopicName, TopicSettings};
use svc_mailbox::{NodeStats, TopicView};
use utoipa::ToSchema;

use super::dto::{self, BreakerWord};
use super::{App, Routes};
use crate::auth::Bearer;
use crate::call::Call;
use crate::extract::{Json, JsonText, Path, Query};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::sqs;

const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1000;
/// Bytes of one page, about.
const PAGE_BYTES_MAX: usize = limits::RECV_BYTES_MAX;

static LIST: Operation = Operation::get("/v1/topics", "topics", "lists topics by name")
    .allows(ADMIN)
    .query::<ListQuery>()
    .answers::<ListAnswer<'static>>();

static CREATE: Operation =
    Operation::put("/v1/topics/{topic}", "topics", "makes a topic; again with the same settings is fine")
        .allows(ADMIN)
        .body::<Settings>(r#"{"visibility_ms":30000,"max_attempts":5,"groups":"fifo"}"#)
        .optional_body()
        .answers::<TopicAnswer<'static>>()
        .created()
        .marked()
        .errors(&[Kind::Conflict]);

static SHOW: Operation = Operation::get("/v1/topics/{topic}", "topics", "shows a topic and its settings")
    .allows(ADMIN)
    .answers::<TopicAnswer<'static>>()
    .errors(&[Kind::NotFound]);

static CHANGE: Operation = Operation::patch("/v1/topics/{topic}", "topics", "changes some settings of a topic")
    .allows(ADMIN)
    .body::<Settings>(r#"{"visibility_ms":60000,"paused":true,"breaker":{"failing_percent":50,"pause_ms":30000}}"#)
    .answers::<TopicAnswer<'static>>()
    .marked()
    .errors(&[Kind::NotFound, Kind::Conflict]);

static DELETE: Operation =
    Operation::delete("/v1/topics/{topic}", "topics", "removes a topic with its messages and dead letters")
        .allows(ADMIN)
        .marked()
        .errors(&[Kind::NotFound, Kind::Conflict]);

static PURGE: Operation = Operation::post("/v1/topics/{topic}/purge", "topics", "removes every message of a topic")
    .allows(ADMIN)
    .answers::<PurgeAnswer>()
    .marked()
    .errors(&[Kind::NotFound]);

static STATS: Operation = Operation::get("/v1/topics/{topic}/stats", "topics", "counts what a topic holds and did")
    .allows(ADMIN)
    .answers::<StatsAnswer<'static>>()
    .errors(&[Kind::NotFound]);

static NODE_STATS: Operation = Operation::get("/v1/stats", "topics", "counts what all topics hold and did")
    .allows(ADMIN)
    .answers::<NodeStatsAnswer>();

/// Which topics.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The name after which to go on: `next` of the page before.
    after: Option<String>,
    /// What the names begin with; a token of some topics must give what its own begin with.
    #[serde(default)]
    prefix: String,
    /// Maximum topics in one page.
    #[schema(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// A page of topics.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ListAnswer<'a> {
    topics: Vec<TopicAnswer<'a>>,
    /// Where to go on, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TopicAnswer<'a> {
    /// Name of the topic.
    name: &'a str,
    /// When it was made.
    created_ts: u64,
    /// The topic whose dead letters these are.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters_of: Option<&'a str>,
    /// The topic that was named for its dead letters and is gone: until another is named, failed messages are tried
    /// without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    dlq_missing: Option<&'a str>,
    /// What is set about it.
    #[schema(value_type = Settings)]
    settings: &'a TopicSettings,
}

/// What may be set about a topic; what is not given stays as it is, or as it is by default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// How long a lease lasts where the receiver does not say.
    pub visibility_ms: Option<u64>,
    /// Deliveries before a message is dead; 0 means any number.
    pub max_attempts: Option<u32>,
    /// How long an idempotency key is remembered.
    pub replay_window_ms: Option<u64>,
    /// How long a message is kept.
    pub retention_ms: Option<u64>,
    /// What becomes of a message that is kept no longer: `dead_letter` or `drop`.
    #[schema(value_type = Option<String>)]
    pub expired: Option<Expired>,
    /// Delay of a message that does not ask for one.
    pub delay_ms: Option<u64>,
    /// Partitions, fixed when the topic is made; order is kept within each.
    pub partitions: Option<u16>,
    /// What a message's group means: `fair` (a tenant) or `fifo` (a line).
    #[schema(value_type = Option<String>)]
    pub groups: Option<Groups>,
    /// Where dead messages go; null means `<topic>.dlq`, which comes with the topic. Deleting the topic named here and
    /// making another of its name does not bring the link back.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    pub dlq: Option<Option<String>>,
    /// First bound of the wait after a failed delivery.
    pub backoff_base_ms: Option<u64>,
    /// Last bound of the wait after a failed delivery.
    pub backoff_max_ms: Option<u64>,
    /// Messages it holds at most.
    pub messages_max: Option<u64>,
    /// Maximum bytes of its messages: payload, attributes, and some 50 bytes more each.
    pub bytes_max: Option<u64>,
    /// Messages leased at once at most.
    pub inflight_max: Option<u32>,
    /// Largest payload.
    pub payload_bytes_max: Option<u32>,
    /// Deliveries stop while set.
    pub paused: Option<bool>,
    /// When deliveries pause because too many of them fail; null means never. Replaced as a whole, and any change of it
    /// lets deliveries go on at once.
    #[serde(default, deserialize_with = "given_breaker")]
    #[schema(value_type = Option<BreakerFields>)]
    pub breaker: Option<Option<BreakerSettings>>,
    /// Whatever you keep with the topic; replaced as a whole.
    pub labels: Option<BTreeMap<String, String>>,
}

/// When the deliveries of a topic pause instead of draining it into the dead letters. Every partition counts how its
/// deliveries end: an acknowledgement is good, a failure or a lease that runs out is not. While the breaker is open
/// nothing is delivered; after the pause one message at a time is, until one is acknowledged and everything goes on,
/// or fails and the pause begins again. A delivery from before the pause that fails within it kills no message. All of
/// this is kept in memory only: after a restart messages are delivered and counted anew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BreakerFields {
    /// More than this share of deliveries failing, in percent, opens it.
    #[schema(minimum = 1, maximum = 99, default = 50)]
    failing_percent: Option<u32>,
    /// Deliveries that ended within this time count.
    #[schema(minimum = 1_000, maximum = 3_600_000, default = 60_000)]
    window_ms: Option<u64>,
    /// With fewer deliveries in the window it never opens.
    #[schema(minimum = 1, maximum = 1_000_000, default = 20)]
    deliveries_min: Option<u32>,
    /// How long nothing is delivered.
    #[schema(minimum = 1_000, maximum = 3_600_000, default = 30_000)]
    pause_ms: Option<u64>,
}

/// How many messages were removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PurgeAnswer {
    purged: u64,
}

/// The numbers of a topic.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StatsAnswer<'a> {
    topic: &'a str,
    total: Numbers,
    partitions: Vec<PartitionNumbers>,
}

/// The numbers of a partition.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PartitionNumbers {
    partition: u16,
    /// The shard that owns it now.
    shard: u16,
    #[serde(flatten)]
    numbers: Numbers,
}

/// What there is now, and what was done since the start.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Numbers {
    /// May be delivered now.
    ready: u64,
    /// Wait for their time.
    delayed: u64,
    /// Are with consumers.
    leased: u64,
    /// Bytes of all of them: payload, attributes, and some 50 bytes more each.
    bytes: u64,
    /// Groups with messages.
    groups: u64,
    /// Idempotency keys remembered.
    keys: u64,
    /// When the oldest message was sent; 0 for none.
    oldest_ts: u64,
    /// Messages taken in.
    sent: u64,
    /// Deliveries.
    delivered: u64,
    /// Messages acknowledged.
    acked: u64,
    /// Deliveries that failed or ran out.
    failed: u64,
    /// Messages that died.
    died: u64,
    /// Messages dropped by retention.
    expired: u64,
    /// Deepest reordering seen.
    reorder_depth_max: u64,
    /// Whether the breaker lets messages out; of all partitions, as in the one that delivers least.
    breaker: BreakerWord,
    /// When it last opened, unless it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker_opened_ts: Option<u64>,
    /// Until when nothing is delivered, while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker_until_ts: Option<u64>,
}

/// The numbers of the node: shards, log, topics.
#[derive(Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub(super) struct NodeStatsAnswer(NodeStats);

pub(super) const OPERATIONS: &[&Operation] = &[&LIST, &CREATE, &SHOW, &CHANGE, &DELETE, &PURGE, &STATS, &NODE_STATS];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&LIST, with!(app, list(bearer, query)))
        .add(&CREATE, with!(app, create(call, bearer, topic, body)))
        .add(&SHOW, with!(app, show(bearer, topic)))
        .add(&CHANGE, with!(app, change(call, bearer, topic, body)))
        .add(&DELETE, with!(app, delete(call, bearer, topic)))
        .add(&PURGE, with!(app, purge(call, bearer, topic)))
        .add(&STATS, with!(app, stats(call, bearer, topic)))
        .add(&NODE_STATS, with!(app, node_stats(bearer)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn list(app: Arc<App>, bearer: Bearer, query: Query<ListQuery>) -> HandlerResult {
    let ListQuery { after, prefix, limit } = query.0;
    // A right on `jobs.*` covers the name `jobs.*`, so it covers the list of what begins with `jobs.`.
    let covered = if prefix.is_empty() { String::new() } else { format!("{prefix}*") };
    app.allow_admin(&bearer, &covered)?;
    let after = after.map(|after| TopicName::read("after", &after)).transpose()?;
    let limit = dto::check_limit(limit, PAGE_DEFAULT, PAGE_MAX)?;
    let mut views = app.mailbox.topics(after.as_ref(), &prefix, limit);
    let mut bytes = 0;
    let too_large = views.iter().position(|view| {
        bytes += written_bytes(view);
        bytes > PAGE_BYTES_MAX
    });
    let may_be_more = too_large.is_some() || views.len() == limit;
    // One topic is always within the bound, so that every page shows some.
    views.truncate(too_large.unwrap_or(limit).max(1));
    let next = views.last().filter(|_| may_be_more).map(|view| view.name.as_str());
    Ok(Json(ListAnswer { topics: views.iter().map(TopicAnswer::from).collect(), next }).into_response())
}

async fn create(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>, body: JsonText) -> HandlerResult {
    let name = TopicName::read("topic", &topic.0)?;
    let subject = app.allow(&bearer, ADMIN, name.as_str())?;
    let asked: Settings = body.parse_or_default()?;
    asked.check(&app, &bearer, &name)?;
    let mut settings = app.mailbox.default_settings();
    asked.set(&mut settings);
    let (view, is_new) = app.mailbox.create_topic_as(Some(&subject), &name, settings, call.deadline).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(app.changed(status, &TopicAnswer::from(&view)))
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn show(app: Arc<App>, bearer: Bearer, topic: Path<String>) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    Ok(Json(TopicAnswer::from(&app.mailbox.topic(&name)?)).into_response())
}

async fn change(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>, body: JsonText) -> HandlerResult {
    let name = TopicName::read("topic", &topic.0)?;
    let subject = app.allow(&bearer, ADMIN, name.as_str())?;
    let asked: Settings = body.parse()?;
    asked.check(&app, &bearer, &name)?;
    if let Some(Some(target)) = &asked.dlq {
        // Nothing is made for a topic that is not there.
        app.mailbox.topic(&name)?;
        app.mailbox.make_dead_letter_topic(Some(&subject), target, call.deadline).await?;
    }
    let change = |settings: &mut TopicSettings| {
        if asked.dlq.is_some() || asked.max_attempts.is_some() {
            sqs::reattach(settings);
        }
        asked.set(settings);
        Ok(())
    };
    let view = app.mailbox.edit_topic(&name, change, call.deadline).await?;
    Ok(app.changed(StatusCode::OK, &TopicAnswer::from(&view)))
}

async fn delete(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    app.mailbox.delete_topic(&name, call.deadline).await?;
    Ok(app.done())
}

async fn purge(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let purged = app.mailbox.purge(&name, call.deadline).await?;
    Ok(app.changed(StatusCode::OK, &PurgeAnswer { purged }))
}

async fn stats(app: Arc<App>, call: Call, bearer: Bearer, topic: Path<String>) -> HandlerResult {
    let name = app.named(&bearer, &topic.0)?;
    let stats = app.mailbox.stats(&name, call.deadline).await?;
    let partitions = stats.partitions.into_iter();
    let partitions =
        partitions.map(|(partition, shard, stats)| PartitionNumbers { partition, shard, numbers: stats.into() });
    let answer = StatsAnswer { topic: name.as_str(), total: stats.total.into(), partitions: partitions.collect() };
    Ok(Json(answer).into_response())
}

#[expect(clippy::unused_async, reason = "a handler")]
async fn node_stats(app: Arc<App>, bearer: Bearer) -> HandlerResult {
    app.allow_admin(&bearer, "")?;
    Ok(Json(NodeStatsAnswer(app.mailbox.node_stats())).into_response())
}

impl App {
    /// The topic named in a path, which the bearer may look after.
    pub(super) fn named(&self, bearer: &Bearer, topic: &str) -> Result<TopicName, Error> {
        let name = TopicName::read("topic", topic)?;
        self.allow_admin(bearer, name.as_str())?;
        Ok(name)
    }
}

/// The topic that is named for dead letters and is not there, whatever has its name now.
pub(super) fn missing_dlq(view: &TopicView) -> Option<&str> {
    let named = view.settings.dlq.as_deref().filter(|_| view.dead_letters.is_none());
    named.or_else(|| sqs::lost_target(&view.settings))
}

/// Bytes that a topic takes when it is written, about: its labels may be long, the rest is not.
fn written_bytes(view: &TopicView) -> usize {
    let labels = view.settings.labels.iter().map(|(name, value)| name.len() + value.len() + 6);
    1024 + labels.sum::<usize>()
}

impl<'a> From<&'a TopicView> for TopicAnswer<'a> {
    fn from(view: &'a TopicView) -> Self {
        TopicAnswer {
            name: view.name.as_str(),
            created_ts: view.created_ms,
            dead_letters_of: view.dead_letters_of.as_ref().map(TopicName::as_str),
            dlq_missing: missing_dlq(view),
            settings: &view.settings,
        }
    }
}

/// Tells what is given as null from what is not given.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

fn given_breaker<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<BreakerSettings>>, D::Error> {
    Option::<BreakerFields>::deserialize(deserializer).map(|fields| Some(fields.map(BreakerSettings::from)))
}

impl From<BreakerFields> for BreakerSettings {
    fn from(fields: BreakerFields) -> Self {
        let usual = BreakerSettings::default();
        BreakerSettings {
            failing_percent: fields.failing_percent.unwrap_or(usual.failing_percent),
            window_ms: fields.window_ms.unwrap_or(usual.window_ms),
            deliveries_min: fields.deliveries_min.unwrap_or(usual.deliveries_min),
            pause_ms: fields.pause_ms.unwrap_or(usual.pause_ms),
        }
    }
}

impl Settings {
    /// A caller that sends dead letters to another topic needs `admin` on that topic, too: they fill it, and it cannot
    /// be removed while they may come.
    fn check(&self, app: &App, bearer: &Bearer, name: &TopicName) -> Result<(), Error> {
        let Some(Some(target)) = &self.dlq else { return Ok(()) };
        let target = TopicName::read("dlq", target)?;
        app.allow_admin(bearer, target.as_str())?;
        match target == *name {
            // SQS has a use for that: clients of it set such a policy, which then does nothing.
            true => Err(Error::schema("dlq: a topic cannot hold its own dead letters")),
            false => Ok(()),
        }
    }

    fn set(self, settings: &mut TopicSettings) {
        macro_rules! set {
            ($($field:ident)*) => {
                // Naming every field of both makes a forgotten one a compile error.
                let Settings { $($field,)* } = self;
                let TopicSettings { $($field: _,)* } = settings;
                $(if let Some(value) = $field { settings.$field = value; })*
            };
        }
        set!(visibility_ms max_attempts replay_window_ms retention_ms expired delay_ms partitions groups dlq
            backoff_base_ms backoff_max_ms messages_max bytes_max inflight_max payload_bytes_max paused breaker
            labels);
    }
}

impl From<PartStats> for Numbers {
    fn from(stats: PartStats) -> Self {
        Numbers {
            ready: stats.ready,
            delayed: stats.delayed,
            leased: stats.leased,
            bytes: stats.bytes,
            groups: stats.groups,
            keys: stats.keys,
            oldest_ts: stats.oldest_ms,
            sent: stats.sent,
            delivered: stats.delivered,
            acked: stats.acked,
            failed: stats.failed,
            died: stats.died,
            expired: stats.expired,
            reorder_depth_max: stats.reorder_depth_max,
            breaker: stats.breaker.state.into(),
            breaker_opened_ts: stats.breaker.opened_ms,
            breaker_until_ts: stats.breaker.until_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_changed_where_they_are_given_and_null_is_given() {
        let breaker = BreakerSettings { deliveries_min: 7, ..BreakerSettings::default() };
        let before = TopicSettings {
            dlq: Some("other".into()),
            delay_ms: 7,
            breaker: Some(breaker),
            ..TopicSettings::default()
        };
        for (asked, expected) in [
            ("{}", before.clone()),
            (r#"{"dlq":null}"#, TopicSettings { dlq: None, ..before.clone() }),
            (r#"{"breaker":null}"#, TopicSettings { breaker: None, ..before.clone() }),
            (r#"{"breaker":{}}"#, TopicSettings { breaker: Some(BreakerSettings::default()), ..before.clone() }),
            (r#"{"dlq":"third"}"#, TopicSettings { dlq: Some("third".into()), ..before.clone() }),
            (
                r#"{"delay_ms":9,"groups":"fifo","paused":true}"#,
                TopicSettings { delay_ms: 9, groups: Groups::Fifo, paused: true, ..before.clone() },
            ),
        ] {
            let mut settings = before.clone();
            serde_json::from_str::<Settings>(asked).expect(asked).set(&mut settings);
            assert_eq!(settings, expected, "{asked}");
        }
        for wrong in [
            r#"{"delay":1}"#,
            r#"{"delay_ms":-1}"#,
            r#"{"groups":"lifo"}"#,
            r#"{"partitions":70000}"#,
            r#"{"breaker":true}"#,
            r#"{"breaker":{"percent":5}}"#,
        ] {
            assert!(serde_json::from_str::<Settings>(wrong).is_err(), "{wrong}");
        }
    }
}
