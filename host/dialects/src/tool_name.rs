//! Tool names that every provider accepts: `^[a-zA-Z0-9_-]{1,64}$`.

/// The longest tool name that every provider accepts.
pub const TOOL_NAME_MAX_CHARS: usize = 64;

/// The name of a call without one.
const NO_NAME: &str = "unknown";

/// Whether every provider accepts a name.
pub fn is_legal_tool_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= TOOL_NAME_MAX_CHARS && name.chars().all(is_legal_char)
}

/// A name that every provider accepts: models also call tools that do not exist, under any name.
pub fn legalize_tool_name(name: &str) -> String {
    let name: String = legalize_chars(name.trim()).take(TOOL_NAME_MAX_CHARS).collect();
    if name.is_empty() { NO_NAME.to_owned() } else { name }
}

/// The characters of a name, with `_` for each that a provider may refuse.
pub fn legalize_chars(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|char| if is_legal_char(char) { char } else { '_' })
}

fn is_legal_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_' || char == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_becomes_one_that_providers_accept() {
        for (name, legal) in [
            ("read_file", "read_file"),
            (" mcp.server:read ", "mcp_server_read"),
            ("functions.shell", "functions_shell"),
            ("shell<|channel|>json", "shell__channel__json"),
            ("", "unknown"),
            (" \n", "unknown"),
            ("\0", "_"),
        ] {
            assert_eq!(legalize_tool_name(name), legal, "{name:?}");
            assert_eq!(is_legal_tool_name(name), name == legal, "{name:?}");
        }
        assert_eq!(legalize_tool_name(&"é".repeat(99)), "_".repeat(64));
        assert_eq!(legalize_tool_name(&"n".repeat(200)), "n".repeat(64));
    }
}
