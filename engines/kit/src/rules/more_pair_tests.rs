//! More pairs of a rule and a later sentence, which no word list was made for.

use super::pair_tests::{lost, stale};

#[test]
fn what_is_about_another_thing_replaces_nothing() {
    let pairs = [
        (
            "Never drop tables in the live schema.",
            "You can drop tables in the scratch schema again.",
        ),
        ("Don't email customers without my approval.", "You may email suppliers again."),
        ("Never log passwords.", "Logging usernames is fine again."),
        (
            "Always run the linter before a commit.",
            "You don't have to run the benchmarks before a commit anymore.",
        ),
        ("Never force-push to main.", "You can force-push to feature branches again."),
        (
            "Don't touch the payments module.",
            "The reports module is off the freeze, you can touch it again.",
        ),
        ("Never give the dog chocolate.", "You can give the dog cheese again."),
        ("The timeout must be 30 seconds.", "The retry count must be 5 now."),
        (
            "Never call the vendor API from tests.",
            "Calling the weather API from tests is okay again.",
        ),
        ("No meetings on Mondays for Anna.", "Meetings on Mondays are fine for Ben again."),
        ("Always use metric units in the report.", "Use imperial units in the email instead."),
        ("Never change the public interface.", "You may change the private helpers again."),
        ("Never upgrade postgres.", "You can upgrade redis again."),
        ("Starte niemals den Mailserver neu.", "Du kannst den Webserver wieder neu starten."),
        ("Lösche nie Dateien in archiv/.", "Du darfst Dateien in tmp/ wieder löschen."),
        (
            "Ne redémarre jamais le serveur de production.",
            "Tu peux de nouveau redémarrer le serveur de test.",
        ),
        ("Never delete the customer records.", "The invoice records are now archived."),
        ("The frontend must use node 18.", "The worker is now on node 20."),
        ("Don't schedule surgery for Mr. Hale.", "You can schedule surgery for Mrs. Frost again."),
        ("Никогда не перезапускай сервер оплаты.", "Можно снова перезапускать сервер поиска."),
    ];
    assert_eq!(lost(&pairs), []);
}

#[test]
fn what_is_about_the_same_thing_replaces_the_rule() {
    let pairs = [
        ("Never drop tables in the live schema.", "You can drop tables in the live schema again."),
        ("Don't email customers without my approval.", "You may email customers again."),
        ("Never log usernames.", "Logging usernames is okay again."),
        ("Always run the linter before a commit.", "You don't have to run the linter anymore."),
        ("Never force-push to main.", "You can force-push to main again."),
        (
            "Don't touch the payments module.",
            "You can touch the payments module again, the audit is done.",
        ),
        ("Never give the dog cheese.", "The dog may have cheese again."),
        ("The timeout must be 30 seconds.", "The timeout must be 60 seconds now."),
        (
            "Never call the vendor API from tests.",
            "Calling the vendor API from tests is okay again.",
        ),
        ("No meetings on Mondays.", "Meetings on Mondays are allowed again."),
        ("Always use metric units in the report.", "Use imperial units in the report instead."),
        ("Never change the public interface.", "You may change the public interface again."),
        ("Always deploy to staging.", "From now on deploy to production instead."),
        ("Starte niemals den Mailserver neu.", "Du kannst den Mailserver wieder neu starten."),
        ("Lösche nie Dateien in archiv/.", "Du darfst Dateien in archiv/ wieder löschen."),
        (
            "Ne redémarre jamais le serveur de production.",
            "Tu peux de nouveau redémarrer le serveur de production.",
        ),
        ("The release day must be Tuesday.", "The release day is now Thursday."),
        ("The frontend must use node 18.", "The frontend now uses node 20."),
        ("Always sign mails with Yours, Ada.", "Scrap the rule about signing mails."),
        ("Никогда не перезапускай сервер оплаты.", "Можно снова перезапускать сервер оплаты."),
    ];
    assert_eq!(stale(&pairs), []);
}

#[test]
fn what_names_another_thing_replaces_nothing() {
    let pairs = [
        (
            "Never open the cellar windows at night.",
            "You can open the kitchen windows at night again.",
        ),
        ("Don't refactor the tokenizer.", "You may refactor the printer again."),
        (
            "Always quote prices in euros for the Lyon shop.",
            "Quote prices in pounds for the Leeds shop instead.",
        ),
        ("Never share the salary sheet.", "You can share the holiday sheet now."),
        ("Don't run e2e tests on my laptop.", "It's fine to run unit tests on my laptop."),
        ("Never squash commits of contributors.", "Squashing commits of bots is allowed again."),
        ("The cache size must stay below 2 GB.", "The log size must stay below 9 GB now."),
        ("Never use the red template for invoices.", "The red template is okay for flyers again."),
        (
            "Don't remove the feature flag checkout_v2.",
            "You can remove the feature flag search_v3 now.",
        ),
        (
            "Never invite Paul to the budget meeting.",
            "You can invite Paula to the budget meeting again.",
        ),
        ("Avoid recursion in the parser.", "Recursion is fine in the tests after all."),
        ("Never edit config/prod.yaml.", "You may edit config/dev.yaml again."),
        (
            "Never install new packages without asking.",
            "You don't need to ask before updates anymore.",
        ),
        (
            "Benutze keine globalen Variablen im Kern.",
            "Globale Variablen sind in Skripten wieder erlaubt.",
        ),
        ("No borres los registros de clientes.", "Puedes borrar los registros de prueba otra vez."),
        (
            "Não altere o esquema de pagamentos.",
            "Você pode alterar o esquema de relatórios de novo.",
        ),
        ("永远不要删除用户表。", "日志表可以再次删除了。"),
        ("Never reply to the landlord.", "You may reply to the plumber again."),
        ("Do not push tags from CI.", "The nightly job now pushes images from CI."),
        (
            "Never cache responses of the auth endpoint.",
            "Caching responses of the search endpoint is ok again.",
        ),
    ];
    assert_eq!(lost(&pairs), []);
}

#[test]
fn what_names_the_same_thing_replaces_the_rule() {
    let pairs = [
        (
            "Never open the cellar windows at night.",
            "You can open the cellar windows at night again.",
        ),
        (
            "Don't refactor the tokenizer.",
            "You may refactor the tokenizer again, the release is out.",
        ),
        ("Always quote prices in euros.", "Quote prices in pounds instead."),
        ("Never share the salary sheet.", "You can share the salary sheet now."),
        ("Don't run e2e tests on my laptop.", "It's fine to run e2e tests on my laptop."),
        ("Never squash commits.", "Squashing commits is allowed again."),
        ("The cache size must stay below 2 GB.", "The cache size must stay below 4 GB now."),
        (
            "Never use the red template for invoices.",
            "The red template is okay for invoices again.",
        ),
        (
            "Don't remove the feature flag checkout_v2.",
            "You can remove the feature flag checkout_v2 now.",
        ),
        (
            "Never invite Paul to the budget meeting.",
            "You can invite Paul to the budget meeting again.",
        ),
        ("Avoid recursion in the parser.", "Recursion in the parser is fine after all."),
        ("Never edit config/prod.yaml.", "You may edit config/prod.yaml again."),
        (
            "Always ask before you install packages.",
            "You don't need to ask before you install packages anymore.",
        ),
        ("Benutze keine globalen Variablen.", "Globale Variablen sind wieder erlaubt."),
        ("永远不要删除用户表。", "用户表可以再次删除了。"),
        ("I prefer dark themes.", "Actually I prefer light themes."),
    ];
    assert_eq!(stale(&pairs), []);
}
