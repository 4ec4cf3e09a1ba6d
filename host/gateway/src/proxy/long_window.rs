//! Maps a Claude model with a requested long window to its own model name.

use std::borrow::Cow;

use axum::http::HeaderMap;

use ctxhost_config::{LONG_WINDOW_SUFFIX, bare_model_name, table_window};

/// Models that have a long window on request. Newer ones always have it.
const LONG_ON_DEMAND: &str = "claude-sonnet-4";

/// The feature in the header `anthropic-beta` that requests it.
const LONG_FEATURE: &str = "context-1m-";

/// The name under which the window of a model is looked up and learned: the same model has two windows.
pub(super) fn window_model_name<'a>(model: &'a str, headers: &HeaderMap) -> Cow<'a, str> {
    let is_long = model.ends_with(LONG_WINDOW_SUFFIX);
    let may = bare_model_name(model).starts_with(LONG_ON_DEMAND) && !is_long;
    let long = || format!("{model}{LONG_WINDOW_SUFFIX}");
    // Newer ones always have it.
    if may && asks_for_long(headers) && table_window(model) != table_window(&long()) {
        Cow::Owned(long())
    } else {
        Cow::Borrowed(model)
    }
}

fn asks_for_long(headers: &HeaderMap) -> bool {
    let values = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    let mut features = values.flat_map(|value| value.split(','));
    features.any(|feature| feature.trim().starts_with(LONG_FEATURE))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_long_window_needs_the_header_and_the_model() {
        let check = |model: &str, features: &[&'static str], expected: &str| {
            let mut headers = HeaderMap::new();
            for value in features {
                headers.append("anthropic-beta", HeaderValue::from_static(value));
            }
            assert_eq!(window_model_name(model, &headers), expected, "{model} {features:?}");
        };
        let asking = ["oauth-2025-04-20", "token-counting-2024-11-01, context-1m-2025-08-07"];
        check("claude-sonnet-4-5", &asking, "claude-sonnet-4-5[1m]");
        check("claude-sonnet-4-20250514", &asking, "claude-sonnet-4-20250514[1m]");
        check("claude-sonnet-4-5", &asking[..1], "claude-sonnet-4-5");
        check("claude-opus-4-1", &asking, "claude-opus-4-1");
        check("claude-sonnet-4-6", &asking, "claude-sonnet-4-6");
        check("claude-sonnet-4-5[1m]", &asking, "claude-sonnet-4-5[1m]");
    }
}
