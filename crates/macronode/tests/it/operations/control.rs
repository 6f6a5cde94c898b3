//! Control needs the operator token, and chaos needs to be asked for.

use http::Method;
use testkit::Plane;

use crate::options;
use testkit::ask;

const CONTROLS: [&str; 4] = ["/reload", "/drain", "/log-level", "/services/http/restart"];
const CHAOS: [&str; 2] = ["/chaos/kill?task=worker", "/chaos/freeze?task=worker"];

#[tokio::test]
async fn nothing_is_controlled_without_the_token() {
    let node = options().dev().chaos().start().await.expect("the node starts");
    let wrong = "0".repeat(64);
    let (bearer, longer) = (format!("Bearer {wrong}"), format!("Bearer {}0", node.token));
    let (shorter, basic) = (format!("Bearer {}", &node.token[..63]), format!("Basic {}", node.token));
    for path in CONTROLS.into_iter().chain(CHAOS) {
        for header in [None, Some(""), Some("Bearer "), Some(&*bearer), Some(&*longer), Some(&*shorter), Some(&*basic)]
        {
            let headers: Vec<(&str, &str)> = header.iter().map(|value| ("authorization", *value)).collect();
            let reply =
                ask(node.admin, Method::POST, path, &headers, r#"{"filter":"debug"}"#).await.expect("an answer");
            assert_eq!(reply.status, 401, "{path} with {header:?}: {}", reply.text());
            let problem = reply.json().expect("a problem");
            assert_eq!((&problem["code"], &problem["status"]), (&"E_CAP_AUTH".into(), &401.into()), "{path}");
            assert_eq!(reply.header("content-type"), "application/problem+json", "{path}");
            assert_eq!(reply.header("www-authenticate"), "Bearer", "{path}");
        }
    }
    assert_eq!(node.get(Plane::Admin, "/readyz").await.expect("an answer").status, 200, "nothing happened");
    assert!(!node.stderr().contains(&node.token), "the token is not logged");
    let version = node.get(Plane::Admin, "/version").await.expect("an answer").text();
    assert!(!version.contains(&node.token));
}

#[tokio::test]
async fn chaos_is_nowhere_unless_asked_for() {
    let node = options().dev().start().await.expect("the node starts");
    for path in CHAOS {
        let reply = node.post(Plane::Admin, path, "", &[]).await.expect("an answer");
        assert_eq!(reply.status, 404, "{path}");
    }
    let chaotic = options().dev().chaos().start().await.expect("the node starts");
    let reply = chaotic.post(Plane::Admin, CHAOS[0], "", &[]).await.expect("an answer");
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[tokio::test]
async fn controls_answer_what_came_of_them() {
    let node = options().dev().start().await.expect("the node starts");
    let post =
        async |path: &str, body: &'static str| node.post(Plane::Admin, path, body, &[]).await.expect("an answer");
    let unchanged = post("/reload", "").await.json().expect("JSON");
    assert_eq!((&unchanged["version"], &unchanged["changed"]), (&1.into(), &serde_json::json!([])));
    let log = post("/log-level", r#"{"filter":"debug"}"#).await;
    assert_eq!((log.status, log.json().expect("JSON")), (200, serde_json::json!({"filter": "debug"})));
    for bad in [r#"{"filter":"a=b=c"}"#, r#"{"level":"debug"}"#, "debug", ""] {
        assert_eq!(post("/log-level", bad).await.status, 400, "{bad}");
    }
    assert_eq!(post("/services/htpp/restart", "").await.status, 404);
    let restarted = post("/services/http/restart", "").await;
    assert_eq!((restarted.status, restarted.json().expect("JSON")["restarted"].clone()), (202, "http".into()));
    for path in CONTROLS {
        assert_eq!(node.get(Plane::Admin, path).await.expect("an answer").status, 405, "GET {path}");
    }
    assert_eq!(node.get(Plane::Admin, "/nowhere").await.expect("an answer").status, 404);
}
