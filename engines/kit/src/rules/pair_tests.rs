//! Pairs of a rule and a later sentence: about another thing both stay, about the same thing the later one replaces.

use super::UserRules;
use crate::name_ledger::NameLedger;

/// The rules that are listed after some messages.
fn holding(texts: &[&str]) -> Vec<String> {
    let mut rules = UserRules::default();
    for (seq, text) in texts.iter().enumerate() {
        rules.read_message(seq as u64, text, &NameLedger::default());
    }
    let list = rules.render(10_000, |_, _| false);
    list.text.lines().filter_map(|line| line.strip_prefix("- ").map(str::to_owned)).collect()
}

/// The pairs whose earlier rule is not listed any more.
pub(super) fn lost<'p>(pairs: &[(&'p str, &'p str)]) -> Vec<(&'p str, &'p str)> {
    let is_lost =
        |pair: &&(&str, &str)| !holding(&[pair.0, pair.1]).iter().any(|line| line == pair.0);
    pairs.iter().filter(is_lost).copied().collect()
}

/// The pairs after which anything but the later rule is listed.
pub(super) fn stale<'p>(pairs: &[(&'p str, &'p str)]) -> Vec<(&'p str, &'p str)> {
    pairs.iter().filter(|pair| holding(&[pair.0, pair.1]) != [pair.1]).copied().collect()
}

#[test]
fn a_sentence_about_another_thing_replaces_no_rule() {
    let pairs = [
        (
            "Never touch the production database.",
            "The staging database is now db2, you can reset it again.",
        ),
        (
            "Always ask me before you delete files.",
            "You don't have to ask me before you run the tests anymore.",
        ),
        ("Never restart the billing service.", "You can restart the search service again."),
        (
            "Don't delete the backups in /srv/a.",
            "It is fine to delete the backups in /srv/b again.",
        ),
        ("Don't use mocks in integration tests.", "Mocks are fine in unit tests."),
        ("Never edit generated files in gen/.", "You can edit the templates in tpl/ again."),
        ("Never deploy on Fridays.", "From now on we have lunch on Fridays."),
        ("The patient must never get penicillin.", "The patient may get ibuprofen again."),
        ("The API must stay on port 8080.", "The admin UI moved to port 9000."),
        ("Always answer in German.", "Write the README in English instead."),
        ("Max line length must be 100.", "Max file length must be 400 now."),
        ("Never merge without review.", "Docs can be merged without review again."),
        ("绝对不要重启计费服务。", "搜索服务可以再次重启了。"),
        ("Never use sudo on prod.", "You can use sudo on staging again."),
        ("Never use floats for money.", "Floats are fine for coordinates again."),
        ("Never restart the billing service.", "Never restart the search service."),
    ];
    assert_eq!(lost(&pairs), []);
}

#[test]
fn a_sentence_about_the_same_thing_replaces_the_rule() {
    let pairs = [
        ("Never edit the lock file; ask me first.", "You may edit the lock file again."),
        ("Never restart the billing service.", "You can restart the billing service again."),
        (
            "Don't delete the backups in /srv/a.",
            "It is fine to delete the backups in /srv/a again.",
        ),
        ("Max line length must be 100.", "Max line length must be 120 now."),
        ("Our default branch must be main.", "Our default branch is now trunk."),
        ("Always use four spaces for indentation.", "Always use two spaces for indentation."),
        ("绝对不要重启计费服务。", "计费服务可以再次重启了。"),
        ("The API must stay on port 8080.", "The API moved to port 9000."),
        (
            "Always ask me before you delete files.",
            "You don't have to ask me before you delete files anymore.",
        ),
        ("Never deploy on Fridays.", "You can deploy on Fridays again, the pipeline is stable."),
    ];
    assert_eq!(stale(&pairs), []);
}

#[test]
fn a_permission_lifts_a_ban_without_again() {
    let ban = "Never push to main.";
    for permission in
        ["You can push to main now.", "It's fine to push to main.", "It is fine to push to main."]
    {
        assert_eq!(holding(&[ban, permission]), [permission]);
    }
    let freeze = "Don't touch legacy/.";
    for permission in
        ["You may edit legacy/ now, the freeze is over.", "The freeze on legacy/ is over."]
    {
        assert_eq!(holding(&[freeze, permission]), [permission]);
    }
    // One that is for once, or in other words, stands beside the ban: the later words count.
    for (ban, permission) in [
        ("Don't run the migrations.", "Please run the migrations now."),
        ("Never push to main.", "Du darfst jetzt auf main pushen."),
        ("Ne touche jamais à legacy/.", "Tu peux modifier legacy/ maintenant."),
        ("Nunca borres la tabla clientes.", "Ahora puedes vaciar la tabla clientes."),
    ] {
        let list = holding(&[ban, permission]);
        assert!(list.iter().any(|line| line == permission), "{ban}: {list:?}");
    }
    for (rule, other) in [
        ("Always run the tests with nextest.", "Run the tests now."),
        ("Never push to main.", "You can read the parser now."),
        ("Never push to main.", "Please push the branch docs now."),
    ] {
        assert_eq!(holding(&[rule, other]), [rule]);
    }
}

