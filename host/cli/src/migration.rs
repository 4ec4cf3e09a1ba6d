//! Notes that a command has rewritten a session file of an older version.

use super::output::Output;
use ctxhost_session::{FileMigration, SESSION_VERSION};

/// Says which version a session file has now, and where its original is, if the command has migrated it.
pub(super) fn note_migration(migration: Option<&FileMigration>, output: &mut Output) {
    if let Some(text) = migration.and_then(describe_migration) {
        output.note(&text);
    }
}

fn describe_migration(migration: &FileMigration) -> Option<String> {
    let copy = migration.copy()?.display();
    let version = migration.from_version();
    Some(format!(
        "the file was migrated from version {version} of the session format to version {SESSION_VERSION}; the original is {copy}"
    ))
}

#[cfg(test)]
mod tests {
    use ctxhost_session::{RecordBody, Session};

    use super::*;

    #[test]
    fn a_migration_names_both_versions_and_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.jsonl");
        let old = concat!(
            r#"{"type":"session","id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}"#,
            "\n",
            r#"{"type":"message","timestamp":"2026-01-02T03:04:06.000Z","message":{"role":"user","content":"one","timestamp":1}}"#,
            "\n",
        );
        std::fs::write(&path, old).unwrap();
        let mut session = Session::open(&path).unwrap();
        let migration = session.pending_migration().unwrap();
        assert_eq!(describe_migration(&migration), None, "nothing is written yet");
        session.append(RecordBody::session_info("two")).unwrap();
        let text = describe_migration(&migration).unwrap();
        assert!(text.contains("from version 1 of the session format to version 3"), "{text}");
        assert!(text.ends_with("old.jsonl.v1.bak"), "{text}");
    }
}
