//! Folders of agents, the sessions in them, and their names on the command line.

use super::*;

fn folders(variables: &[(&str, &str)]) -> Vec<String> {
    let find = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| OsString::from(value))
    };
    let all = agent_folders(find).into_iter().filter(|folder| folder.agent != "ctxhost");
    all.map(|folder| format!("{} {}", folder.agent, folder.path.display())).collect()
}

#[test]
fn each_agent_has_its_folder() {
    assert_eq!(
        folders(&[("HOME", "/h")]),
        [
            "claude-code /h/.claude/projects",
            "claude-code /h/.config/claude/projects",
            "codex /h/.codex/sessions",
            "codex /h/.codex/archived_sessions",
            "pi /h/.pi/agent/sessions",
            "openclaw /h/.openclaw/agents",
            "openclaw /h/.clawdbot/agents",
            "openclaw /h/.moltbot/agents",
            "openclaw /h/.openclaw/agents",
            "openclaw /h/.clawdbot/agents",
            "openclaw /h/.moltbot/agents",
            "opencode /h/.local/share/opencode",
            "opencode /h/.local/share/opencode/storage/session",
            "gemini-cli /h/.gemini/tmp",
        ]
    );
    let moved = folders(&[
        ("HOME", "/h"),
        ("CODEX_HOME", "/x"),
        ("CLAUDE_CONFIG_DIR", "/c"),
        ("XDG_DATA_HOME", "/d"),
    ]);
    for expected in
        ["claude-code /c/projects", "codex /x/sessions", "opencode /d/opencode/storage/session"]
    {
        assert!(moved.iter().any(|folder| folder == expected), "{expected}: {moved:?}");
    }
    assert_eq!(folders(&[]), Vec::<String>::new(), "none is below the current folder");
    assert_eq!(
        folders(&[("CODEX_HOME", "/x")]),
        ["codex /x/sessions", "codex /x/archived_sessions"]
    );
}

#[test]
fn ids_are_as_long_as_it_takes() {
    let paths =
        ["/a/11-22223333.jsonl", "/b/44-22223333.jsonl", "/c/short.jsonl"].map(PathBuf::from);
    let ids = paths.each_ref().map(|path| short_id(path, &paths));
    assert_eq!(ids, ["1-22223333", "4-22223333", "short"]);
    assert_eq!(short_id(&paths[0], &paths[..1]), "22223333");
    let copies = ["/a/11-22223333.jsonl", "/b/11-22223333.jsonl"].map(PathBuf::from);
    assert_eq!(short_id(&copies[1], &copies), "/b/11-22223333.jsonl", "no command would find it");
    let odd = Path::new("/d/two words.jsonl");
    assert_eq!(short_id(odd, &paths), "/d/two words.jsonl", "no argument that is an id");
}

#[test]
fn a_session_is_named_by_either_end_of_its_id() {
    let first = "/c/rollout-2026-11-20T10-00-00-019aa1b2-0000-7000-8000-00000000abcd.jsonl";
    let second = "/c/rollout-2026-11-21T10-00-00-019aa1ff-0000-7000-8000-00000000beef.jsonl";
    let found = || {
        let session = |path: &str| FoundSession { path: path.into(), changed_ms: 0, bytes: 0 };
        vec![("codex", session(first)), ("codex", session(second))]
    };
    let resolve = |text: &str| resolve_in(Path::new(text), found).map_err(|e| e.to_string());
    for text in
        ["0000abcd", "019aa1b2", "rollout-2026-11-20", "019aa1b2-0000-7000-8000-00000000abcd"]
    {
        assert_eq!(resolve(text), Ok(first.into()), "{text}");
    }
    let several = resolve("019aa1").unwrap_err();
    assert!(several.contains("2 sessions have an id that begins with 019aa1"), "{several}");
    assert!(several.contains(first) && several.contains(second), "{several}");
    for text in ["019aa2b2", "no/session.jsonl", "session.jsonl"] {
        let missing = resolve(text).unwrap_err();
        assert!(missing.contains(&format!("no file {text}")), "{missing}");
        assert!(missing.contains("`ctxhost doctor` lists the sessions"), "{missing}");
    }
}

