//! The client of the public plane: one connection kept open, JSON both ways, and a bearer token.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use macronode_client::http::{Link, StreamingAnswer};
use ron_kernel::Deadline;
use serde_json::Value;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use super::{Client, NodeAnswer, TOKEN_VARIABLE, addresses, configured, read_token};
use crate::cli::ApiArgs;
use crate::data_dir::TOKEN_FILE;
use crate::errors::{Code, Failure};

/// Time the node has for a request that waits for nothing.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Time the answer has to arrive beyond the node's own time.
const TRAVEL: Duration = Duration::from_secs(3);

/// Client of the public plane of one node.
pub struct ApiClient {
    client: Client,
    bearer: HeaderValue,
    /// The token, if it was found beside the node's data: not sent before the node has proved that it knows it.
    found_token: Option<Zeroizing<String>>,
    has_proved: OnceCell<()>,
    /// Source of the token, for messages.
    token_source: String,
    link: Link,
}

/// A problem body, as far as people are told of it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    title: String,
    detail: String,
    retry_after_ms: Option<u64>,
}

impl ApiClient {
    /// Finds the node: the address given, else the one in its data directory, else the configured one.
    pub fn find(args: &ApiArgs) -> Result<ApiClient, Failure> {
        let config = configured();
        let data_dir = args.data_dir.clone().unwrap_or_else(|| config.data_dir.clone());
        let scheme = if config.api.tls_cert.is_some() { "https" } else { "http" };
        let written = args.api.clone().unwrap_or_else(|| {
            let known = addresses(&data_dir).api.unwrap_or_else(|| config.api.addr.to_string());
            format!("{scheme}://{known}")
        });
        let root = args.ca.as_deref().or(config.api.tls_cert.as_deref());
        let client = Client { plane: "public", ..Client::to(&written, root, PathBuf::new())? };
        let variable = std::env::var(TOKEN_VARIABLE).ok();
        let is_given = args.token.is_some()
            || args.token_file.is_some()
            || variable.as_ref().is_some_and(|token| !token.is_empty());
        let (token, token_source) = find_token(args, variable, data_dir.join(TOKEN_FILE))?;
        let text = Zeroizing::new(format!("Bearer {}", token.trim()));
        let mut bearer = HeaderValue::from_str(&text)
            .map_err(|_| Failure::new(Code::TokenUnusable, format!("{token_source} holds no token")))?;
        bearer.set_sensitive(true);
        let found_token = (!is_given).then_some(token);
        Ok(ApiClient { client, bearer, found_token, has_proved: OnceCell::new(), token_source, link: Link::default() })
    }

    /// Makes sure, once, that a token which was found and not given goes to its own node only.
    async fn check_identity(&self) -> Result<(), Failure> {
        let Some(token) = &self.found_token else { return Ok(()) };
        let asked = || self.client.check_identity("/v1/identity", token, &self.token_source);
        self.has_proved.get_or_try_init(asked).await.copied()
    }

    /// Address that is asked, for messages.
    pub fn address(&self) -> &str {
        self.client.address()
    }

    /// Base URL of the plane.
    pub fn url(&self) -> String {
        self.client.url()
    }

    /// Sends a GET.
    pub async fn get(&mut self, path: &str) -> Result<NodeAnswer, Failure> {
        let answer = self.ask(Method::GET, path, None, PATIENCE).await?;
        self.accepted(path, answer)
    }

    /// Sends a POST with a JSON body.
    pub async fn post(&mut self, path: &str, body: &Value) -> Result<NodeAnswer, Failure> {
        self.post_within(path, body, PATIENCE).await
    }

    /// Brings a file.
    pub async fn put(&mut self, path: &str, bytes: Bytes, patience: Duration) -> Result<NodeAnswer, Failure> {
        let answer = self.put_bytes(path, bytes, patience).await?;
        self.accepted(path, answer)
    }

