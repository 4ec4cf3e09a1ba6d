//! Retention of generated conversations.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::testing::generate::transcripts;
use ctxhost_engine_api::{Plan, Role};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// One step of a generated conversation.
#[derive(Clone, Debug)]
enum Step {
    Asks(String),
    Answers(String),
    Runs(String, String, bool),
}

/// Few phrases, so that facts are repeated.
fn phrases() -> impl Strategy<Value = String> {
    const WORDS: [&str; 10] = [
        "fix src/cart/total.rs",
        "src/cart/total.rs took 12.5 ms",
        "commit deadbeefcafe01",
        "see https://example.com/a?b=1",
        "/srv/app/main.rs holds 1,204 lines",
        "87%",
        "ok",
        "password=hunter2hunter2",
        "error[E0308]: mismatched types",
        "日本語 /srv/データ",
    ];
    proptest::collection::vec(select(WORDS.as_slice()), 1..4).prop_map(|words| words.join(" and "))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        phrases().prop_map(Step::Asks),
        phrases().prop_map(Step::Answers),
        (phrases(), phrases(), any::<bool>())
            .prop_map(|(run, out, fails)| Step::Runs(run, out, fails)),
    ];
    proptest::collection::vec(step, 0..12)
}

fn build(steps: &[Step]) -> Transcript {
    let mut talk = TranscriptBuilder::new();
    for (number, step) in steps.iter().enumerate() {
        let id = number.to_string();
        match step {
            Step::Asks(text) => talk.user(text),
            Step::Answers(text) => talk.assistant(text),
            Step::Runs(command, output, fails) => {
                let arguments = serde_json::json!({ "command": command }).to_string();
                talk.calls(&[(&id, "shell", &arguments)]);
                if *fails {
                    talk.failure(&id, "shell", output)
                } else {
                    talk.result(&id, "shell", output)
                }
            }
        };
    }
    talk.transcript()
}

fn measure_plan(before: &Transcript, plan: &Plan) -> RetentionReport {
    measure_retention(before, &plan.project(before))
}

/// A plan that keeps the entries whose flag is set.
fn keeping(flags: &[bool]) -> Plan {
    let mut plan = Plan::default();
    for (at, _) in flags.iter().enumerate().filter(|(_, is_kept)| **is_kept) {
        plan.keep(at as u64..at as u64 + 1);
    }
    plan
}

