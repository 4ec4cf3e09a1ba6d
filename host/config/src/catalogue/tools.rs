//! Settings of the tools that a model may call.

use super::{Allowed, MS, Setting, setting};

/// In the order in which people read about them.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "tools.allow",
        "",
        Allowed::List,
        "names or patterns such as `git__*` of tools that the model is offered, those of servers and engines among them; empty offers all",
    ),
    setting(
        "tools.deny",
        "",
        Allowed::List,
        "names or patterns of tools that it is not; goes before `allow`. `shell` here is what keeps an agent to files",
    ),
    setting(
        "tools.timeout_ms",
        MS,
        Allowed::Whole(1),
        "the most that any call may take, whatever the tool or the model says; ten minutes let a long test run end",
    ),
    setting(
        "tools.shell_timeout_ms",
        MS,
        Allowed::Whole(1),
        "a command for which the model asks for no time of its own; two minutes are long for most, and show a hanging one soon",
    ),
    setting(
        "tools.shell_hidden_env",
        "",
        Allowed::List,
        "environment variables that commands do not get, by name or pattern; keys of models are nothing that a command should print",
    ),
    setting(
        "tools.confine",
        "",
        Allowed::Flag,
        "true keeps the file tools in the working folder and `roots`, links followed; false, because `shell` goes everywhere anyway. To confine an agent for good, deny `shell` too, or use a container",
    ),
    setting(
        "tools.roots",
        "",
        Allowed::List,
        "folders beside the working folder that are open to confined file tools, relative to this file",
    ),
    setting(
        "mcp.*.command",
        "",
        Allowed::Text,
        "the program of a server that is started and spoken to over its standard input and output. Starting it is running its code",
    ),
    setting("mcp.*.args", "", Allowed::List, "its arguments"),
    setting(
        "mcp.*.env",
        "",
        Allowed::Texts,
        "its environment, beside PATH, HOME, language and the like: a server gets nothing else of ours. `${NAME}` stands for a variable, so that no key stands in a file",
    ),
    setting(
        "mcp.*.cwd",
        "",
        Allowed::Text,
        "the folder it runs in, relative to this file; unset, that of ctxhost",
    ),
    setting(
        "mcp.*.url",
        "",
        Allowed::Url,
        "the address of a server that speaks streamable HTTP, instead of `command`",
    ),
    setting(
        "mcp.*.headers",
        "",
        Allowed::Texts,
        "what is sent with every request to `url`; `${NAME}` stands for a variable, so that no key stands in a file",
    ),
    setting(
        "mcp.*.connect_timeout_ms",
        MS,
        Allowed::Whole(1),
        "starting a server and shaking hands; half a minute, since a first start may download it. One that does not answer is left out, and said to be",
    ),
    setting(
        "mcp.*.timeout_ms",
        MS,
        Allowed::Whole(1),
        "one call without a sign of progress; with such signs `tools.timeout_ms` is the end",
    ),
];
