//! Patterns of secrets that only the words before them name: headers, arguments of commands, phrases.

/// Pattern and kind, tried after that of a whole key block and before all others, which would match a
/// part of the same secret.
// Words are compared without case in ASCII only, so that the search can look for them first.
pub(super) const NAMED: [(&str, &str); 13] = [
    // All pairs of a header, because any of them may be the session.
    (
        r#"(?i-u:cookie)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?(?<secret>(?:[A-Za-z0-9_.-]+=[^\s;"'\\]*;[ ]?)*[A-Za-z0-9_.-]+=[^\s;"'\\\[]{8,}(?:;[^\r\n"'\\]*)?)"#,
        "credential",
    ),
    // With a scheme, or alone if it has a digit: `authorization: required` is none.
    (
        r#"(?i-u:authorization)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?(?:(?i-u:basic|token|apikey|negotiate|ntlm)\s+(?<secret>[A-Za-z0-9._~+/=-]{6,}))"#,
        "credential",
    ),
    (
        r#"(?i-u:authorization)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?(?<secret>[A-Za-z._~+/=-]*[0-9][A-Za-z0-9._~+/=-]{7,})"#,
        "credential",
    ),
    // Passwords in the arguments of a program. A variable is none.
    (
        r#"(?-u:\b)(?:curl\s(?:[^\n|]*?\s)?(?:-[uU]\s*|--(?:proxy-)?user(?:\s+|=))["']?[^\s:"'$]+:|(?:mysql|mariadb)[a-z-]*\s(?:[^\n|]*?\s)?-p["']?|(?:sshpass|docker login)\s(?:[^\n|]*?\s)?-p\s*["']?|redis-cli\s(?:[^\n|]*?\s)?-a\s+["']?)(?<secret>[^\s"'\\$\[<-][^\s"'\\]{2,})"#,
        "credential",
    ),
    // A key of Rails, and signatures in addresses that grant access.
    (
        r#"(?:(?i-u:secret_key_base)(?:\\*["'])?\s*(?:=>|[:=])\s*(?:\\*["'])?|(?:[?&;]|\\u0026)(?:sig|[Ss]ignature|X-Amz-Signature|X-Goog-Signature)=)(?<secret>[A-Za-z0-9%+/=_-]{16,})"#,
        "credential",
    ),
    // A key of Kubernetes, in base64.
    (
        r#"(?:client-key-data|tls\.key)(?:\\*["'])?\s*:\s*(?:\\*["'])?(?<secret>[A-Za-z0-9+/=]{16,})"#,
        "private-key",
    ),
    // A name and its value in two fields or in an element, and an argument in a list.
    (
        r#"(?i-u:password|passwd|passphrase|secret|token|key)\\*["'],\s*\\*["'](?i-u:value)\\*["']\s*:\s*\\*["'](?<secret>[^\s"'\\\[$][^"'\\\n]{3,})"#,
        "credential",
    ),
    (
        r"<(?i-u:password|passphrase|passwd|secret|token|apikey|privatekey)>\s*(?<secret>[^\s<\[$][^<\n]{3,})</",
        "credential",
    ),
    (
        r#"(?:mysql|mariadb)[a-z-]*\\*["'],(?:[^\n\]]*?,)?\s*\\*["']-p(?<secret>[^\s"'\\\[$][^"'\\\n]{2,})"#,
        "credential",
    ),
    // A line of .netrc, and a phrase in a sentence.
    (
        r#"(?:(?i-u:login)\s+\S{1,128}\s+(?i-u:password)\s+(?<secret>[^\s"'\\\[$<]{4,}))"#,
        "credential",
    ),
    // Beside its name in a sentence, with a digit and a capital or a mark: `password field2` is none.
    (
        r#"(?i-u:password|passphrase|passcode|passwort|kennwort)\s+["'`]?(?<secret>[^\s"'`\\\[\](){},;:<>=$]*(?:[0-9][^\s"'`\\\[\](){},;:<>=$]*[A-Z!@#%&*+_^-]|[A-Z!@#%&*+_^-][^\s"'`\\\[\](){},;:<>=$]*[0-9])[^\s"'`\\\[\](){},;:<>=$]*)"#,
        "credential",
    ),
    // A number to unlock something. `pin` is a verb and a contact as well.
    (
        r#"(?-u:\b)(?:PIN(?:[- ]?[Cc]ode)?|[Pp]in[- ]?[Cc]ode)(?-u:\b)[^\n.:=\[\]0-9]{0,40}[\s:=]+(?<secret>[0-9]{4,8})(?-u:\b)"#,
        "credential",
    ),
    // A phrase of several words, to its quotation mark.
    (
        r#"(?i-u:password|passphrase|passwd|passcode|passwort|kennwort|mnemonic|seed[_ -]?phrase)(?:\\*["'])?\s*(?:=>|:=|[:=])\s*\\*["'](?<secret>[^\s"'\\\[\]{}$<](?:[A-Za-z]'[A-Za-z]|[^"'\\\n]){5,})"#,
        "credential",
    ),
];

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::redact;

    const GONE: &str = "[redacted:credential]";

    #[test]
    fn secrets_named_by_the_words_before_them_are_redacted() {
        for (text, expected) in [
            ("Authorization: Basic YWRtaW46QWRtMW5QYXNz", "Authorization: Basic {}"),
            (r#""authorization": "Token abcdef123456""#, r#""authorization": "Token {}""#),
            ("Proxy-Authorization: 9f8e7d6c5b4a3928", "Proxy-Authorization: {}"),
            ("Cookie: session=abcdef0123456789; csrftoken=zzz111", "Cookie: {}"),
            ("Cookie: lang=de; session=abcdef0123456789\nX: y", "Cookie: {}\nX: y"),
            ("Set-Cookie: sid=abcdef0123456789; Path=/; HttpOnly", "Set-Cookie: {}"),
            (r#"-H 'cookie: a=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx; b=c'"#, "-H 'cookie: {}'"),
            ("curl -u admin:Adm1nPass99 https://x", "curl -u admin:{} https://x"),
            ("curl -sS --user 'a:b c3' x", "curl -sS --user 'a:b c3' x"),
            ("curl -sS --user 'a:bc3' x", "curl -sS --user 'a:{}' x"),
            ("mysql -u root -pS3cretPw123 app", "mysql -u root -p{} app"),
            ("mysqldump -p'S3cret' app", "mysqldump -p'{}' app"),
            ("sshpass -p hunter2 ssh a@b", "sshpass -p {} ssh a@b"),
            ("docker login -u me -p hunter22 r.io", "docker login -u me -p {} r.io"),
            ("redis-cli -h x -a hunter2 ping", "redis-cli -h x -a {} ping"),
            ("secret_key_base: 0123456789abcdef0123", "secret_key_base: {}"),
            ("https://x/c?sv=2020&sig=AbCdEf1234567890%2Bxyz%3D", "https://x/c?sv=2020&sig={}"),
            ("https://s3/x?X-Amz-Signature=0123456789abcdef0", "https://s3/x?X-Amz-Signature={}"),
            ("password: \"correct horse battery staple\"", "password: \"{}\""),
            (r#"{\"passphrase\":\"correct horse\",\"a\":1}"#, r#"{\"passphrase\":\"{}\",\"a\":1}"#),
            ("mnemonic = 'army van don't horse', b", "mnemonic = '{}', b"),
            ("password: 'hunter2hunter2', user: 'bob'", "password: '{}', user: 'bob'"),
            ("machine x login bob password s3cretnet", "machine x login bob password {}"),
            (r#"{"name":"DB_PASSWORD","value":"x9 y"}"#, r#"{"name":"DB_PASSWORD","value":"{}"}"#),
            (r#"{"name": "API_KEY", "value": "abcd"}"#, r#"{"name": "API_KEY", "value": "{}"}"#),
            ("<password>xmlPw22</password>", "<password>{}</password>"),
            (r#"["mysql","-u","root","-pArrPass99"]"#, r#"["mysql","-u","root","-p{}"]"#),
        ] {
            let expected = expected.replace("{}", GONE);
            let clean = redact(text).into_owned();
            assert_eq!(clean, expected);
            assert_eq!(redact(&clean), clean, "placeholders are not secrets");
        }
    }

    #[test]
    fn keys_of_further_services_are_redacted() {
        for secret in [
            "gsk_0123456789abcdefABCD",
            "xai-0123456789abcdefABCD",
            "hvs.CAESI0123456789abcdef",
            "dckr_pat_0123456789abcdef-AB",
            "shpat_0123456789abcdef0123456789abcdef",
            "lin_api_0123456789abcdefABCD",
            "SK0123456789abcdef0123456789abcdef",
            "0123456789abcD.atlasv1.0123456789abcdef0123456789abcdef0123456789",
            "123456789:AAF0123456789abcdef0123456789abcdef0",
        ] {
            assert_eq!(
                redact(&format!("it is {secret} now")),
                "it is [redacted:api-key] now",
                "{secret}"
            );
        }
        let config = "client-key-data: LS0tLS1CRUdJTiBSU0E=";
        assert_eq!(redact(config), "client-key-data: [redacted:private-key]");
    }

    #[test]
    fn a_key_block_in_quotation_marks_is_redacted_whole() {
        let text = "password: \"-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\"";
        assert!(!redact(text).contains("abc"), "{}", redact(text));
    }

    #[test]
    fn what_only_looks_alike_stays() {
        for text in [
            "Authorization: required for all of it",
            "the cookie: a small text",
            "cookie = a=b",
            "docker run -u 1000:1000 image",
            "curl -u \"$USER:$PASS\" x",
            "curl https://host:8080/x -o a",
            "mysql -p app_db --port=3306",
            "docker login --password-stdin",
            "password: \"[redacted:credential]\"",
            "mkdir -p src/a",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{}", redact(text));
        }
    }
}
