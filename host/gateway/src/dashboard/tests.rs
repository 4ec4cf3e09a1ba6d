//! A login link works once, and then only the browser that used it is logged in.

use std::path::Path;

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use secrecy::SecretString;
use serde_json::Value;

use super::*;

const GATEWAY_TOKEN: &str = "a long token, & more";

struct Stage {
    url: String,
    login: Arc<DashboardLogin>,
    client: Client,
    folder: tempfile::TempDir,
}

impl Stage {
    async fn open() -> Stage {
        Stage::over(tempfile::tempdir().unwrap()).await
    }

    async fn over(folder: tempfile::TempDir) -> Stage {
        let token = SecretString::from(GATEWAY_TOKEN);
        let login = Arc::new(DashboardLogin::new(folder.path().join("dashboard"), Some(&token)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes(login.clone(), StatsSnapshot::default);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Stage { url, login, client, folder }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.folder.path().join("dashboard")
    }

    async fn get(&self, path: &str, cookie: Option<&str>) -> Response {
        let mut request = self.client.get(format!("{}{path}", self.url));
        if let Some(cookie) = cookie {
            request = request.header("cookie", cookie);
        }
        request.send().await.unwrap()
    }
}

fn cookie(response: &Response) -> String {
    let line = response.headers()["set-cookie"].to_str().unwrap();
    assert!(line.contains("; HttpOnly; SameSite=Strict"), "{line}");
    line.split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn access_needs_a_token() {
    let stage = Stage::open().await;
    stage.login.new_link();
    for path in ["/ui", "/ui/state", "/ui/page.js", "/ui?token=", "/ui?token=../x"] {
        let answer = stage.get(path, Some("ctxhost_ui=0; other=1")).await;
        assert_eq!(answer.status(), 401, "{path}");
        assert!(answer.headers().get("set-cookie").is_none());
        let is_page = path.starts_with("/ui?") || path == "/ui";
        // A bookmarked page says how to log in again.
        assert_eq!(answer.text().await.unwrap().contains("ctxhost ui"), is_page, "{path}");
    }
}

#[tokio::test]
async fn a_link_works_once_and_the_browser_stays_logged_in() {
    let stage = Stage::open().await;
    let link = stage.login.new_link();
    let first = stage.get(&link, None).await;
    assert_eq!(
        (first.status().as_u16(), &first.headers()["location"]),
        (303, &HeaderValue::from_static("/ui"))
    );
    let cookie = cookie(&first);
    assert_eq!(stage.get(&link, None).await.status(), 401);
    for _ in 0..2 {
        let page = stage.get("/ui", Some(&format!("a=b; {cookie}"))).await;
        assert_eq!(page.status(), 200);
        assert_eq!(page.text().await.unwrap(), PAGE);
    }
    let state: Value = stage.get("/ui/state", Some(&cookie)).await.json().await.unwrap();
    assert_eq!(state["slot"]["configured"], "");
}

#[tokio::test]
async fn the_page_loads_nothing_from_other_hosts() {
    let stage = Stage::open().await;
    let cookie = cookie(&stage.get(&stage.login.new_link(), None).await);
    for path in ["/ui", "/ui/page.js", "/ui/page.css", "/ui/state"] {
        let answer = stage.get(path, Some(&cookie)).await;
        assert_eq!(answer.headers()["content-security-policy"], POLICY, "{path}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    for text in [PAGE, LOGIN, STYLE, SCRIPT] {
        let addresses = text.match_indices("//").map(|(at, _)| &text[at..]);
        let external = addresses.filter(|rest| !rest.starts_with("// ")).collect::<Vec<_>>();
        // The namespace of SVG is a name, not an address that is loaded.
        assert!(external.iter().all(|rest| rest.starts_with("//www.w3.org/2000/svg")));
        assert!(
            !text.contains("innerHTML") && !text.contains("<style") && !text.contains("style=")
        );
    }
}

#[tokio::test]
async fn the_gateway_token_logs_in_as_often_as_one_likes() {
    let stage = Stage::open().await;
    for token in [GATEWAY_TOKEN, "a wrong one"] {
        let form = form_urlencoded::Serializer::new(String::new());
        let form = { form }.append_pair("token", token).finish();
        for _ in 0..2 {
            let posted = stage.client.post(format!("{}/ui", stage.url)).body(form.clone());
            let linked = stage.client.get(format!("{}/ui?{form}", stage.url));
            for answer in [posted.send().await.unwrap(), linked.send().await.unwrap()] {
                let expected = if token == GATEWAY_TOKEN { 303 } else { 401 };
                assert_eq!(answer.status(), expected, "{token}");
            }
        }
        let state = stage.client.get(format!("{}/ui/state", stage.url)).bearer_auth(token);
        let expected = if token == GATEWAY_TOKEN { 200 } else { 401 };
        assert_eq!(state.send().await.unwrap().status(), expected);
    }
}

#[tokio::test]
async fn another_process_makes_links_that_survive_a_kill() {
    let stage = Stage::open().await;
    let link = new_dashboard_link(&stage.folder()).unwrap();
    let cookie = cookie(&stage.get(&stage.login.new_link(), None).await);
    let again = Stage::over(stage.folder).await;
    assert_eq!(again.get("/ui", Some(&cookie)).await.status(), 401, "the cookie does not");
    assert_eq!(again.get(&link, None).await.status(), 303);
    assert_eq!(again.get(&link, None).await.status(), 401);
}

#[test]
fn unused_links_are_dropped_for_newer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    let links: Vec<_> = (0..20).map(|_| new_dashboard_link(folder.path()).unwrap()).collect();
    assert_eq!(count(folder.path()), 16);
    let login = DashboardLogin::new(folder.path().to_owned(), None);
    let token = |link: &str| link.split_once("token=").unwrap().1.to_owned();
    let cookie = login.redeem(&token(&links[19])).unwrap();
    assert!(login.has_cookie(&cookie) && !login.has_cookie(&token(&links[19])));
    assert_eq!(count(folder.path()), 15);
}

#[test]
fn running_gateways_are_found_and_killed_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(running_gateways(folder.path()), [""; 0]);
    let first = GatewayAnnouncement::publish(folder.path(), "http://127.0.0.1:1").unwrap();
    let second = GatewayAnnouncement::publish(folder.path(), "http://127.0.0.1:2").unwrap();
    // Left behind by a killed gateway: its lock is gone.
    std::fs::write(folder.path().join("gateway-1-3"), "http://127.0.0.1:3").unwrap();
    assert_eq!(running_gateways(folder.path()), ["http://127.0.0.1:1", "http://127.0.0.1:2"]);
    drop(first);
    assert_eq!(running_gateways(folder.path()), ["http://127.0.0.1:2"]);
    new_dashboard_link(folder.path()).unwrap();
    drop(second);
    assert!(!folder.path().exists(), "the last gateway leaves nothing behind");
}

#[test]
fn the_chart_is_as_high_as_its_highest_point() {
    let function = SCRIPT.split("function highest(points) {").nth(1).unwrap();
    let function = function.split("\n}\n").next().unwrap();
    // A window that was learned by an overflow: the request before was larger than the new budget.
    let script = format!(
        "function highest(points) {{{function}\n}}\n\
         const point = (tokens, budget_tokens) => ({{ tokens, live_tokens: tokens, budget_tokens }});\n\
         console.log(highest([point(150000, 180000), point(30000, 60000), point(40000, 60000)]));"
    );
    let node = std::process::Command::new("node").arg("-e").arg(script).output();
    // Without this interpreter the page cannot be run.
    let Ok(output) = node else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "180000");
}
