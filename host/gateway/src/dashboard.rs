//! The dashboard: a read-only page, unlocked by a token that works once.
//!
//! Page, style and script are part of the binary.

mod login;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use self::login::PATH;
use super::live_stats::conversations::LiveStats;
pub(crate) use login::DashboardLogin;

const PAGE: &str = include_str!("dashboard/page.html");
const STYLE: &str = include_str!("dashboard/page.css");
const SCRIPT: &str = include_str!("dashboard/page.js");

/// The content security policy: no forms, frames or other origins.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The error for a browser without a valid token or cookie.
const REFUSED: &str = "The dashboard needs the one-time link that ctxhost printed at start. \
     Restart ctxhost for a new link.\n";

/// Marks a request over TLS, whose cookie must be `Secure`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TlsConnection;

/// The routes below [`PATH`].
pub(super) fn routes(board: Arc<LiveStats>, pass: Arc<DashboardLogin>) -> Router {
    let state = |State(board): State<Arc<LiveStats>>| async move { Json(board.snapshot()) };
    let text = |kind, body| get(move || async move { ([(CONTENT_TYPE, kind)], body) });
    Router::new()
        .route(PATH, text("text/html; charset=utf-8", PAGE))
        .route("/ui/page.css", text("text/css; charset=utf-8", STYLE))
        .route("/ui/page.js", text("text/javascript; charset=utf-8", SCRIPT))
        .route("/ui/state", get(state))
        .layer(middleware::from_fn(move |request, next| authenticate(pass.clone(), request, next)))
        .with_state(board)
}

/// Requires a token or a cookie.
async fn authenticate(pass: Arc<DashboardLogin>, request: Request, next: Next) -> Response {
    let is_secure = request.extensions().get::<TlsConnection>().is_some();
    let mut response = if has_valid_cookie(&pass, request.headers()) {
        next.run(request).await
    } else {
        match query_token(request.uri().query()).and_then(|token| pass.redeem(token)) {
            Some(cookie) => redirect_with_cookie(&cookie, is_secure),
            None => (StatusCode::UNAUTHORIZED, REFUSED).into_response(),
        }
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
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

/// Whether a request has a token or a cookie of the dashboard, valid or not.
pub(super) fn has_token(request: &Request) -> bool {
    let is_ours = |line: &str| line.contains(login::COOKIE_NAME);
    let mut cookies = request.headers().get_all(COOKIE).iter();
    query_token(request.uri().query()).is_some()
        || cookies.any(|value| value.to_str().is_ok_and(is_ours))
}

fn has_valid_cookie(pass: &DashboardLogin, headers: &HeaderMap) -> bool {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let mut ours = pairs.filter(|(name, _)| name.trim() == login::COOKIE_NAME);
    ours.any(|(_, value)| pass.has_cookie(value.trim()))
}

fn query_token(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

#[cfg(test)]
mod tests;
