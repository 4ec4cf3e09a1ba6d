//! Generates sessions in which a user sets rules, replaces some of them, and continues to work.
//!
//! The sentences exist only here, so no engine was tuned to them. The value of each rule occurs in
//! no other text and can be searched for verbatim.

use fastrand::Rng;

/// A generated session.
#[derive(Clone, Debug)]
pub(crate) struct RuleSession {
    /// The messages before each compaction and after the last: `(is user, text)`.
    pub(crate) rounds: Vec<Vec<(bool, String)>>,
    /// Values of the rules that are active at the end.
    pub(crate) active: Vec<String>,
    /// Values that were replaced, each with the value that replaced it.
    pub(crate) replaced: Vec<(String, String)>,
}

/// The topic of a rule, with sentences that set and change it. `{}` is its value.
struct RuleTopic {
    first: [&'static str; 3],
    change: [&'static str; 3],
}

const RULE_TOPICS: [RuleTopic; 8] = [
    RuleTopic {
        first: [
            "Always deploy to the region {}.",
            "Please make sure every deployment goes to region {}.",
            "You must deploy to region {} only.",
        ],
        change: [
            "From now on deploy to region {} instead.",
            "The deployment region is now {}.",
            "We switched regions: always deploy to region {}.",
        ],
    },
    RuleTopic {
        first: [
            "Never write to the database {}.",
            "Do not touch database {} under any circumstances, never.",
            "The database {} must not be written to.",
        ],
        change: [
            "Correction: the database that must not be written to is now {}.",
            "From now on never write to the database {} instead.",
            "The protected database changed to {}: never write to that database.",
        ],
    },
    RuleTopic {
        first: [
            "I prefer commit messages that begin with {}.",
            "Every time you commit, begin the commit message with {}.",
            "Always begin commit messages with {}.",
        ],
        change: [
            "From now on commit messages begin with {}.",
            "Begin commit messages with {} instead from now on.",
            "Commit messages should always begin with {} now.",
        ],
    },
    RuleTopic {
        first: [
            "Remember that the staging server is {}.",
            "Keep in mind: the staging server is {}.",
            "Always use {} as the staging server.",
        ],
        change: [
            "The staging server is now {}.",
            "The staging server has moved to {}.",
            "From now on use {} as the staging server.",
        ],
    },
    RuleTopic {
        first: [
            "My preferred test command is {}.",
            "Always run the tests with the command {}.",
            "Make sure to run tests with the test command {}.",
        ],
        change: [
            "From now on run the tests with the command {} instead.",
            "The test command is now {}.",
            "I prefer {} as the test command from now on.",
        ],
    },
    RuleTopic {
        first: [
            "Never include the customer name {} in logs.",
            "Do not mention the customer name {} in any log, ever: never.",
            "Logs must not contain the customer name {}.",
        ],
        change: [
            "The customer name that must never be in logs is now {}.",
            "From now on it is the customer name {} that logs must not contain instead.",
            "The customer was renamed: never include the customer name {} in logs from now on.",
        ],
    },
    RuleTopic {
        first: [
            "Always answer with the signature {} at the end of a mail.",
            "I want you to end each mail with the signature {}.",
            "Mails should always end with the signature {}.",
        ],
        change: [
            "From now on end each mail with the signature {} instead.",
            "The signature at the end of mails is now {}.",
            "My mail signature changed to {}.",
        ],
    },
    RuleTopic {
        first: [
            "Use only the branch {} for releases.",
            "Releases must come from the release branch {}.",
            "Always cut releases from the branch {}.",
        ],
        change: [
            "From now on cut releases from the branch {}.",
            "The release branch is now {}.",
            "Releases come from the branch {} instead from now on.",
        ],
    },
];

const REQUESTS: [&str; 8] = [
    "Can you look at the failing parser and say what is wrong?",
    "Write a short description of the import job.",
    "What would you do about the slow start of the server?",
    "Compare the two ways to cache results that we talked about.",
    "Please tidy up the error messages of the upload.",
    "Explain how the queue behaves when a worker dies.",
    "Which of the open tickets should we take first?",
    "Sketch the steps to move the reports to the new service.",
];

const FILLER: [&str; 10] = [
    "The parser reads one line at a time and gives up at the first unknown token",
    "A cache in front of the store would answer most of the requests",
    "The worker takes a lease, and another one takes over when it runs out",
    "Each report is written twice, which explains the size of the folder",
    "The import job sorts its input before it looks for duplicates",
    "Retries are spaced further apart each time to spare the other side",
    "Most of the time goes into opening connections that are closed at once",
    "The upload checks the size only after everything has been received",
    "Two of the tickets describe the same fault from different sides",
    "The schedule runs at night, so nobody notices when it is late",
];

/// Generates a session. Rules are set before the first compaction and some are replaced before the
/// third, so that at least two compactions follow each change.
pub(crate) fn generate(seed: u64, compactions: usize, round_tokens: usize) -> RuleSession {
    let mut rng = Rng::with_seed(seed);
    let mut topics: Vec<usize> = (0..RULE_TOPICS.len()).collect();
    rng.shuffle(&mut topics);
    let chosen: Vec<usize> = topics.into_iter().take(5).collect();
    let mut session = RuleSession { rounds: Vec::new(), active: Vec::new(), replaced: Vec::new() };
    let mut values: Vec<String> = chosen.iter().map(|_| value(&mut rng)).collect();
    for round in 0..=compactions {
        let mut rules = vec![];
        for (at, topic) in chosen.iter().enumerate() {
            let Some(topic) = RULE_TOPICS.get(*topic) else { continue };
            let is_changed = at < 2 && round == 2;
            let Some(current) = values.get_mut(at) else { continue };
            if round == 0 {
                rules.push(rule(&mut rng, &topic.first, current));
            } else if is_changed {
                let old = std::mem::replace(current, value(&mut rng));
                session.replaced.push((old, current.clone()));
                rules.push(rule(&mut rng, &topic.change, current));
            }
        }
        session.rounds.push(generate_turns(&mut rng, rules, round_tokens));
    }
    session.active = values;
    session
}

/// A value that looks like a name and occurs in no other text.
fn value(rng: &mut Rng) -> String {
    let mut word = || (0..6).map(|_| rng.lowercase()).collect::<String>();
    let (first, second) = (word(), word());
    match rng.u8(0..3) {
        0 => format!("{first}-{}", rng.u32(10..99)),
        1 => format!("{first}/{second}"),
        _ => format!("{first}_{second}"),
    }
}

fn rule(rng: &mut Rng, templates: &[&str; 3], value: &str) -> String {
    let template = templates.get(rng.usize(0..3)).copied().unwrap_or_default();
    template.replace("{}", value)
}

/// Turns of about `round_tokens`, with the rules in user messages.
fn generate_turns(
    rng: &mut Rng,
    mut rules: Vec<String>,
    round_tokens: usize,
) -> Vec<(bool, String)> {
    // The first message is the task, which is pinned, so it must not contain a rule.
    let request = REQUESTS.get(rng.usize(0..REQUESTS.len())).copied().unwrap_or_default();
    let mut turns = vec![(true, request.to_owned()), (false, "Let me look at it.".to_owned())];
    let mut chars = 0;
    while chars < round_tokens * 4 || !rules.is_empty() {
        let request = REQUESTS.get(rng.usize(0..REQUESTS.len())).copied().unwrap_or_default();
        let text = match rules.pop() {
            Some(rule) if rng.bool() => format!("{rule} {request}"),
            Some(rule) => format!("{request} {rule}"),
            None => request.to_owned(),
        };
        let sentences: Vec<String> = (0..rng.usize(6..14))
            .map(|_| {
                let sentence = FILLER.get(rng.usize(0..FILLER.len())).copied().unwrap_or_default();
                format!("{sentence} (step {}).", rng.u32(1..9_999))
            })
            .collect();
        let answer = sentences.join(" ");
        chars += text.len() + answer.len();
        turns.push((true, text));
        turns.push((false, answer));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_session() {
        let (one, two) = (generate(7, 5, 500), generate(7, 5, 500));
        assert_eq!(one.rounds, two.rounds);
        assert_ne!(one.rounds, generate(8, 5, 500).rounds);
        assert_eq!((one.rounds.len(), one.active.len(), one.replaced.len()), (6, 5, 2));
        let all: String = one.rounds.iter().flatten().map(|(_, text)| text.as_str()).collect();
        assert!(one.active.iter().all(|value| all.contains(value)));
        assert!(
            one.replaced.iter().all(|(old, new)| all.contains(old) && one.active.contains(new))
        );
    }
}