#[test]
fn files_of_sub_agents_and_links_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let project = folder.path().join("p");
    std::fs::create_dir(&project).unwrap();
    let beside = ["one.checkpoint.1-2.jsonl", "one.trajectory.jsonl"];
    for name in ["one.jsonl", "agent-two.jsonl", "notes.txt"].into_iter().chain(beside) {
        std::fs::write(project.join(name), "").unwrap();
    }
    std::os::unix::fs::symlink(&project, folder.path().join("q")).unwrap();
    let claude =
        AgentFolder { agent: "claude-code", path: folder.path().into(), layout: &["*", ".jsonl"] };
    let found: Vec<PathBuf> = claude.list().into_iter().map(|session| session.path).collect();
    assert_eq!(found, [project.join("one.jsonl")]);
}

#[test]
fn folders_that_exist_and_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let [project, gone] = ["p", "gone"].map(|name| folder.path().join(name));
    // A file has no entries for any user, also for root.
    std::fs::write(&project, "").unwrap();
    let folders = [&project, &gone, &project].map(|path| AgentFolder {
        agent: "pi",
        path: path.clone(),
        layout: &["*", ".jsonl"],
    });
    let unreadable = list_sessions(&folders).unreadable;
    let paths: Vec<&Path> = unreadable.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(paths, [project.as_path()]);
    assert!(unreadable[0].reason.contains("directory"), "{}", unreadable[0].reason);
}

#[test]
fn sessions_of_sub_agents_are_named_by_their_id_only() {
    let folder = tempfile::tempdir().unwrap();
    for (name, source) in [("a", r#""cli""#), ("b", r#"{"subagent":"review"}"#)] {
        let text = format!(r#"{{"type":"session_meta","payload":{{"id":"a","source":{source}}}}}"#);
        std::fs::write(folder.path().join(format!("{name}-0001.jsonl")), text).unwrap();
    }
    let codex = AgentFolder { agent: "codex", path: folder.path().into(), layout: &[".jsonl"] };
    let (own, other) = (folder.path().join("a-0001.jsonl"), folder.path().join("b-0001.jsonl"));
    let listed = list_sessions(std::slice::from_ref(&codex));
    let listed: Vec<PathBuf> =
        listed.sessions.into_iter().map(|(_, session)| session.path).collect();
    assert_eq!(listed, std::slice::from_ref(&own));
    let mut found = list_all(&[codex]).sessions;
    assert_eq!(without_sub_agents(found.clone()), [own]);
    found.retain(|(_, session)| session.path == other);
    assert_eq!(without_sub_agents(found), [other]);
}

#[test]
fn sessions_in_a_database_replace_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("main/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let database = folder.path().join("main/agent/openclaw-agent.sqlite");
    std::fs::create_dir_all(database.parent().unwrap()).unwrap();
    std::fs::write(sessions.join("s.jsonl"), "").unwrap();
    std::fs::write(&database, "no database").unwrap();
    let folders = [&["*", "sessions", ".jsonl"][..], &["*", "agent", ".sqlite"]]
        .map(|layout| AgentFolder { agent: "openclaw", path: folder.path().into(), layout });
    let paths: Vec<PathBuf> =
        list_sessions(&folders).sessions.into_iter().map(|(_, session)| session.path).collect();
    assert_eq!(paths, [sessions.join("s.jsonl"), database.clone()], "it cannot be read");
    let session = |path: PathBuf| FoundSession { path, changed_ms: 0, bytes: 0 };
    assert!(session(database.join("s")).is_in_database());
    assert!(!session(database).is_in_database());
}

#[test]
fn files_of_openclaw_are_recognized_by_their_folder() {
    let home = tempfile::tempdir().unwrap();
    let sessions = home.path().join("disk/agents/main/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    std::fs::write(sessions.join("a.jsonl"), "").unwrap();
    // The state folder is a link, and the file is named without it.
    std::os::unix::fs::symlink(home.path().join("disk"), home.path().join(".openclaw")).unwrap();
    let value = home.path().as_os_str().to_owned();
    let folders = agent_folders(|name| (name == "HOME").then(|| value.clone()));
    let is_openclaw = |path: &str| is_below(&home.path().join(path), &folders, "openclaw");
    for path in [
        ".openclaw/agents/main/sessions/a.jsonl",
        "disk/agents/main/sessions/a.jsonl",
        ".openclaw/agents/main/agent/openclaw-agent.sqlite/id",
    ] {
        assert!(is_openclaw(path), "{path}");
    }
    for path in ["a.jsonl", ".openclaw/openclaw.json", ".pi/agent/sessions/w/a.jsonl"] {
        assert!(!is_openclaw(path), "{path}");
    }
}