    /// Sends a POST with more headers.
    pub async fn post_with(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<NodeAnswer, Failure> {
        let body = Bytes::from(body.to_string());
        let answer = self.send(Method::POST, path, headers, ("application/json", body), PATIENCE).await?;
        self.accepted(path, answer)
    }

    /// Puts bytes as they are; the answer may be a refusal.
    pub async fn put_bytes(&mut self, path: &str, bytes: Bytes, patience: Duration) -> Result<NodeAnswer, Failure> {
        self.send(Method::PUT, path, &[], ("application/octet-stream", bytes), patience).await
    }

    /// Asks for something that may take this long.
    pub async fn post_within(&mut self, path: &str, body: &Value, patience: Duration) -> Result<NodeAnswer, Failure> {
        let answer = self.ask(Method::POST, path, Some(body), patience).await?;
        self.accepted(path, answer)
    }

    /// One request whose answer may be a refusal.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<NodeAnswer, Failure> {
        let body = Bytes::from(body.map(Value::to_string).unwrap_or_default());
        self.send(method, path, &[], ("application/json", body), patience).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        (media_type, body): (&str, Bytes),
        patience: Duration,
    ) -> Result<NodeAnswer, Failure> {
        self.check_identity().await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.client.address())
            .header(CONTENT_TYPE, media_type)
            .header(AUTHORIZATION, self.bearer.clone())
            .header("x-request-deadline-ms", patience.as_millis().to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| Failure::new(Code::NodeRefused, format!("cannot ask for {path}: {error}")))?;
        self.client.exchange(&mut self.link, "public request", request, patience + TRAVEL).await
    }

    /// Opens a stream of events, behind the one with this id if there is one.
    pub async fn open_stream(&self, path: &str, last_id: Option<&str>) -> Result<StreamingAnswer, Failure> {
        self.check_identity().await?;
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(HOST, self.client.address())
            .header(ACCEPT, "text/event-stream")
            .header(AUTHORIZATION, self.bearer.clone());
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let request = request.body(Full::default());
        let request =
            request.map_err(|error| Failure::new(Code::NodeRefused, format!("cannot ask for {path}: {error}")))?;
        let opening = Box::pin(StreamingAnswer::open(&self.client.endpoint, request));
        let mut answer = match Deadline::after(PATIENCE + TRAVEL).run("stream", opening).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.client.unanswered(&error)),
            Err(_) => return Err(self.client.silent("no answer in time")),
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        // A refusal is short and comes at once.
        let first = Deadline::after(TRAVEL).run("refusal", answer.next()).await;
        let body = first.ok().flatten().and_then(Result::ok).unwrap_or_default();
        self.accepted(path, NodeAnswer { status: answer.status().as_u16(), body })?;
        Err(Failure::new(Code::NodeRefused, format!("the node refused {path}")))
    }

    /// The answer, unless it is a refusal.
    pub fn accepted(&self, path: &str, answer: NodeAnswer) -> Result<NodeAnswer, Failure> {
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        let said = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
        let reason = match problem.code.as_str() {
            "" => format!("{} no reason given", answer.status),
            code => format!("{code} {said}"),
        };
        let (code, message) = match answer.status {
            401 => (Code::TokenUnusable, format!("the node refused the token of {}: {reason}", self.token_source)),
            403 => {
                let message = format!("the token of {} does not allow {path}: {reason}", self.token_source);
                (Code::TokenUnusable, message)
            }
            _ => (Code::NodeRefused, format!("the node refused {path}: {reason}")),
        };
        Err(Failure::new(code, message))
    }
}

impl NodeAnswer {
    /// Pause the node asks for before the same request, if it is only busy.
    pub fn retry_after(&self) -> Option<Duration> {
        let problem: Problem = serde_json::from_slice(&self.body).unwrap_or_default();
        (self.status == 429).then(|| Duration::from_millis(problem.retry_after_ms.unwrap_or(1000)))
    }

    /// Why the node refused, in its own words.
    pub fn reason(&self) -> String {
        let problem: Problem = serde_json::from_slice(&self.body).unwrap_or_default();
        if problem.detail.is_empty() { format!("it answered {}", self.status) } else { problem.detail }
    }
}

/// The token and where it came from: the command line, the environment, or the data directory.
fn find_token(
    args: &ApiArgs,
    variable: Option<String>,
    default_file: PathBuf,
) -> Result<(Zeroizing<String>, String), Failure> {
    if let Some(token) = &args.token {
        return Ok((Zeroizing::new(token.clone()), "--token".to_owned()));
    }
    if let (Some(token), None) = (variable.filter(|token| !token.is_empty()), &args.token_file) {
        return Ok((Zeroizing::new(token), TOKEN_VARIABLE.to_owned()));
    }
    let file = args.token_file.clone().unwrap_or(default_file);
    let token = read_token(&file).map_err(|failure| Failure {
        message: format!("{}; or --token TOKEN, or {TOKEN_VARIABLE}", failure.message),
        ..failure
    })?;
    Ok((token, file.display().to_string()))
}

#[cfg(test)]
mod tests;
