use super::*;
use crate::rules::drop_replaced;

fn valid(rules: &[&str]) -> Vec<String> {
    drop_replaced(rules.iter().map(|rule| (*rule).to_owned()).collect())
}

#[test]
fn a_later_rule_about_the_same_replaces_the_earlier() {
    let rules = [
        "Always deploy to region eu-1.",
        "Never push to main without review.",
        "From now on deploy to region us-7 instead.",
    ];
    assert_eq!(valid(&rules), [rules[1], rules[2]]);
    let folders = [
        "Never write to the database orders/live.",
        "From now on never write to the database users/copy instead.",
    ];
    assert_eq!(valid(&folders), folders[1..]);
    let tokio = [
        "Do not use tokio anywhere, we use async-std only.",
        "Deploy only on Fridays.",
        "Change of plan: we do use tokio now, drop async-std.",
    ];
    assert_eq!(valid(&tokio), [tokio[1], tokio[2]]);
}

#[test]
fn rules_about_different_things_stay() {
    let files = ["Never touch /srv/a.toml.", "Never touch /srv/b.toml."];
    assert_eq!(valid(&files), files);
    let apart = [
        "Always write tests for parsers.",
        "Never use tabs in Makefiles.",
        "Always answer in German.",
    ];
    assert_eq!(valid(&apart), apart);
}

#[test]
fn another_value_for_another_thing_replaces_nothing() {
    for rules in [
        [
            "From now on give insulin 8 units before breakfast.",
            "From now on give insulin 12 units before dinner.",
        ],
        [
            "From now on use port 5433 for the database.",
            "From now on use port 9191 for the dev server.",
        ],
        ["From now on use size 38 for Lena.", "From now on use size 44 for Omar."],
        [
            "Use version 4.1 for the app from now on.",
            "Use version 7.3 for the website from now on.",
        ],
        [
            "Ab jetzt Drucker 12 für Rechnungen verwenden.",
            "Ab jetzt Drucker 34 für Etiketten verwenden.",
        ],
        [
            "Désormais utilise le port 5433 pour la base.",
            "Désormais utilise le port 9191 pour le site.",
        ],
        ["From now on, always use tabs in module1.", "From now on, always use tabs in module2."],
        [
            "From now on, use the staging key for tenant 4711.",
            "From now on, use the staging key for tenant 4712.",
        ],
        [
            "From now on, reboot host web-01 only at night.",
            "From now on, reboot host web-02 only at night.",
        ],
        [
            "From now on, send invoices of customer C-1041 by mail only.",
            "From now on, send invoices of customer C-1042 by mail only.",
        ],
        [
            "Ab jetzt Rechnungen von Kunde K-17 nur per Post senden.",
            "Ab jetzt Rechnungen von Kunde K-18 nur per Post senden.",
        ],
        ["以后数据库用5433端口。", "以后网站用9191端口。"],
        ["Теперь используй порт 5433 для базы.", "Теперь используй порт 9191 для сайта."],
    ] {
        assert_eq!(valid(&rules), rules);
    }
    for rules in [
        ["Always use port 5433 for the database.", "From now on use port 9191 for the database."],
        ["From now on use port 5433.", "From now on use port 5434."],
        [
            "Always cut releases from the branch ship/amber.",
            "From now on cut releases from the branch ship/birch.",
        ],
        [
            "Never include the customer name Krane-7 in logs.",
            "Never include the customer name Holt-9 in logs from now on.",
        ],
        ["From now on deploy to eu-1.", "From now on deploy to eu-2."],
        ["From now on keep the logs for 30 days.", "From now on keep the logs for 60 days."],
        [
            "From now on use port 5433 for tenant 4711.",
            "From now on use port 5434 for tenant 4711.",
        ],
        [
            "Ab jetzt Port 5433 für die Tests verwenden.",
            "Ab jetzt Port 5434 für die Tests verwenden.",
        ],
        ["I prefer window seats on trains.", "From now on book aisle seats on trains."],
        ["以后数据库用5433端口。", "以后数据库改用9191端口。"],
    ] {
        assert_eq!(valid(&rules), rules[1..]);
    }
}

#[test]
fn a_change_of_one_value_leaves_the_rest_of_a_rule() {
    let rules = [
        "Lord Brock brings 4 people, must not sit near the Hales, and needs a ramp.",
        "Correction: from now on Lord Brock brings 6 people.",
    ];
    assert_eq!(valid(&rules), rules);
    let replaced = RuleSubject::new("Actually Lord Brock brings 6 people.");
    let intake = "Ms Aydin must not get penicillin or latex, and takes 5 mg of ramipril.";
    let changed = RuleSubject::new("Actually ramipril is 10 mg.");
    for (later, earlier) in [(replaced, rules[0]), (changed, intake)] {
        let earlier = RuleSubject::new(earlier);
        assert_eq!(later.replaced([(0, &earlier)].into_iter()), Vec::<usize>::new());
    }
}

#[test]
fn a_sentence_with_another_value_is_about_a_rule() {
    let states = |rule: &str, later: &str| {
        RuleSubject::new(later).states_other_value(&RuleSubject::new(rule))
    };
    let rule = "Always plan 20 mg for the evening dose.";
    assert!(states(rule, "Reduce the evening dose to 12 mg, Dr. Paulsen called."));
    assert!(!states(rule, "The evening dose of 20 mg was given."));
    assert!(!states(rule, "Order 12 boxes for the evening."));
}

#[test]
fn one_common_word_is_no_common_subject() {
    let rules = [
        "Avoid talking about competitors.",
        "I love these ideas!",
        "I like the idea of a nature walk and the treasure hunt.",
        "Rewrite it, but instead of more problems let us be talking about the good habits of runners.",
    ];
    assert_eq!(valid(&rules), rules);
}

#[test]
fn what_is_said_again_is_not_replaced() {
    let subject = RuleSubject::new;
    let first = subject("I always run the tests of the parser before a commit.");
    let again = subject("As before: I always run the tests of the parser before the commit.");
    let never = subject("I never run the tests of the parser before a commit.");
    assert_eq!(again.replaced([(0, &first)].into_iter()), [0]);
    assert!(again.restates(&first) && !never.restates(&first));
    assert_eq!(never.replaced([(0, &first)].into_iter()), [0]);
}
