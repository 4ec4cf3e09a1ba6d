//! Checks before the first session: the engine's info, and creation with various configs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::session::check_error_kind;
use super::{ContractOptions, ContractSuite, ContractVerdict};
use crate::border::EngineFactory;
use crate::error::ErrorKind;
use crate::testing::{ScriptedHost, block_on_within};

/// How often an engine is created and disposed.
const ROUNDS: usize = 20;

pub(super) fn run(suite: &mut ContractSuite<'_>) {
    suite.check("info: stable", "info answers the same every time", |factory, _| {
        info_is_stable(factory)
    });
    suite.check("info: id", "the id matches ^[a-z0-9][a-z0-9-]{0,63}$", |factory, _| {
        id_is_sound(factory)
    });
    suite.check("info: version", "the version is a semantic version", |factory, _| {
        let version = info(factory)?.version;
        is_semver(&version).then_some(()).ok_or(format!("{version:?} is none"))
    });
    suite.check("create: own config", "the engine is created", |factory, options| {
        creates(factory, options, &options.config)
    });
    suite.check(
        "create: no settings",
        "defaults, or an error of kind Config",
        |factory, options| accepts_or_refuses(factory, options, &json!({})),
    );
    suite.check("create: wrong config", "ignored, or an error of kind Config", wrong_configs);
    suite.check("create: again and again", "create and dispose leave no trace", again_and_again);
}

fn info(factory: EngineFactory) -> Result<crate::EngineInfo, String> {
    factory.info().map_err(|error| error.to_string())
}

fn info_is_stable(factory: EngineFactory) -> ContractVerdict {
    let (first, second) = (info(factory)?, info(factory)?);
    (first == second).then_some(()).ok_or(format!("{first:?}, then {second:?}"))
}

fn id_is_sound(factory: EngineFactory) -> ContractVerdict {
    let id = info(factory)?.id;
    crate::engine::is_engine_id(&id).then_some(()).ok_or(format!("{id:?} does not"))
}

/// Three numbers without leading zeros, with an optional pre-release and build.
fn is_semver(version: &str) -> bool {
    let (version, build) = version.split_once('+').map_or((version, None), |(v, b)| (v, Some(b)));
    let (core, pre) = version.split_once('-').map_or((version, None), |(v, p)| (v, Some(p)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| {
            pre.split('.').all(|part| word(part) && (number(part) || !digits(part)))
        })
        && build.is_none_or(|build| build.split('.').all(word))
}

fn creates(factory: EngineFactory, options: &ContractOptions, config: &Value) -> ContractVerdict {
    let engine = factory.create(Arc::new(ScriptedHost::new()), config);
    let engine = engine.map_err(|error| format!("create failed: {error}"))?;
    match block_on_within(options.call_limit, engine.dispose()) {
        None => Err(format!("dispose took longer than {:?}", options.call_limit)),
        Some(disposed) => disposed.map_err(|error| format!("dispose: {error}")),
    }
}

/// The engine is created, or fails with kind `Config`; it does not panic.
fn accepts_or_refuses(
    factory: EngineFactory,
    options: &ContractOptions,
    config: &Value,
) -> ContractVerdict {
    let created = check_error_kind("create", factory.create(Arc::new(ScriptedHost::new()), config));
    match created.map_err(|fault| format!("{config}: {fault}"))? {
        Ok(_) => creates(factory, options, config),
        Err(error) if error.kind == ErrorKind::Config => Ok(()),
        Err(error) => Err(format!("{config}: an error of kind {:?}: {error}", error.kind)),
    }
}

fn wrong_configs(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let mut configs = vec![
        // Hosts pass the table unchecked, so engines see every mistake of a user.
        json!({ "no-such-setting-of-any-engine": 1 }),
        json!({ "": { "": [] } }),
        json!(null),
        json!([1, 2]),
        json!("text"),
        json!(-7),
    ];
    for (key, value) in options.config.as_object().into_iter().flatten() {
        let mut wrong = options.config.clone();
        // A value of another type for each known setting.
        let other = if value.is_array() { json!(true) } else { json!([[]]) };
        if let Some(settings) = wrong.as_object_mut() {
            settings.insert(key.clone(), other);
        }
        configs.push(wrong);
    }
    configs.iter().try_for_each(|config| accepts_or_refuses(factory, options, config))
}

fn again_and_again(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    (0..ROUNDS).try_for_each(|_| creates(factory, options, &options.config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_semantic_version() {
        for sound in ["0.1.0", "1.2.3-rc.1", "1.0.0+build.7", "10.20.30-a-b+c"] {
            assert!(is_semver(sound), "{sound}");
        }
        for unsound in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.x", "1.2.3-", "1.2.3-01", "v1.2.3"]
        {
            assert!(!is_semver(unsound), "{unsound}");
        }
    }
}
