//! What a new prompt finds, wherever the window stands when it comes.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{AssembleRequest, Plan, Transcript};

use crate::session::RecallSession;
use crate::settings::Settings;

const FINDING: &str = "The next renewal is due on 11 February, by hand.";
const QUESTION: &str = "When is the next renewal of the certificate due?";

fn plan(session: &mut RecallSession, transcript: &Transcript, budget: u64, prompt: &str) -> Plan {
    let request = AssembleRequest { budget, prompt: prompt.into(), ..AssembleRequest::default() };
    session.plan(transcript, &request, &Settings::default())
}

/// What the model sees, and its size.
fn shown(plan: &Plan, transcript: &Transcript) -> (String, u64) {
    let items = plan.project(transcript);
    let tokens = items.iter().map(|item| item.tokens()).sum();
    (items.into_iter().map(|item| item.text().into_owned() + "\n").collect(), tokens)
}

/// A session of an agent with a finding far back. Each prompt is planned, and every call too if `has_steps`.
fn work(turns: usize, budget: u64, has_steps: bool) -> (RecallSession, TranscriptBuilder) {
    let (mut session, mut talk) = (RecallSession::default(), TranscriptBuilder::new());
    talk.user("Renew the certificate.");
    talk.assistant(&format!("The certificate is renewed. {FINDING}"));
    for turn in 0..turns {
        let prompt = format!("Please find out why value {turn} of the tariff table is wrong.");
        talk.user(&prompt);
        plan(&mut session, &talk.transcript(), budget, &prompt);
        for step in 0..turn % 3 + 1 {
            let id = format!("c{turn}-{step}");
            let path = format!("src/tariff/part_{turn}_{step}.rs");
            talk.calls(&[(&id, "read", &format!(r#"{{"path":"{path}"}}"#))]);
            let line = |line: usize| format!("let value_{turn}_{step}_{line} = {line};\n");
            talk.result(&id, "read", &(0..20 + turn % 7 * 9).map(line).collect::<String>());
            if has_steps {
                plan(&mut session, &talk.transcript(), budget, "");
            }
        }
        talk.assistant(&format!("Value {turn} was read from the wrong column, which I changed."));
    }
    talk.user(QUESTION);
    (session, talk)
}

#[test]
fn a_prompt_finds_an_earlier_answer_also_when_it_moves_the_window() {
    for (budget, has_steps) in [(4_000, true), (8_000, true), (8_000, false)] {
        let hidden: Vec<usize> = (30..50)
            .step_by(3)
            .filter(|turns| {
                let (mut session, talk) = work(*turns, budget, has_steps);
                let transcript = talk.transcript();
                let plan = plan(&mut session, &transcript, budget, QUESTION);
                let (text, tokens) = shown(&plan, &transcript);
                assert!(tokens <= budget, "{tokens} of {budget} after {turns} turns");
                !text.contains(FINDING)
            })
            .collect();
        assert_eq!(hidden, [0; 0], "budget {budget}, steps {has_steps}");
    }
}

#[test]
fn a_prompt_that_is_planned_again_in_a_smaller_budget_finds_the_same() {
    for turns in (30..50).step_by(3) {
        let (mut session, talk) = work(turns, 8_000, true);
        let transcript = talk.transcript();
        plan(&mut session, &transcript, 8_000, QUESTION);
        let (_, tokens) = shown(&plan(&mut session, &transcript, 8_000, QUESTION), &transcript);
        let smaller = plan(&mut session, &transcript, tokens - 40, QUESTION);
        let (text, smaller_tokens) = shown(&smaller, &transcript);
        assert!(smaller_tokens <= tokens - 40, "{smaller_tokens} after {turns} turns");
        assert!(text.contains(FINDING), "after {turns} turns");
    }
}
