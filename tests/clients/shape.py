#!/usr/bin/env python3
"""Makes a fixture of the request bodies that an agent sent: their shape, without anybody's wording but ours.

    tests/clients/run.py --all --agents-know --record FOLDER
    tests/clients/shape.py FOLDER/pi-direct.json [--out tests/fixtures/clients]

Fields, roles, order, names of tools, ids, numbers and the markers of MARKERS stay as sent. Every other text becomes a
gap, `⟦482 9f3c⟧`: 482 characters were here, and 9f3c is a checksum, so that equal texts give equal gaps and different
ones do not. `fill` writes text of ours of that length into the gaps; ctxhost_tests::client_bodies does the same in Rust.
The same recording gives the same fixture.
"""

import argparse
import json
import pathlib
import re
import zlib

from dialects import dialect_of
from trial import TASK

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "clients"
MAX_REQUESTS = 6

# What tells injected context, a summary, a request for one or a cleared result from other text. Short phrases as the
# clients of agents.py wrote them in November 2026.
MARKERS = [
    # Requests for a summary.
    "Your task is to create a detailed summary of the conversation so far",
    "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.",
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "Please create a detailed summary of the conversation so far",
    "You are a summarization agent creating a context checkpoint",
    "You are the component that summarizes a conversation when its context window is about to overflow",
    "First, reason in your <analysis> block. Then, produce the <state_snapshot> XML.",
    "You are a context summarization agent",
    "You are a context summarization assistant",
    "You are a specialized system component responsible for distilling chat history",
    "Generate a new <state_snapshot> based on the provided history.",
    "First, reason in your scratchpad. Then, generate the updated <state_snapshot>.",
    "Critically evaluate the <state_snapshot> you just generated",
    "Here is the conversation so far:",
    "Summarize the provided coding session",
    "Summarize this session for continuation",
    "This is the PREFIX of a turn that was too large to keep",
    # What stands in a conversation behind one.
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
    "The conversation history before this point was compacted into the following summary",
    "Some of the conversation history has been summarized to free up context.",
    "[CONTEXT COMPACTION — REFERENCE ONLY]",
    "[PRIOR CONTEXT — for reference only; not a new message]",
    "Context summary:",
    "What did we do so far?",
    "Continue if you have next steps",
    "Resume the prior task using the summary above",
    "Got it. Thanks for the additional context!",
    "Continue the current task from the existing transcript",
    # Results that the client cleared.
    "[Old tool result content cleared]",
    "Output too large. Full output available at:",
    "more characters truncated",
    "[terminal] ran `",
    # Context that the client injects.
    "As you answer the user's questions, you can use the following context:",
    "I am not sharing the full contents of any files with you yet.",
    "I am not sharing any files that you can edit yet.",
    "I switched to a new code base.",
    "To suggest changes to a file you MUST return",
    "Please solve this issue:",
    "Runtime: agent=",
    "# AGENTS.md instructions for",
]
TAG = re.compile(r"<{1,3}[!/]?(?:--)?\s?[A-Za-z_][A-Za-z0-9_:.-]{1,60}(?: mode=\"[a-z]+\")?(?:\s?--)?>{1,3}")
# Words of ours, which the scripted model and the trial write.
OURS = re.compile(
    r"The person asked to read the parts of a report one after the other\. \d+ parts were read so far; the next ones follow\. No errors occurred\.|"
    r"The parts are read in order\.|All parts have been read\.|\[task, part \d+\]|Part \d+ is read\.|cat part_\d+\.txt|"
    r"Read the next part|Reading the parts of a report|Part \d{3}, id PX-\d{5}"
)
# How the scripted model's summaries begin.
SUMMARY_WORDS = "The person asked to read the parts of a report"
# Text without a space is an id, a name or a value of an enumeration, unless it is as long as encoded content.
MAX_WORD_CHARS = 100
PROSE_KEYS = {"description", "text", "instructions", "title"}
# A gap shorter than this keeps no secret and is a line break or a full stop.
PUNCTUATION = re.compile(r"[\s\W_]*")
# Paths of the machine on which it was recorded, and ids of that machine.
MACHINE = re.compile(r"/(?:tmp|root|home|var|work)/[^\s\"'`<>)]*")
MACHINE_ID = re.compile(r'(\\*"(?:device_id|installation_id)\\*" ?: ?\\*")([0-9a-f-]+)')
# The name that Codex gives its first agent looks like a path.
CODEX_ROOT = re.compile(r'(?<=")/root(?=\\*")')
# Headers that say whose request it is, or for what.
HEADERS = re.compile(r"session|thread|x-codex|x-initiator|x-client-request|x-claude-code|anthropic-beta|user-agent|x-app")


