"""The table of agents: what one run came to, and which targets it missed."""

import json

from dialects import tokens_of
from model import asks_for_summary

# Targets through the gateway (issue "Real agents keep what matters").
MIN_SHARE = 0.5
MIN_PREFIX = 0.8

COLUMNS = [
    "client", "version", "through", "window", "asked for", "requests", "errors", "sessions", "prefix kept", "window used", "trims",
    "request kept", "done",
]


def row(outcome):
    """One run as plain values."""
    main, side = outcome.sessions
    share = outcome.share_when_full
    return {
        "client": outcome.agent.name, "version": outcome.agent.version,
        "through": "gateway" if outcome.through_gateway else "direct", "window": outcome.window,
        "asked_output": max((record.request.max_output for record in outcome.main), default=0),
        "requests": len(outcome.exchanges), "errors": len(outcome.errors),
        "sessions": main, "side_sessions": side, "prefix_kept": round(outcome.prefix_kept, 3),
        "window_used": round(share, 3) if share is not None else None, "trims": outcome.trims,
        "task_kept": round(outcome.task_kept, 3), "is_done": outcome.is_done, "faults": outcome.faults[:5],
        "first_errors": outcome.errors[:3], "largest_client_share": round(max(outcome.client_shares, default=0.0), 2),
        "seconds": round(outcome.seconds), "compactions": outcome.counts.get("compaction.applied", 0),
        "head_tokens": tokens_of(outcome.main[0].request.head) if outcome.main else 0,
    }


def cells(outcome):
    values = row(outcome)
    is_gateway = outcome.through_gateway
    share = values["window_used"]
    sessions = f"{values['sessions']}" + (f" + {values['side_sessions']}" if values["side_sessions"] else "")
    return [
        values["client"], values["version"], values["through"], f"{values['window']:,}", f"{values['asked_output']:,}" if values["asked_output"] else "–",
        str(values["requests"]), str(values["errors"]), sessions if is_gateway else "–", f"{values['prefix_kept']:.2f}",
        "–" if share is None else f"{share:.2f}", str(values["trims"]) if is_gateway else "–", f"{values['task_kept']:.2f}",
        "yes" if values["is_done"] else "no",
    ]


def line(outcome):
    return ", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS[3:], cells(outcome)[3:])) + f", {outcome.seconds:.0f} s"


def missed(outcome, must_fill=True):
    """The targets that a run through the gateway missed, each with its numbers. An agent that compacts by itself need not fill its window."""
    values, words = row(outcome), []
    if values["errors"]:
        words.append(f"{values['errors']} errors reached the client: {values['first_errors']}")
    if values["sessions"] != 1:
        words.append(f"one conversation is in {values['sessions']} sessions")
    if values["prefix_kept"] < MIN_PREFIX:
        words.append(f"prefix kept {values['prefix_kept']} is below {MIN_PREFIX}")
    if values["window_used"] is None:
        words += ["the conversation never filled the window"] if must_fill else []
    elif values["window_used"] < MIN_SHARE:
        words.append(f"window used {values['window_used']} is below {MIN_SHARE}")
    if values["trims"]:
        words.append(f"{values['trims']} emergency trims")
    if values["faults"]:
        words.append(f"the model was sent what providers refuse: {values['faults']}")
    return words


def render(outcomes):
    """The table as Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cells(outcome))} |" for outcome in outcomes]
    return "\n".join(lines)


def write_bodies(outcome, path):
    """Every request of a run as its client sent it, for shape.py."""
    path.parent.mkdir(parents=True, exist_ok=True)
    client = {"client": outcome.agent.name, "version": outcome.agent.version, "dialect": outcome.agent.dialect}
    requests = [
        {"path": e.path, "headers": e.headers, "status": e.status, "asks": asks_for_summary(request, outcome.agent.is_chat), "body": e.body}
        for e, request in zip(outcome.exchanges, outcome.client_requests)
    ]
    path.write_text(json.dumps({**client, "requests": requests}))