fn check_whole(before: &Transcript) -> Result<(), TestCaseError> {
    let all = measure_plan(before, &Plan::keep_all(before.len()));
    let none = measure_plan(before, &Plan::default());
    for category in Category::ALL {
        let (kept, lost) = (all.shares.of(category), none.shares.of(category));
        prop_assert_eq!(kept.kept, kept.total);
        prop_assert_eq!(lost, CategoryShare { kept: 0, total: kept.total });
        let listed = none.lost.iter().filter(|lost| lost.category == category).count() as u64;
        prop_assert_eq!(listed, kept.total, "what is lost is listed");
    }
    prop_assert!(all.lost.is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn everything_or_nothing_is_retained(steps in steps()) {
        check_whole(&build(&steps))?;
    }

    #[test]
    fn everything_or_nothing_is_retained_of_any_transcript(generated in transcripts()) {
        check_whole(&generated.transcript())?;
    }

    #[test]
    fn a_plan_that_keeps_more_retains_more(
        steps in steps(),
        flags in proptest::collection::vec((any::<bool>(), any::<bool>()), 24),
    ) {
        let before = build(&steps);
        let flags = flags.get(..before.len()).unwrap_or(&[]);
        let less: Vec<bool> = flags.iter().map(|(a, b)| *a && *b).collect();
        let more: Vec<bool> = flags.iter().map(|(a, _)| *a).collect();
        let (less, more) = (measure_plan(&before, &keeping(&less)), measure_plan(&before, &keeping(&more)));
        for category in Category::ALL {
            prop_assert!(less.shares.of(category).kept <= more.shares.of(category).kept);
        }
        prop_assert!(more.lost.iter().all(|lost| less.lost.contains(lost)));
    }

    #[test]
    fn lost_facts_contain_no_secrets(steps in steps()) {
        let report = measure_plan(&build(&steps), &Plan::default());
        prop_assert!(report.lost.iter().all(|lost| !lost.text.contains("hunter2")));
    }
}

fn coding() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("Find out why src/cart/total.rs panics");
    talk.calls(&[("a", "shell", r#"{"command":"cargo test -p cart"}"#)]);
    talk.failure("a", "shell", "called `Option::unwrap()` on a `None` value");
    talk.assistant("It fails after 12.5 ms in commit deadbeefcafe01.");
    talk.user("ok").assistant("Anything else?");
    talk.transcript()
}

#[test]
fn a_summary_retains_what_it_states() {
    let before = coding();
    let mut plan = Plan::default();
    let summary = "The person: find out why src/cart/total.rs panics.\nRan `cargo test -p cart`, \
                   12.5ms, it failed: Called `Option::unwrap()` on a `None`  value";
    plan.insert(Role::User, summary, 0..4).keep(4..6);
    let report = measure_plan(&before, &plan);
    let one = CategoryShare { kept: 1, total: 1 };
    let ids = CategoryShare { kept: 0, total: 1 };
    let shares = Shares { asks: one, paths: one, commands: one, ids, numbers: one, failures: one };
    assert_eq!(report.shares, shares);
    assert!((report.shares.mean() - 5.0 / 6.0).abs() < 1e-9);
    assert!((Shares::default().mean() - 1.0).abs() < 1e-9);
    let [lost] = report.lost.as_slice() else { panic!("{:?}", report.lost) };
    assert_eq!((lost.category, lost.text.as_str()), (Category::Ids, "deadbeefcafe01"));
    assert_eq!(lost.entry, before.get(3).unwrap().id());
}

#[test]
fn commands_in_lists_and_failures_in_json_are_facts() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Run the tests").calls(&[
        ("a", "shell", r#"{"command":["bash","-lc","cargo test -p cart"]}"#),
        ("b", "shell", r#"{"command":["git","commit","-m","first try"]}"#),
    ]);
    talk.result("a", "shell", r#"{"output":"2 of\n3 failed","metadata":{"exit_code":101}}"#);
    let before = talk.transcript();
    check_whole(&before).unwrap();
    let mut plan = Plan::default();
    plan.keep(0..1).insert(Role::User, "cargo test -p cart: 2 of 3 failed", 1..3);
    let shares = measure_plan(&before, &plan).shares;
    assert_eq!(shares.commands, CategoryShare { kept: 1, total: 2 });
    assert_eq!(shares.failures, CategoryShare { kept: 1, total: 1 });
}

#[test]
fn values_of_secret_fields_are_no_lost_names_wherever_they_occur() {
    let mut talk = TranscriptBuilder::new();
    let arguments = r#"{"env":{"API_TOKEN":"zzTop99887766"},"clientSecret":["qqRst55667788"],"id":"OPS-2024-00817"}"#;
    talk.user("Deploy with qqRst55667788 please").calls(&[("a", "deploy", arguments)]);
    talk.result("a", "deploy", "ok, zzTop99887766 was used").assistant("zzTop99887766 works");
    let report = measure_retention(&talk.transcript(), &[]);
    let lost: Vec<&str> = report.lost.iter().map(|fact| fact.text.as_str()).collect();
    assert_eq!(lost, ["Deploy with [redacted:credential] please", "OPS-2024-00817"]);
    assert_eq!(report.shares.ids, CategoryShare { kept: 0, total: 1 });
    assert_eq!(report.secrets.redact("used zzTop99887766"), "used [redacted:credential]");
}

#[test]
fn the_named_entry_is_the_last_of_the_conversation_and_not_a_summary() {
    let mut talk = TranscriptBuilder::new();
    talk.assistant("src/a.rs").assistant("src/a.rs again").summary("about src/a.rs and src/b.rs");
    let before = talk.transcript();
    let lost = measure_retention(&before, &[]).lost;
    let entry = |at| before.get(at).unwrap().id().to_owned();
    let found: Vec<_> = lost.into_iter().map(|lost| (lost.text, lost.entry)).collect();
    assert_eq!(found, [("src/a.rs".into(), entry(1)), ("src/b.rs".into(), entry(2))]);
}

#[test]
fn a_shortened_result_loses_what_it_omits() {
    let before = coding();
    let mut plan = Plan::default();
    plan.keep(0..2).replace_text(2, "[old output left out]").keep(2 + 1..6);
    let shares = measure_plan(&before, &plan).shares;
    assert_eq!(shares.failures, CategoryShare { kept: 0, total: 1 });
    assert_eq!(shares.commands, CategoryShare { kept: 1, total: 1 });
}

#[test]
fn shares_survive_serialization() {
    let shares = measure_retention(&coding(), &[]).shares;
    let json = serde_json::to_string(&shares).unwrap();
    assert!(json.starts_with(r#"{"asks":{"kept":0,"total":1},"paths":"#), "{json}");
    assert_eq!(serde_json::from_str::<Shares>(&json).unwrap(), shares);
    assert_eq!(serde_json::from_str::<Shares>("{}").unwrap(), Shares::default());
}

/// What people write; engines list the same, because the definition is theirs.
const STATED: [(&str, Category); 13] = [
    ("/srv/jürgen/Dokumente/Müller.xlsx", Category::Paths),
    (r"C:\Data\Ann\Liste.docx", Category::Paths),
    ("Rechnung_2024.pdf", Category::Paths),
    ("max.mueller@example.com", Category::Ids),
    ("+49 170 1234567", Category::Ids),
    ("192.168.178.20", Category::Ids),
    ("ORD-2024-00817", Category::Ids),
    ("#48213", Category::Ids),
    ("INV/2023/55", Category::Ids),
    ("€ 1.249,50", Category::Ids),
    ("DE89 3704 0044 0532 0130 00", Category::Ids),
    ("2026-11-23", Category::Ids),
    ("DATABASE_URL", Category::Ids),
];

#[test]
fn facts_that_people_write_are_counted_as_lost() {
    for (fact, category) in STATED {
        let mut talk = TranscriptBuilder::new();
        talk.user(&format!("please note {fact} for later")).assistant("Noted.");
        let before = talk.transcript();
        let lost: Vec<LostFact> = measure_retention(&before, &[]).lost;
        assert!(lost.iter().any(|lost| lost.text == fact && lost.category == category), "{lost:?}");
        let mut plan = Plan::default();
        plan.insert(Role::User, format!("noted: {fact}."), 0..2);
        let kept = measure_plan(&before, &plan).shares.of(category);
        assert_eq!((kept.kept, kept.total), (1, 1), "{fact}");
    }
}

#[test]
fn times_in_an_output_are_not_counted() {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("1", "shell", r#"{"command":"date"}"#)]);
    talk.result("1", "shell", "2026-11-23 10:15:30 started, cost $3,400");
    assert_eq!(measure_retention(&talk.transcript(), &[]).shares.ids.total, 0);
}

#[test]
fn a_request_is_what_the_user_wrote() {
    let mut talk = TranscriptBuilder::new();
    talk.user("<ide_opened_file>a.rs</ide_opened_file>\nfix the parser bug").assistant("done");
    talk.user("<ide_opened_file>b.rs</ide_opened_file>\nok");
    let before = talk.transcript();
    let mut plan = Plan::default();
    plan.insert(Role::User, "asked: fix the parser bug", 0..before.len() as u64);
    let after = plan.project(&before);
    let measured = measure_retention(&before, &after);
    assert_eq!((measured.shares.asks.kept, measured.shares.asks.total), (1, 1), "{measured:?}");
}