def gap(text):
    return f"⟦{len(text)} {zlib.crc32(text.encode()) & 0xFFFF:04x}⟧"


def fill(text):
    """A text with its gaps filled."""
    def filler(match):
        unit = f"{match[2]} text of ours "
        return (unit * (int(match[1]) // len(unit) + 1))[: int(match[1])]

    return re.sub(r"⟦(\d+) ([0-9a-f]{4})⟧", filler, text)


def scrub_text(text, task, tags=True):
    """A text of which only markers and words of ours are left."""
    kept = [re.escape(task), re.escape(json.dumps(task)[1:-1]), OURS.pattern]
    kept += [re.escape(marker) for marker in MARKERS] + [re.escape(json.dumps(marker)[1:-1]) for marker in MARKERS]
    kept += [TAG.pattern] if tags else []
    out, at = [], 0
    for match in re.finditer("|".join(kept), text):
        out += [text[at : match.start()], None, match[0]]
        at = match.end()
    out.append(text[at:])
    written, is_kept = "", False
    for part in out:
        if part is None:
            is_kept = True
        elif is_kept or PUNCTUATION.fullmatch(part) and len(part) < 40:
            written, is_kept = written + part, False
        else:
            written += gap_of(part)
    return written


def gap_of(part):
    """A gap that leaves line breaks and blanks at the ends of a text where they are."""
    core = part.strip()
    start = part.index(core)
    return part[:start] + gap(core) + part[start + len(core) :]


def scrub(value, task, key="", in_head=False):
    if isinstance(value, dict):
        return {name: scrub(inner, task, name, in_head) for name, inner in value.items()}
    if isinstance(value, list):
        return [scrub(inner, task, key, in_head) for inner in value]
    if not isinstance(value, str):
        return value
    if value[:1] in "{[" and key != "text":
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, dict | list):
            return json.dumps(scrub(inner, task, "", in_head), ensure_ascii=False, separators=separators_of(value))
    is_word = not re.search(r"\s", value) and len(value) <= MAX_WORD_CHARS and key not in PROSE_KEYS
    if is_word and not MACHINE.search(value):
        return value
    return scrub_text(value, task, tags=not in_head)


def separators_of(text):
    return (", ", ": ") if re.search(r'": ["{\[\dtfn]', text[:2000]) else (",", ":")


HEAD_KEYS = {"tools", "system", "instructions", "systemInstruction"}


def scrub_body(body, task):
    out = {}
    for key, value in body.items():
        out[key] = scrub(value, task, key, in_head=key in HEAD_KEYS)
    for key in ("messages", "input"):
        for place, item in enumerate(body.get(key) if isinstance(body.get(key), list) else []):
            if item.get("role") in ("system", "developer"):
                out[key][place] = scrub(item, task, in_head=item.get("role") == "system" and key == "messages" and place == 0)
    return json.loads(without_machine(json.dumps(out, ensure_ascii=False)))


def without_machine(text):
    """A text with the ids that an agent gave this machine made of zeros."""
    return MACHINE_ID.sub(lambda match: match[1] + re.sub("[0-9a-f]", "0", match[2]), CODEX_ROOT.sub("/main", text))


def item_key(body):
    return next(key for key in ("messages", "input", "contents") if key in body)


def texts_of(item):
    """(part or None, text) of each text that stands in a user's item for itself; results of tools are left out."""
    content = item.get("content", item.get("parts"))
    if isinstance(content, str):
        yield None, content
    for place, part in enumerate(content if isinstance(content, list) else []):
        if isinstance(part, dict) and part.get("type") in (None, "text", "input_text") and isinstance(part.get("text"), str):
            yield place, part["text"]


def place_of(item, part):
    return [item] if part is None else [item, part]


def roles_of_texts(body, task):
    """Which texts of the user's side the person wrote, which the client injected, and which are a summary."""
    items = body[item_key(body)]
    found = {"person": [], "injected": [], "summary": []}
    for at, item in enumerate(items if isinstance(items, list) else []):
        if item.get("role") in ("assistant", "model"):
            # Some clients write the summary as a message of the model.
            found["summary"] += [place_of(at, part) for part, text in texts_of(item) if SUMMARY_WORDS in text]
        if item.get("role") != "user":
            continue
        for part, text in texts_of(item):
            # Clients that ask for a summary aside quote the conversation in one text.
            is_quote = "<conversation>" in text or "TURNS TO SUMMARIZE" in text
            has_task = task in text or json.dumps(task)[1:-1] in text or re.match(r"\[task, part \d+\]", text)
            kinds = [] if is_quote else ["person"] * bool(has_task) + ["summary"] * (SUMMARY_WORDS in text)
            for kind in kinds or ["injected"]:
                found[kind].append(place_of(at, part))
    return found


def is_edit(before, after):
    """Whether a request changed what an earlier one said, beyond its last item."""
    items, newer = before.items, after.items
    if len(newer) < len(items) - 1:
        return True
    plain = lambda item: re.sub(r', "cache_control": \{[^}]*\}', "", json.dumps(item))  # noqa: E731
    return any(plain(one) != plain(other) for one, other in zip(items[:-1], newer))


def choose(requests, parsed):
    """Numbers of up to six requests: the first two, one behind an edit with the one before it, a request for a summary and the next."""
    has_tools = any(request.tools for request in parsed)
    main = [at for at, request in enumerate(parsed) if bool(request.tools) == has_tools and not requests[at]["asks"]]
    chosen = {at: "grows" for at in main[1:2]} | {at: "first" for at in main[:1]}
    asks = next((at for at in range(len(requests)) if requests[at]["asks"] and at > main[1]), None)
    edits = [(one, other) for one, other in zip(main, main[1:]) if is_edit(parsed[one], parsed[other])]
    edits = [pair for pair in edits if asks is None or not pair[0] < asks < pair[1]]
    # An edit that makes the conversation much shorter replaced it; what clears results keeps its items.
    clears = [pair for pair in edits if len(parsed[pair[1]].items) >= len(parsed[pair[0]].items)]
    for one, other in (clears or (edits if asks is None else []))[:1]:
        chosen |= {one: "before an edit", other: "edited"}
    if asks is not None:
        chosen[asks] = "asks for a summary"
        # Some ask a second time behind the same conversation, for a better one or without tools.
        if requests[asks + 1]["asks"] and len(parsed[asks + 1].items) > 3:
            chosen = {at: name for at, name in chosen.items() if "edit" not in name} | {asks + 1: "asks for a summary"}
        behind = [at for at in main if at > asks and requests[at]["status"] < 400]
        after = next((at for at in behind if SUMMARY_WORDS in json.dumps(requests[at]["body"])), next(iter(behind), None))
        if after is not None:
            chosen[after] = "behind a summary"
    if len(chosen) < 3:
        chosen |= {at: "grows" for at in main[2:4]}
    return [(at, chosen[at]) for at in sorted(chosen)][:MAX_REQUESTS]


def fixture(recording):
    requests = recording["requests"]
    parsed = [dialect_of(r["path"]).parse(r["path"], r["body"]) for r in requests]
    first = next(match for r in requests if (match := re.search(r"part_001\.txt to part_(\d+)\.txt", json.dumps(r["body"]))))
    task = TASK.format(last=int(first[1]))
    shaped = []
    for at, name in choose(requests, parsed):
        request = requests[at]
        body = scrub_body(request["body"], task)
        headers = {name: without_machine(value) for name, value in request["headers"].items() if HEADERS.search(name)}
        kinds = roles_of_texts(request["body"], task)
        if name == "asks for a summary":
            # It stands last, and may quote the person and earlier summaries.
            asks = max((place for places in kinds.values() for place in places), default=None)
            kinds = {kind: [place for place in places if place != asks] for kind, places in kinds.items()} | {"asks": [asks]}
        shaped.append({"name": name, "number": at, "path": request["path"], "headers": headers, **kinds, "body": body})
    return {"client": recording["client"], "version": recording["version"], "dialect": recording["dialect"], "task": task, "requests": shaped}


def check(value):
    """A fixture may name nothing of the machine, and no foreign sentence."""
    text = json.dumps(value, ensure_ascii=False)
    left = MACHINE.findall(text)
    if left:
        raise SystemExit(f"paths of this machine are left: {sorted(set(left))[:5]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=pathlib.Path, nargs="+")
    parser.add_argument("--suffix", default="", help="put behind the client's name, for a second conversation of one client")
    parser.add_argument("--out", type=pathlib.Path, default=FIXTURES)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for path in arguments.recordings:
        shaped = fixture(json.loads(path.read_text()))
        check(shaped)
        out = arguments.out / f"{shaped['client']}{arguments.suffix}.json"
        out.write_text(json.dumps(shaped, ensure_ascii=False, indent=1) + "\n")
        print(f"{out.name}: {out.stat().st_size // 1024} KiB, " + "; ".join(f"{r['number']} {r['name']}" for r in shaped["requests"]))


if __name__ == "__main__":
    main()
