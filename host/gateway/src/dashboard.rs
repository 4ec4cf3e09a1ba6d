//! The dashboard: a read-only page, opened by a one-time link or the gateway's token.
//!
//! Page, style and script are part of the binary.

mod announcement;
mod login;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use url::form_urlencoded;

use self::login::PATH;
use super::auth::TOKEN_HEADER;
use super::live_stats::StatsSnapshot;
pub(crate) use announcement::GatewayAnnouncement;
pub use announcement::running_gateways;
pub use login::{DashboardLogin, dashboard_folder, new_dashboard_link};

const PAGE: &str = include_str!("dashboard/page.html");
const LOGIN: &str = include_str!("dashboard/login.html");
const STYLE: &str = include_str!("dashboard/page.css");
const SCRIPT: &str = include_str!("dashboard/page.js");

/// The path of the style, which the login page needs before a login.
const STYLE_PATH: &str = "/ui/page.css";

/// The content security policy: no frames and no other origins.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
     connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The longest login form, in bytes.
const MAX_FORM_BYTES: usize = 8 * 1024;

/// Marks a request over TLS, whose cookie must be `Secure`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TlsConnection;

/// The routes below [`PATH`]. `read` answers what the page shows.
pub(super) fn routes(
    login: Arc<DashboardLogin>,
    read: impl Fn() -> StatsSnapshot + Clone + Send + Sync + 'static,
) -> Router {
    let state = move || async move { Json(read()) };
    let text = |kind, body| get(move || async move { ([(CONTENT_TYPE, kind)], body) });
    Router::new()
        // A form posted by a browser that is logged in already.
        .route(PATH, text("text/html; charset=utf-8", PAGE).post(|| async { see_page() }))
        .route("/ui/page.js", text("text/javascript; charset=utf-8", SCRIPT))
        .route("/ui/state", get(state))
        .layer(middleware::from_fn_with_state(login, authenticate))
        .route(STYLE_PATH, text("text/css; charset=utf-8", STYLE))
        .layer(middleware::map_response(with_page_headers))
}

/// Requires a token or a cookie.
async fn authenticate(
    State(login): State<Arc<DashboardLogin>>,
    request: Request,
    next: Next,
) -> Response {
    let is_secure = request.extensions().get::<TlsConnection>().is_some();
    let header = header_token(request.headers());
    if has_valid_cookie(&login, request.headers())
        || header.is_some_and(|token| login.is_gateway_token(token))
    {
        return next.run(request).await;
    }
    let is_page = request.uri().path() == PATH;
    let token = sent_token(request).await;
    match token.and_then(|token| login.redeem(&token)) {
        Some(cookie) => redirect_with_cookie(&cookie, is_secure),
        None if is_page => {
            let html = [(CONTENT_TYPE, "text/html; charset=utf-8")];
            (StatusCode::UNAUTHORIZED, html, LOGIN).into_response()
        }
        None => (StatusCode::UNAUTHORIZED, "not logged in: open /ui\n").into_response(),
    }
}

async fn with_page_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn see_page() -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, PATH)]).into_response()
}

/// Redirects to the page without the token in its URL, and sets the cookie.
fn redirect_with_cookie(cookie: &str, is_secure: bool) -> Response {
    let secure = if is_secure { "; Secure" } else { "" };
    let name = login::COOKIE_NAME;
    let cookie = format!("{name}={cookie}; Path={PATH}; HttpOnly; SameSite=Strict{secure}");
    // `SameSite=Strict` cookies are not sent on redirects that another site started. A link in a terminal is not
    // one.
    // Status 303 removes the used token from the URL, so that a reload works.
    (StatusCode::SEE_OTHER, [(LOCATION, PATH), (SET_COOKIE, cookie.as_str())]).into_response()
}

/// Whether a request tries to log in, or has a cookie of the dashboard, valid or not.
pub(super) fn has_token(request: &Request) -> bool {
    let is_ours = |line: &str| line.contains(login::COOKIE_NAME);
    let mut cookies = request.headers().get_all(COOKIE).iter();
    request.method() == Method::POST
        || header_token(request.headers()).is_some()
        || form_token(request.uri().query().unwrap_or_default().as_bytes()).is_some()
        || cookies.any(|value| value.to_str().is_ok_and(is_ours))
}

fn has_valid_cookie(login: &DashboardLogin, headers: &HeaderMap) -> bool {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let mut ours = pairs.filter(|(name, _)| name.trim() == login::COOKIE_NAME);
    ours.any(|(_, value)| login.has_cookie(value.trim()))
}

/// The token in a header, for clients that are no browsers.
fn header_token(headers: &HeaderMap) -> Option<&str> {
    let bearer = || headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ");
    headers.get(TOKEN_HEADER).and_then(|value| value.to_str().ok()).or_else(bearer)
}

/// The token in the URL of a link, or in the login form.
async fn sent_token(request: Request) -> Option<String> {
    if request.method() == Method::POST {
        let form = axum::body::to_bytes(Body::new(request.into_body()), MAX_FORM_BYTES).await;
        return form_token(&form.ok()?);
    }
    form_token(request.uri().query()?.as_bytes())
}

fn form_token(form: &[u8]) -> Option<String> {
    let mut fields = form_urlencoded::parse(form);
    fields.find_map(|(name, value)| (name == "token").then(|| value.trim().to_owned()))
}

#[cfg(test)]
mod tests;
