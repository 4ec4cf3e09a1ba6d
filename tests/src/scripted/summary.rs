//! The answer to a request that asks for a summary: five sections, with the names found in the prompt.

use super::script::{Offer, Said, Speaker};

/// Names in a summary.
const MAX_NAMES: usize = 60;
/// Characters of a request that is told again.
const ASK_CHARS: usize = 400;
/// Words that a summariser says and a person seldom does.
const ASKING: [&str; 4] = ["## decisions", "## exact identifiers", "summar", "compact the"];

/// What is asked behind a conversation that goes on: its tools are offered then.
const ASKING_BEHIND: &str = "summarise the conversation above";

/// Whether a request asks for a summary: it offers no tools and says so at its head or its end, or it
/// goes on from a conversation with that question.
pub(super) fn is_asked(said: &[Said], tools: &[Offer]) -> bool {
    let is_asked_behind = |last: &Said| last.text.to_lowercase().contains(ASKING_BEHIND);
    if said.last().is_some_and(is_asked_behind) {
        return true;
    }
    let system = said.iter().filter(|message| message.by == Speaker::System);
    let last = said.last().filter(|last| last.by == Speaker::User);
    let asks = |message: &Said| {
        let text = message.text.to_lowercase();
        ASKING.iter().any(|word| text.contains(word))
    };
    tools.is_empty() && last.is_some() && system.chain(last).any(asks)
}

/// The summary.
pub(super) fn write(said: &[Said]) -> String {
    let all: Vec<&str> = said.iter().map(|message| message.text.as_str()).collect();
    let all = all.join("\n");
    let asks = asks(&all);
    let newest = asks.last().copied().unwrap_or("Go on with the work.");
    let reported =
        asks.iter().rev().skip(1).take(5).map(|ask| format!("- Was asked before: {}", short(ask)));
    let reported: Vec<String> = reported.collect();
    let decisions = if reported.is_empty() { "- None.".to_owned() } else { reported.join("\n") };
    let names = names(&all);
    let names = if names.is_empty() {
        "- None.".to_owned()
    } else {
        names.iter().map(|name| format!("- {name}")).collect::<Vec<_>>().join("\n")
    };
    format!(
        "## Decisions\n{decisions}\n\n## Open TODOs\n- Go on with: {ask}\n\n\
         ## Constraints/Rules\n- Names and numbers are kept letter for letter.\n\n\
         ## Pending user asks\n- {ask}\n\n## Exact identifiers\n{names}",
        ask = short(newest),
    )
}

/// What the person asked in a conversation that is told as text, each in one line.
fn asks(all: &str) -> Vec<&str> {
    let marked = all.lines().filter_map(|line| line.trim_start().strip_prefix("[User]"));
    marked.map(|line| line.trim_start_matches(':').trim()).filter(|line| !line.is_empty()).collect()
}

fn short(text: &str) -> String {
    text.chars().take(ASK_CHARS).collect::<String>().replace("##", "")
}

/// Paths, addresses, hashes and ids, the newest ones, in the order in which they came.
fn names(all: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;|".contains(c);
    let words = all.split(ends).map(|word| word.trim_matches(|c: char| ".:!?*\\=".contains(c)));
    let mut found: Vec<&str> = Vec::new();
    for word in words.rev().filter(|word| is_name(word)) {
        if found.len() < MAX_NAMES && !found.contains(&word) {
            found.push(word);
        }
    }
    found.reverse();
    found
}

fn is_name(word: &str) -> bool {
    let chars = word.chars().count();
    if !(5..=200).contains(&chars) || word.starts_with("##") {
        return false;
    }
    let letters = word.chars().any(char::is_alphabetic);
    let digits = word.chars().any(|c| c.is_ascii_digit());
    let path = word.contains('/') && letters && !word.starts_with("</");
    let file = word.rsplit_once('.').is_some_and(|(name, end)| {
        !name.is_empty() && (1..=5).contains(&end.len()) && end.chars().all(char::is_alphanumeric)
    });
    let mixed = digits && (letters || chars >= 6);
    path || (file && letters) || mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(by: Speaker, text: &str) -> Said {
        Said { by, text: text.into() }
    }

    #[test]
    fn the_newest_request_and_the_names_are_shown() {
        let prompt = "[User]: fix /srv/app/login.rs\n\n[Assistant]: see commit deadbeef42\n\n\
                      [User]: now write tests\n\nSummarise the conversation.";
        let talk = [said(Speaker::System, "You write notes."), said(Speaker::User, prompt)];
        assert!(is_asked(&talk, &[]));
        let summary = write(&talk);
        for part in ["/srv/app/login.rs", "deadbeef42", "## Pending user asks\n- now write tests"] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }

    #[test]
    fn plain_talk_and_talk_with_tools_is_no_summary() {
        let talk = [said(Speaker::User, "hello there")];
        assert!(!is_asked(&talk, &[]));
        let tool = Offer { name: "read".into(), schema: serde_json::Value::Null };
        assert!(!is_asked(&[said(Speaker::User, "Summarise this file")], &[tool]));
    }
}
