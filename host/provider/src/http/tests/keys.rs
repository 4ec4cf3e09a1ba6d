//! Keys, headers and proxies: their sources, and that they are never shown.

use super::*;

/// A command that prints `sk-run-1`, then `sk-run-2` and so on.
fn counting_command(folder: &tempfile::TempDir) -> Vec<String> {
    let runs = folder.path().join("runs");
    let script = format!("echo >> '{0}'; echo sk-run-$(grep -c '' '{0}')", runs.display());
    ["sh", "-c", &script].map(str::to_owned).into()
}

#[tokio::test]
async fn a_key_command_runs_once_and_again_when_its_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, sent| match sent.header("authorization") {
        "Bearer sk-run-2" => whole("welcome"),
        _ => plain(401, &[], r#"{"error":{"message":"no"}}"#),
    })
    .await;
    let key = ApiKey::from_command(counting_command(&folder));
    let client = client_with(&settings(&server.base_url), key);
    for _ in 0..3 {
        assert_eq!(ask(&client).await.answer.unwrap().text(), "welcome");
    }
    let keys: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.header("authorization").to_owned())
        .collect();
    assert_eq!(
        keys,
        ["sk-run-1", "sk-run-2", "sk-run-2", "sk-run-2"].map(|key| format!("Bearer {key}"))
    );
}

#[tokio::test]
async fn a_key_that_is_refused_twice_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let server = always(|| plain(401, &[], r#"{"error":{"message":"no"}}"#)).await;
    let key = ApiKey::from_command(counting_command(&folder));
    let outcome = ask(&client_with(&settings(&server.base_url), key)).await;
    assert_eq!((outcome.reason(), server.requests().len()), (FailureReason::Auth, 2));
}

#[tokio::test]
async fn a_failed_key_command_is_named_without_its_output() {
    let server = always(|| whole("never")).await;
    let check = async |command: &[&str], expected: &str| {
        let key = ApiKey::from_command(command.iter().map(|&word| word.to_owned()).collect());
        let outcome = ask(&client_with(&settings(&server.base_url), key)).await;
        assert_eq!(outcome.reason(), FailureReason::Auth);
        let message = &outcome.error().message;
        assert!(message.contains(expected) && !message.contains("4711"), "{message}");
    };
    check(&["sh", "-c", "echo sk-4711; echo sk-4711 >&2; exit 3"], "exit status: 3").await;
    check(&["true"], "printed nothing").await;
    // It prints without end.
    check(&["yes", "4711"], "more than 65536 bytes").await;
    check(&["no-such-program-of-ours", "4711"], "cannot be started").await;
    check(&["printf", "a\\001b"], "headers cannot hold").await;
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn headers_of_the_config_go_before_all_others() {
    let server = always(|| whole("ok")).await;
    let mut settings = settings(&server.base_url);
    settings.headers.insert("Authorization".into(), "Basic own".into());
    settings.headers.insert("x-team".into(), "context".into());
    ask(&client_with(&settings, ApiKey::from_secret(KEY.into()))).await.answer.unwrap();
    let [sent] = server.requests().try_into().unwrap();
    assert_eq!((sent.header("authorization"), sent.header("x-team")), ("Basic own", "context"));
}

#[tokio::test]
async fn a_proxy_is_asked_for_everything() {
    let proxy = always(|| whole("by proxy")).await;
    let settings = ProviderSettings {
        proxy: Some(proxy.base_url.trim_end_matches("/v1").to_owned()),
        ..settings("http://provider.invalid/v1")
    };
    let outcome = ask(&client_with(&settings, ApiKey::none())).await;
    assert_eq!(outcome.answer.unwrap().text(), "by proxy");
    assert_eq!(proxy.requests()[0].uri, "http://provider.invalid/v1/chat/completions");
}

#[test]
fn settings_that_cannot_be_used_are_named_without_their_value() {
    let check = |change: fn(&mut ProviderSettings), setting: &str| {
        let mut settings = settings("http://x/v1");
        change(&mut settings);
        let dialect = Box::new(OpenAiChat::default());
        let error = HttpClient::new("here", dialect, ApiKey::none(), &settings).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{setting} of here cannot be used")), "{message}");
        assert!(!message.contains("4711"), "{message}");
    };
    check(|settings| settings.base_url = Some("ftp://4711/".into()), "base_url");
    check(|settings| settings.base_url = Some("http://".into()), "base_url");
    check(|settings| settings.proxy = Some("me:4711@proxy".into()), "proxy");
    check(|settings| drop(settings.headers.insert("x-key".into(), "4711\n".into())), "headers");
    check(|settings| drop(settings.headers.insert("x key".into(), "4711".into())), "headers");
}

#[test]
fn keys_come_from_the_configured_source() {
    use crate::connect::connect;
    let name = |variable: &str| ProviderSettings {
        api_key_env: Some(variable.to_owned()),
        ..settings("http://x/v1")
    };
    assert_eq!(connect("here", &name("CARGO_PKG_NAME")).unwrap().name(), "here");
    let error = connect("here", &name("CTXHOST_NO_SUCH_KEY")).unwrap_err();
    assert_eq!(error.to_string(), "the key for here is missing: CTXHOST_NO_SUCH_KEY is not set");
    // A server of one's own is sent no key that was meant for another.
    connect("here", &settings("http://x/v1")).unwrap();
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<StdMutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_key_is_never_shown() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        // The digits of a time may be those of the key.
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    // With a single dispatcher, `tracing` caches the interest of the first thread that reaches a
    // callsite, which may be another test's. With two it asks both.
    let _second =
        tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut shown = String::new();
    let echo =
        format!(r#"{{"error":{{"message":"wrong key {KEY}, header hd-4711","code":"{KEY}"}}}}"#);
    let answers: Vec<(u16, String)> = vec![
        (401, echo.clone()),
        (429, echo.clone()),
        (500, format!("<p>{KEY} hd-4711</p>")),
        (200, echo.clone()),
        (200, format!("data: {echo}\n\n")),
        (200, format!("data: {KEY} hd-4711 {{\n\n")),
        (200, format!("<html>{KEY} hd-4711</html>")),
        (200, format!("{KEY} hd-4711")),
    ];
    for (status, body) in answers {
        let server = always(move || plain(status, &[], body.clone())).await;
        let mut settings = settings(&server.base_url);
        settings.headers.insert("x-api-key".into(), "hd-4711".into());
        let client = client_with(&settings, ApiKey::from_secret(KEY.into()));
        let outcome = ask(&client).await;
        let error = outcome.error();
        assert!(error.message.contains("[key]"), "{status}: {error}");
        shown += &format!("{error} {error:?} {client:?} {settings:?}");
        // The key was sent, so that it could have been shown.
        assert_eq!(server.requests()[0].header("authorization"), format!("Bearer {KEY}"));
    }
    shown += &String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(shown.contains("retrying"), "nothing was logged");
    assert!(
        !shown.contains("4711"),
        "{}",
        shown.lines().find(|line| line.contains("4711")).unwrap()
    );
}
