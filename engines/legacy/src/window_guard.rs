//! Layer 1, the window guard: refuses models whose window is too small to work in.
//!
//! System prompt, tools and reserve would leave no room for the other layers. The host tries the
//! next model.

use ctxhost_engine_api::ModelRef;
use ctxhost_engine_api::transcript::tokens::group_thousands;

use crate::settings::WindowSettings;

/// The guard's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WindowVerdict {
    /// Large enough.
    Clear,
    /// Usable, with a warning.
    Warn(String),
    /// Refused, with the reason for the user.
    Block(String),
}

/// Checks the window of a model.
pub(crate) fn check_window(model: &ModelRef, settings: &WindowSettings) -> WindowVerdict {
    let window = model.window_tokens;
    let limits = settings.limits(window);
    let (name, least) = (name_of(model), group_thousands(limits.block_tokens));
    // Guessing an unknown window would defeat the guard.
    if window == 0 {
        return WindowVerdict::Block(format!(
            "the context window of {name} is unknown; set its size, at least {least} tokens, in the config"
        ));
    }
    let size = group_thousands(window);
    if window < limits.block_tokens {
        return WindowVerdict::Block(format!(
            "the context window of {name} is {size} tokens and at least {least} are needed; raise the limit of a local server, choose a larger model, or use an engine for small windows, such as recall"
        ));
    }
    if window < limits.warn_tokens {
        let wanted = group_thousands(limits.warn_tokens);
        return WindowVerdict::Warn(format!(
            "low context window: {name} has {size} tokens, below {wanted}; expect frequent compactions"
        ));
    }
    WindowVerdict::Clear
}

fn name_of(model: &ModelRef) -> String {
    match (model.provider.as_str(), model.id.as_str()) {
        ("", "") => "the model".into(),
        ("", id) => id.into(),
        (provider, id) => format!("{provider}/{id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{WindowLimits, WindowRule};

    fn verdict(window_tokens: u64, settings: &WindowSettings) -> &'static str {
        let model = ModelRef { window_tokens, ..ModelRef::default() };
        match check_window(&model, settings) {
            WindowVerdict::Clear => "clear",
            WindowVerdict::Warn(_) => "warn",
            WindowVerdict::Block(_) => "block",
        }
    }

    fn reference(native_tokens: u64) -> WindowSettings {
        let rule = WindowRule::Reference;
        WindowSettings { rule, reference_tokens: native_tokens, ..WindowSettings::default() }
    }

    /// The defaults are fixed limits; shares of the native window are the rule `reference`.
    #[test]
    fn cases_9_to_13_the_limits_of_a_window() {
        let fixed = WindowSettings::default();
        for (case, window, settings, expected) in [
            ("9", 3_999, reference(0), "block"),
            ("9", 4_000, reference(0), "warn"),
            ("9", 8_000, reference(0), "clear"),
            ("9, the design blocks", 8_000, fixed.clone(), "block"),
            ("10", 0, fixed.clone(), "block"),
            ("10", 0, reference(0), "block"),
            ("11", 100_000, reference(0), "clear"),
            ("11", 200_000, fixed.clone(), "clear"),
            ("12", 8_192, reference(200_000), "warn"),
            ("12", 32_000, reference(200_000), "warn"),
            ("12", 40_000, reference(200_000), "clear"),
            ("13", 15_999, fixed.clone(), "block"),
            ("13", 16_000, fixed.clone(), "warn"),
            ("13", 20_000, fixed.clone(), "warn"),
            ("13", 32_000, fixed, "clear"),
        ] {
            assert_eq!(verdict(window, &settings), expected, "case {case}: {window}");
        }
    }

    #[test]
    fn cases_11_and_12_the_limits_themselves() {
        for (window, native, block_tokens, warn_tokens) in [
            (100_000, 0, 10_000, 20_000),
            (200_000, 0, 20_000, 40_000),
            (8_192, 200_000, 8_192, 40_000),
            (1_000, 0, 4_000, 8_000),
        ] {
            let limits = reference(native).limits(window);
            assert_eq!(limits, WindowLimits { block_tokens, warn_tokens }, "{window} of {native}");
        }
    }

    #[test]
    fn the_sentence_names_the_model_and_the_way_out() {
        let model = ModelRef { provider: "ollama".into(), id: "tiny".into(), window_tokens: 8_192 };
        let WindowVerdict::Block(sentence) = check_window(&model, &WindowSettings::default())
        else {
            panic!()
        };
        assert!(sentence.contains("ollama/tiny is 8,192 tokens and at least 16,000"), "{sentence}");
    }
}
