"""The agents that are tried: where each comes from, in which version, and how it runs once without a keyboard.

Each gets a home folder and a work folder of its own, a key that opens nothing, and the address of a server on this
machine. Update checks and telemetry are off by each agent's own settings.
"""

import json
import os
import pathlib
from dataclasses import dataclass
from typing import Callable

# The window that an agent is given where it wants one: so large that it leaves compaction to the gateway.
WIDE_TOKENS = 1_000_000
KEY = "sk-scripted"


@dataclass(frozen=True)
class Place:
    """Where an agent runs."""

    home: pathlib.Path
    work: pathlib.Path
    url: str  # the base address, without /v1
    task: str
    window: int  # the window that the agent is told, in tokens
    bin: pathlib.Path  # the folder with the agent's commands

    def write(self, name, value):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
        return path


@dataclass(frozen=True)
class Agent:
    """One agent. `start` writes its settings and gives its command and its environment."""

    name: str
    package: str
    version: str
    dialect: str
    model: str
    start: Callable
    registry: str = "npm"
    last_command: str | None = None  # the command by which the agent knows that it is done
    is_chat: bool = False  # without tools: the person's messages make the rounds
    beside: tuple = ()  # packages that it needs and does not name
    window: int = 48_000  # of the scripted model, in tokens


def start_claude(place):
    environment = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1"}
    environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return ["claude", "-p", place.task, "--model", "claude-opus-4-8", "--allowedTools", "Bash", "--max-turns", "200"], environment


def start_codex(place):
    place.write(
        ".codex/config.toml",
        'model = "gpt-5.1-codex"\nmodel_provider = "gateway"\ncheck_for_update_on_startup = false\n'
        f"model_context_window = {place.window}\n"
        f'[model_providers.gateway]\nname = "gateway"\nbase_url = "{place.url}/v1"\nwire_api = "responses"\n'
        'env_key = "SCRIPTED_KEY"\n[analytics]\nenabled = false\n',
    )
    options = ["--skip-git-repo-check", "--sandbox", "danger-full-access"]
    return ["codex", "exec", *options, place.task], {"CODEX_HOME": str(place.home / ".codex"), "SCRIPTED_KEY": KEY}