#[test]
fn a_rule_about_the_language_of_one_text_leaves_that_of_another() {
    for (rule, later) in [
        ("Commit messages must be in English.", "Please answer me in English again."),
        ("Write code comments always in English.", "Please answer me in English again."),
        ("The UI text must be in French.", "Please answer me in French again."),
        ("Write code comments always in English.", "From now on answer me in German."),
        ("Always answer in German.", "Write the README in English instead."),
    ] {
        assert_eq!(holding(&[rule, later]), [rule, later]);
    }
    for (rule, later) in [
        ("Always reply in German.", "English please."),
        ("Always reply in German.", "Please, in English."),
        ("Antworte immer auf Englisch.", "Bitte auf Deutsch."),
        ("Write code comments always in English.", "Write code comments in German instead."),
    ] {
        assert_eq!(holding(&[rule, later]), [later]);
    }
}

// The sentences of the generated rule sessions, all with all.
#[test]
fn a_new_value_replaces_the_old_one_however_it_is_stated() {
    let topics: [([&str; 3], [&str; 3]); 8] = [
        (
            [
                "Always deploy to the region {}.",
                "Please make sure every deployment goes to region {}.",
                "You must deploy to region {} only.",
            ],
            [
                "From now on deploy to region {} instead.",
                "The deployment region is now {}.",
                "We switched regions: always deploy to region {}.",
            ],
        ),
        (
            [
                "Never write to the database {}.",
                "Do not touch database {} under any circumstances, never.",
                "The database {} must not be written to.",
            ],
            [
                "Correction: the database that must not be written to is now {}.",
                "From now on never write to the database {} instead.",
                "The protected database changed to {}: never write to that database.",
            ],
        ),
        (
            [
                "I prefer commit messages that begin with {}.",
                "Every time you commit, begin the commit message with {}.",
                "Always begin commit messages with {}.",
            ],
            [
                "From now on commit messages begin with {}.",
                "Begin commit messages with {} instead from now on.",
                "Commit messages should always begin with {} now.",
            ],
        ),
        (
            [
                "Remember that the staging server is {}.",
                "Keep in mind: the staging server is {}.",
                "Always use {} as the staging server.",
            ],
            [
                "The staging server is now {}.",
                "The staging server has moved to {}.",
                "From now on use {} as the staging server.",
            ],
        ),
        (
            [
                "My preferred test command is {}.",
                "Always run the tests with the command {}.",
                "Make sure to run tests with the test command {}.",
            ],
            [
                "From now on run the tests with the command {} instead.",
                "The test command is now {}.",
                "I prefer {} as the test command from now on.",
            ],
        ),
        (
            [
                "Never include the customer name {} in logs.",
                "Do not mention the customer name {} in any log, ever: never.",
                "Logs must not contain the customer name {}.",
            ],
            [
                "The customer name that must never be in logs is now {}.",
                "From now on it is the customer name {} that logs must not contain instead.",
                "The customer was renamed: never include the customer name {} in logs from now on.",
            ],
        ),
        (
            [
                "Always answer with the signature {} at the end of a mail.",
                "I want you to end each mail with the signature {}.",
                "Mails should always end with the signature {}.",
            ],
            [
                "From now on end each mail with the signature {} instead.",
                "The signature at the end of mails is now {}.",
                "My mail signature changed to {}.",
            ],
        ),
        (
            [
                "Use only the branch {} for releases.",
                "Releases must come from the release branch {}.",
                "Always cut releases from the branch {}.",
            ],
            [
                "From now on cut releases from the branch {}.",
                "The release branch is now {}.",
                "Releases come from the branch {} instead from now on.",
            ],
        ),
    ];
    let mut stale = Vec::new();
    for (old, new) in [
        ("kwemta-41", "opqrst-17"),
        ("kwemta/axblop", "opqrst/uvwxyz"),
        ("kwemta_axblop", "opqrst_uvwxyz"),
    ] {
        for (first, change) in &topics {
            for (first, change) in
                first.iter().flat_map(|first| change.iter().map(move |change| (first, change)))
            {
                let (first, change) = (first.replace("{}", old), change.replace("{}", new));
                if holding(&[&first, &change]) != [change.as_str()] {
                    stale.push((first, change));
                }
            }
        }
    }
    assert_eq!(stale, []);
}
