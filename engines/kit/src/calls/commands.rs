//! The command that a call runs, given as one text or as a list of arguments.

use ctxhost_engine_api::ToolCall;
use serde_json::Value;

/// Arguments that hold a command; their names differ between agents.
const COMMANDS: [&str; 4] = ["command", "cmd", "script", "argv"];
/// Arguments with the rest of a command of which the others hold the program alone.
const REST: &str = "args";

/// Shells that run a script given after an option that ends with `c`.
const SHELLS: [&str; 7] = ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish"];
/// Shells of Windows, with the options after which the command begins.
const WINDOWS_SHELLS: [(&str, &[&str]); 3] =
    [("cmd", &["/c", "/k"]), ("powershell", &["-command", "-c"]), ("pwsh", &["-command", "-c"])];

/// The command of a call, if it runs one: of a list such as `["bash", "-lc", "cargo test"]` what the
/// shell runs.
pub fn command_argument(call: &ToolCall<'_>) -> Option<String> {
    let arguments = call.arguments_value();
    COMMANDS.iter().find_map(|name| match arguments.get(*name)? {
        Value::String(program) => match arguments.get(REST).and_then(words) {
            Some(rest) if !rest.is_empty() => {
                Some(command_line([program.as_str()].into_iter().chain(rest).collect()))
            }
            _ => Some(program.clone()),
        },
        list => Some(command_line(words(list)?)),
    })
}

/// The words of a list of texts; `None` for any other value.
fn words(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// The command line of a list of arguments.
fn command_line(arguments: Vec<&str>) -> String {
    // `env NAME=value bash -lc script` is `NAME=value script`.
    let has_env = arguments.first().is_some_and(|program| program_name(program) == "env");
    let after_env = arguments.get(usize::from(has_env)..).unwrap_or_default();
    let is_variable = |word: &&&str| word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let variables = after_env.iter().take_while(is_variable).count();
    let (set, run) = after_env.split_at(variables);
    // Without variables `env` may have options of its own.
    let run = if set.is_empty() { arguments.as_slice() } else { run };
    let mut line: Vec<String> = set.iter().map(|word| quoted(word)).collect();
    match script(run) {
        Some(script) => line.push(script),
        None => line.extend(run.iter().map(|word| quoted(word))),
    }
    line.join(" ")
}

/// What a shell in front of a list runs.
fn script(arguments: &[&str]) -> Option<String> {
    let (program, options) = arguments.split_first()?;
    let name = program_name(program);
    if SHELLS.contains(&name.as_str()) {
        let at = options.iter().position(|option| !option.starts_with('-') || is_script(option))?;
        // A shell that runs a file has no such option.
        options.get(at).filter(|option| is_script(option))?;
        return options.get(at + 1).map(|script| (*script).to_owned());
    }
    let (_, before) = WINDOWS_SHELLS.iter().find(|(shell, _)| *shell == name)?;
    let at = options.iter().position(|option| before.contains(&option.to_lowercase().as_str()))?;
    let rest = options.get(at + 1..).filter(|rest| !rest.is_empty())?;
    // These shells join their arguments themselves.
    Some(rest.join(" "))
}

/// Whether an option of a shell is followed by a script: `-c`, `-lc`, `-ec`.
fn is_script(option: &str) -> bool {
    let flags = option.strip_prefix('-').unwrap_or_default();
    flags.ends_with('c') && flags.chars().all(|c| c.is_ascii_lowercase())
}

/// A program without its folder and `.exe`, in lower case.
fn program_name(program: &str) -> String {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program).to_lowercase();
    name.strip_suffix(".exe").map_or(name.clone(), str::to_owned)
}

fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && word.chars().all(is_part)
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !"'\"$`\\;&|<>()*?#!~".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn command(arguments: &str) -> Option<String> {
        let mut talk = TranscriptBuilder::new();
        talk.calls(&[("a", "shell", arguments)]);
        let transcript = talk.transcript();
        command_argument(&transcript.get(0)?.tool_calls()[0])
    }

    #[test]
    fn a_command_in_any_form_is_one_line() {
        for (arguments, expected) in [
            (r#"{"command":"cargo test"}"#, "cargo test"),
            (r#"{"cmd":"ls"}"#, "ls"),
            (r#"{"command":["bash","-lc","cargo test"]}"#, "cargo test"),
            (r#"{"command":["/bin/sh","-c","a && b"]}"#, "a && b"),
            (r#"{"command":["zsh","-l","-c","make"]}"#, "make"),
            (r#"{"command":["env","X=y","bash","-lc","make"]}"#, "X=y make"),
            (r#"{"command":["env","-i","make"]}"#, "env -i make"),
            (r#"{"command":["cmd","/d","/c","dir","C:\\a"]}"#, "dir C:\\a"),
            (r#"{"command":["C:\\W\\cmd.exe","/C","dir"]}"#, "dir"),
            (r#"{"command":["powershell","-NoProfile","-Command","Get-Item a"]}"#, "Get-Item a"),
            (r#"{"command":["pwsh.exe","-c","ls"]}"#, "ls"),
            (r#"{"command":["git","commit","-m","a b"]}"#, "git commit -m 'a b'"),
            (r#"{"command":["bash","run.sh","-c","x"]}"#, "bash run.sh -c x"),
            (r#"{"command":"cargo","args":["test","-q"]}"#, "cargo test -q"),
            (r#"{"type":"exec","command":["ls"]}"#, "ls"),
        ] {
            assert_eq!(command(arguments).as_deref(), Some(expected), "{arguments}");
        }
        for without in ["{}", r#"{"command":[1]}"#, r#"{"command":{"a":"b"}}"#] {
            assert_eq!(command(without), None, "{without}");
        }
    }
}