def start_opencode(place):
    model = {"name": "scripted", "limit": {"context": place.window, "output": 32_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "gateway", "models": {"scripted": model}}
    provider["options"] = {"baseURL": f"{place.url}/v1", "apiKey": KEY}
    place.write(
        ".config/opencode/opencode.json",
        {"provider": {"gateway": provider}, "autoupdate": False, "share": "disabled", "permission": "allow", "model": "gateway/scripted"},
    )
    environment = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return ["opencode", "run", "--auto", "-m", "gateway/scripted", place.task], environment


def start_openclaw(place):
    model = {"id": "scripted", "name": "scripted", "contextWindow": place.window, "input": ["text"]}
    provider = {"baseUrl": f"{place.url}/v1", "apiKey": KEY, "api": "openai-completions", "models": [model]}
    defaults = {"model": {"primary": "gateway/scripted"}, "workspace": str(place.work)}
    place.write(
        ".openclaw/openclaw.json",
        {
            "agents": {"defaults": defaults},
            "models": {"mode": "replace", "providers": {"gateway": provider}},
            "update": {"checkOnStart": False},
            "tools": {"exec": {"host": "gateway", "security": "full", "ask": "off"}},
        },
    )
    return ["openclaw", "agent", "--local", "--session-id", "scripted", "--message", place.task], {"OPENCLAW_HIDE_BANNER": "1"}


def start_hermes(place):
    # Hermes refuses to work in less.
    window = max(place.window, 64_000)
    place.write(
        ".hermes/config.yaml",
        "model:\n  default: claude-sonnet-4-5\n  provider: custom\n"
        f"  base_url: {place.url}/v1\n  api_key: {KEY}\n  api_mode: chat_completions\n  context_length: {window}\n"
        "terminal:\n  backend: local\n",
    )
    environment = {"HERMES_HOME": str(place.home / ".hermes"), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{place.url}/v1"}
    return ["hermes", "chat", "-q", place.task, "-Q", "--yolo", "--max-turns", "200"], environment


def start_copilot(place):
    environment = {"COPILOT_PROVIDER_BASE_URL": place.url, "COPILOT_PROVIDER_TYPE": "anthropic", "COPILOT_OFFLINE": "true"}
    environment |= {"COPILOT_PROVIDER_API_KEY": KEY, "COPILOT_MODEL": "claude-sonnet-4.5", "COPILOT_AUTO_UPDATE": "false"}
    environment |= {"COPILOT_HOME": str(place.home / ".copilot")}
    if place.window != WIDE_TOKENS:
        environment |= {"COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(place.window)}
    return ["copilot", "-p", place.task, "--allow-all-tools", "--allow-all-paths", "--no-auto-update"], environment


def start_qwen(place):
    generation = {"contextWindowSize": place.window}
    place.write(
        ".qwen/settings.json",
        {
            "general": {"enableAutoUpdate": False, "disableUpdateNag": True},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "model": {"generationConfig": generation, "skipLoopDetection": True, "skipNextSpeakerCheck": True},
            "security": {"auth": {"selectedType": "openai"}},
        },
    )
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_MODEL": "qwen3-coder-plus"}
    return ["qwen", "--yolo", "--auth-type", "openai", "-p", place.task], environment


def start_gemini(place):
    # Its windows go by the model's name; what can be set is the share at which it compresses. It does so between turns
    # alone, and the task is one turn.
    share = {"compressionThreshold": 0.7 * place.window / WIDE_TOKENS} if place.window != WIDE_TOKENS else {}
    place.write(
        ".gemini/settings.json",
        {
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "model": {"disableLoopDetection": True, "skipNextSpeakerCheck": True, **share},
        },
    )
    environment = {"GOOGLE_GEMINI_BASE_URL": place.url, "GEMINI_API_KEY": KEY, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return ["gemini", "--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", place.task], environment


def start_cline(place):
    data = str(place.home / ".cline" / "data")
    login = f'cline auth -p openai -k {KEY} -m scripted -b "{place.url}/v1" >/dev/null'
    environment = {"TASK": place.task, "CLINE_DATA_DIR": data, "CLINE_TELEMETRY_DISABLED": "1", "CLINE_NO_AUTO_UPDATE": "1"}
    return ["sh", "-c", f'{login} && exec cline -P openai -m scripted --auto-approve true "$TASK"'], environment


def start_aider(place):
    environment = {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{place.url}/v1", "AIDER_ANALYTICS": "false", "TASK": place.task}
    environment |= {"TOLD_WINDOW": str(place.window)}
    environment |= {"AIDER_CHECK_UPDATE": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    script = pathlib.Path(__file__).with_name("aider_turns.py")
    return ["python", str(script)], environment


def start_pi(place):
    model = {"id": "scripted", "contextWindow": place.window}
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    place.write(".pi/agent/models.json", {"providers": {"gateway": provider}})
    environment = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
    return ["pi", "--offline", "--provider", "gateway", "--model", "scripted", "-p", place.task], environment


def start_mini(place):
    environment = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "OPENAI_API_KEY": KEY}
    environment |= {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_BASE_URL": f"{place.url}/v1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    environment |= {"MSWEA_GLOBAL_CONFIG_DIR": str(place.home / ".mini"), "MSWEA_SILENT_STARTUP": "1"}
    options = ["-y", "--exit-immediately", "-l", "0", "-m", "openai/scripted", "-o", str(place.home / "trajectory.json")]
    return ["mini", *options, "-t", place.task], environment


def start_continue(place):
    options = {"contextLength": place.window, "maxTokens": 8_000}
    model = {"name": "scripted", "provider": "openai", "model": "scripted", "apiBase": f"{place.url}/v1", "apiKey": KEY}
    model |= {"roles": ["chat"], "capabilities": ["tool_use"], "defaultCompletionOptions": options}
    # JSON is YAML.
    config = place.write(".continue/scripted.yaml", {"name": "scripted", "version": "0.0.1", "schema": "v1", "models": [model]})
    return ["cn", "-p", "--auto", "--config", str(config), place.task], {"CONTINUE_TELEMETRY_ENABLED": "0"}


def start_kilo(place):
    model = {"name": "scripted", "limit": {"context": place.window, "output": 32_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "gateway", "models": {"scripted": model}}
    provider["options"] = {"baseURL": f"{place.url}/v1", "apiKey": KEY}
    place.write(
        ".config/kilo/kilo.json",
        {"provider": {"gateway": provider}, "autoupdate": False, "permission": "allow", "model": "gateway/scripted"},
    )
    environment = {"KILO_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return ["kilo", "run", "--auto", "-m", "gateway/scripted", place.task], environment


AGENTS = [
    # Its system prompts and tools take 19,000 tokens, and the answer that it asks for is longer than 48,000.
    Agent("claude", "@anthropic-ai/claude-code", "2.1.197", "anthropic", "claude-opus-4-8", start_claude, window=96_000),
    Agent("codex", "@openai/codex", "0.169.0", "responses", "gpt-5.1-codex", start_codex),
    Agent("opencode", "opencode-ai", "1.18.33", "chat", "scripted", start_opencode),
    Agent("openclaw", "openclaw", "2026.9.6", "chat", "scripted", start_openclaw),
    Agent("hermes", "hermes-agent", "0.19.0", "chat", "claude-sonnet-4-5", start_hermes, registry="pypi"),
    Agent("copilot", "@github/copilot", "1.0.102", "anthropic", "claude-sonnet-4.5", start_copilot),
    Agent("qwen", "@qwen-code/qwen-code", "0.24.4", "chat", "qwen3-coder-plus", start_qwen),
    Agent("gemini", "@google/gemini-cli", "0.61.0", "gemini", "gemini-2.5-pro", start_gemini),
    Agent("cline", "cline", "3.0.65", "chat", "scripted", start_cline),
    Agent("aider", "aider-chat", "0.86.2", "chat", "scripted", start_aider, registry="pypi", is_chat=True),
    Agent("pi", "@mariozechner/pi-coding-agent", "0.73.1", "chat", "scripted", start_pi),
    Agent("mini", "mini-swe-agent", "2.4.6", "chat", "scripted", start_mini, registry="pypi",
          last_command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", beside=("mcp==2.3.0", "litellm==1.106.2")),
    Agent("continue", "@continuedev/cli", "1.5.47", "chat", "scripted", start_continue),
    # 7.8.1 names a program that is not in the registry.
    Agent("kilo", "@kilocode/cli", "7.7.7", "chat", "scripted", start_kilo),
]

# Cheap and robust ones for the gate: both ways of editing history, and the two largest answers that are asked for.
GATE = ["copilot", "qwen", "gemini"]


def environment_of(place, node, extra):
    """What every agent is given: no key or setting of this machine, no proxy, no terminal."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TZ", "TMPDIR") if name in os.environ}
    path = [str(place.bin), str(node), os.environ.get("PATH", "/usr/bin:/bin")]
    home = str(place.home)
    return {
        **kept, "PATH": ":".join(path), "HOME": home, "XDG_CONFIG_HOME": f"{home}/.config", "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state", "XDG_CACHE_HOME": f"{home}/.cache", "NO_COLOR": "1", "TERM": "dumb", "CI": "1",
        "DO_NOT_TRACK": "1", "NO_UPDATE_NOTIFIER": "1", "GIT_TERMINAL_PROMPT": "0", "NO_PROXY": "127.0.0.1,localhost", **extra,
    }
