//! A login link works once, and then only the browser that used it is logged in.

use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde_json::Value;

use super::*;
use ctxhost_config::TelemetrySettings;

struct Stage {
    url: String,
    pass: Arc<DashboardLogin>,
    client: Client,
}

impl Stage {
    async fn open() -> Stage {
        let pass = Arc::new(DashboardLogin::default());
        let board = Arc::new(LiveStats::new("mask", &TelemetrySettings::default()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = routes(board, pass.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Stage { url, pass, client }
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
    stage.pass.new_link();
    for path in ["/ui", "/ui/state", "/ui/page.js", "/ui/page.css", "/ui?token=", "/ui?token=0"] {
        let answer = stage.get(path, Some("ctxhost_ui=0; other=1")).await;
        assert_eq!(answer.status(), 401, "{path}");
        assert!(answer.headers().get("set-cookie").is_none());
        assert_eq!(answer.text().await.unwrap(), REFUSED);
    }
}

#[tokio::test]
async fn a_link_works_once_and_the_browser_stays_logged_in() {
    let stage = Stage::open().await;
    let link = stage.pass.new_link();
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
    assert_eq!(state["configured"], "mask");
}

#[tokio::test]
async fn the_page_loads_nothing_from_other_hosts() {
    let stage = Stage::open().await;
    let cookie = cookie(&stage.get(&stage.pass.new_link(), None).await);
    for path in ["/ui", "/ui/page.js", "/ui/page.css", "/ui/state"] {
        let answer = stage.get(path, Some(&cookie)).await;
        assert_eq!(answer.headers()["content-security-policy"], POLICY, "{path}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    for text in [PAGE, STYLE, SCRIPT] {
        let addresses = text.match_indices("//").map(|(at, _)| &text[at..]);
        let external = addresses.filter(|rest| !rest.starts_with("// ")).collect::<Vec<_>>();
        // The namespace of SVG is a name, not an address that is loaded.
        assert!(external.iter().all(|rest| rest.starts_with("//www.w3.org/2000/svg")));
        assert!(
            !text.contains("innerHTML") && !text.contains("<style") && !text.contains("style=")
        );
    }
}

#[test]
fn unused_links_are_dropped_for_newer_ones() {
    let pass = DashboardLogin::default();
    let links: Vec<_> = (0..17).map(|_| pass.new_link()).collect();
    let token = |link: &str| link.split_once("token=").unwrap().1.to_owned();
    assert_eq!(pass.redeem(&token(&links[0])), None);
    let cookie = pass.redeem(&token(&links[16])).unwrap();
    assert!(pass.has_cookie(&cookie) && !pass.has_cookie(&token(&links[16])));
    assert_ne!(links[1], links[2]);
}
