// Polls /ui/state once a second and renders what changed. All strings are inserted as text, never as markup.
"use strict";

const EVERY_MS = 1000;
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 140];
const NEWEST_MARKS = 20;
// Of the end: an id begins with its time, which conversations of the same minute share.
const SHORT_ID_CHARS = 8;

const at = (id) => document.getElementById(id);
const number = (n) => n.toLocaleString("en");
const percent = (part, whole) => `${Math.round((100 * part) / Math.max(1, whole))}%`;
const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const time = (ms) => new Date(ms).toLocaleTimeString();

function element(name, className, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function svgElement(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// Unchanged text is left alone: screen readers announce what is written.
function write(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

function facts(live) {
  const list = element("dl");
  const fact = (name, value) => {
    if (value === null || value === undefined || value === "") return;
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    list.append(pair);
  };
  const last = live.curve.at(-1);
  fact("model", live.model);
  fact("engine", live.fallback ? `${live.engine} (fallback: ${live.fallback})` : live.engine);
  fact("requests", number(live.requests + live.unshaped));
  if (live.unshaped > 0) fact("unshaped", `${number(live.unshaped)}, for reasons in the gateway's log`);
  if (last) {
    fact("budget used", `${percent(last.tokens, last.budget_tokens)}, ${number(last.tokens)} of ${number(last.budget_tokens)} tokens`);
  }
  fact("compactions", number(live.compactions));
  if (live.saved_tokens > 0) fact("not sent", `${number(live.saved_tokens)} tokens`);
  if (live.prompt_tokens !== null) {
    const cached = live.cache_read_tokens ? `, ${percent(live.cache_read_tokens, live.prompt_tokens)} from cache` : "";
    fact("last prompt, billed", `${number(live.prompt_tokens)} tokens${cached}`);
  }
  fact("last request", time(live.last_ms));
  return list;
}

// Of all points that are shown: with the budget of the newest alone, the lines of a larger window before leave the plot.
function highest(points) {
  return Math.max(1, ...points.map((p) => Math.max(p.live_tokens, p.tokens, p.budget_tokens)));
}

function curve(live) {
  const points = live.curve;
  const last = points.at(-1);
  const label = `window usage of ${name(live)} over ${points.length} requests, now ${number(last.tokens)} of `
    + `${number(last.budget_tokens)} tokens`;
  const picture = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label,
    preserveAspectRatio: "none" });
  const most = highest(points);
  const first = points[0].request;
  const span = Math.max(1, last.request - first);
  const x = (request) => ((request - first) / span) * (WIDTH - 4) + 2;
  const y = (tokens) => HEIGHT - (tokens / most) * (HEIGHT - 4);
  const line = (className, of) => {
    const path = points.map((p) => `${x(p.request).toFixed(1)},${y(of(p)).toFixed(1)}`);
    // A single request is drawn as a horizontal line.
    if (path.length === 1) path.push(`${WIDTH - 2},${y(of(points[0])).toFixed(1)}`);
    picture.append(svgElement("polyline", { class: className, points: path.join(" ") }));
  };
  for (const mark of live.marks) {
    if (mark.request + 1 < first) continue;
    // Drawn before the request that it was made for.
    const where = x(Math.min(mark.request + (mark.kind === "fallback" ? 0 : 0.5), first + span));
    picture.append(svgElement("line", { class: `mark ${mark.kind}`, x1: where, x2: where, y1: 0, y2: HEIGHT }));
  }
  line("budget", (p) => p.budget_tokens);
  line("live", (p) => p.live_tokens);
  line("sent", (p) => p.tokens);
  const axis = element("div", "axis");
  for (const tokens of [most, Math.round(most / 2), 0]) axis.append(element("span", "", number(tokens)));
  const below = element("div", "below");
  below.append(element("span", "", `request ${number(first)}`));
  if (last.request !== first) below.append(element("span", "", number(last.request)));
  const plot = element("div", "plot");
  plot.append(axis, picture, below);
  return plot;
}

function legend() {
  const words = element("p", "legend");
  words.append("Estimated tokens: ", element("b", "sent", "sent"), ", ", element("b", "live", "before the engine"), ", ",
    element("b", "budget", "budget"), ". Vertical lines are compactions, dashed ones failures.");
  return words;
}

function marks(all) {
  const list = element("ol", "marks");
  for (const mark of [...all].slice(-NEWEST_MARKS).reverse()) {
    const item = element("li");
    item.append(element("time", "", time(mark.at_ms)), " ",
      element("span", `kind ${mark.kind}`, mark.kind), " ", mark.words);
    if (mark.dropped) item.append(dropped(mark.dropped));
    list.append(item);
  }
  return list;
}

function dropped(all) {
  const roles = Object.entries(all.roles).map(([role, count]) => `${number(count)} ${role}`).join(", ");
  const words = `dropped ${number(all.entries)} entries of ${number(all.tokens)} tokens: ${roles}`;
  if (all.excerpts.length === 0) return element("div", "dropped", words);
  const details = element("details", "dropped");
  details.append(element("summary", "", words));
  for (const excerpt of all.excerpts) details.append(element("div", "", excerpt));
  return details;
}

function name(live) {
  if (live.title) return live.title;
  const client = live.client || live.dialect || "conversation";
  return live.folder ? `${client} in ${live.folder}` : `${client} ${live.id.slice(-SHORT_ID_CHARS)}`;
}

function session(live) {
  const card = element("article");
  card.dataset.session = live.id;
  const title = element("h3", "", name(live));
  title.id = `session-${live.id}`;
  card.setAttribute("aria-labelledby", title.id);
  const origin = live.title ? [live.client, live.folder, live.id] : [live.id];
  card.append(title, element("p", "id", origin.filter((part) => part).join(" · ")), facts(live));
  if (live.curve.length > 0) card.append(curve(live), legend());
  card.append(marks(live.marks));
  return card;
}

// The rendered cards by session, with the JSON that they show.
const cards = new Map();

function showSessions(sessions) {
  const list = at("sessions");
  const ids = new Set(sessions.map((live) => live.id));
  for (const [id, card] of cards) {
    if (!ids.has(id)) {
      card.node.remove();
      cards.delete(id);
    }
  }
  // The session that was used last comes first.
  [...sessions].reverse().forEach((live, index) => {
    const json = JSON.stringify(live);
    const old = cards.get(live.id);
    let node = old?.node;
    if (old?.json !== json) {
      node = session(live);
      if (old) replaceCard(old.node, node);
      cards.set(live.id, { json, node });
    }
    if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
  });
}

// Keeps opened details open, and the focus on its summary.
function replaceCard(old, card) {
  const summaries = (of) => [...of.querySelectorAll("details > summary")];
  const open = new Set(summaries(old).filter((it) => it.parentElement.open).map((it) => it.textContent));
  const focused = old.contains(document.activeElement) ? document.activeElement.textContent : null;
  old.replaceWith(card);
  for (const summary of summaries(card)) {
    summary.parentElement.open = open.has(summary.textContent);
    if (summary.textContent === focused) summary.focus();
  }
}

function showSlot(all) {
  const { configured, active, reason, canary } = all.slot;
  const isFallback = active !== configured;
  let words = `engine ${active}`;
  if (isFallback) words += ` (fallback for ${configured}${reason ? `: ${reason}` : ""})`;
  if (all.rolled_back) words += ` (${all.rolled_back})`;
  if (canary) words += `, canary ${canary.engine} on ${canary.share} of new sessions`;
  write("slot", words);
  at("slot").className = isFallback || all.rolled_back ? "is-fallback" : "";
}

function showTotals(totals) {
  const { usage } = totals;
  const full = totals.sent_tokens + totals.saved_tokens;
  const prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
  const isBilled = usage.responses > 0;
  const rows = [
    ["Requests", number(totals.requests),
      `${count(totals.compactions, "compaction")}, ${count(totals.fallbacks, "fallback")}`
        + (totals.unshaped > 0 ? `, ${number(totals.unshaped)} unshaped` : "")],
    ["Not sent, thanks to shaping", `${number(totals.saved_tokens)} tokens`,
      full > 0 ? `${percent(totals.saved_tokens, full)} of the full histories, ${number(full)} tokens (estimated)` : ""],
    ["Billed, as providers counted", isBilled ? `${number(prompt)} prompt tokens` : "not known",
      isBilled ? `${number(usage.cache_read_tokens)} read from cache, ${number(usage.cache_write_tokens)} written to cache; `
        + `${number(usage.output_tokens)} answer tokens` : "no response with a usage yet"],
    ["Cost", "not known", "ctxhost has no prices; your providers bill the counts beside this"],
  ];
  at("totals").replaceChildren(...rows.map(([title, value, note]) => {
    const pair = element("div");
    const what = element("dd", "", value);
    if (note) what.append(element("small", "", note));
    pair.append(element("dt", "", title), what);
    return pair;
  }));
}

function show(all) {
  showSlot(all);
  showTotals(all.totals);
  at("nothing").hidden = all.sessions.length > 0;
  showSessions(all.sessions);
  at("slot-section").hidden = all.marks.length === 0;
  at("slot-marks").replaceChildren(...marks(all.marks).children);
  const hidesText = all.sessions.length > 0 && all.sessions.every((live) => !live.title);
  write("text-note", hidesText ? "Set telemetry.log_content to see what conversations are about." : "");
}

function problem(words) {
  at("problem").hidden = !words;
  write("problem", words);
  at("main").classList.toggle("is-stale", words !== "");
}

let shown = "";
let read_ms = 0;

async function read() {
  let again = true;
  try {
    const answer = await fetch("/ui/state", { cache: "no-store" });
    if (answer.status === 401) {
      again = false;
      throw new Error("The gateway was restarted, which ends logins. Run `ctxhost ui` for a new link.");
    }
    if (!answer.ok) throw new Error(`The gateway answers with status ${answer.status}. Retrying.`);
    const text = await answer.text();
    // Most readings change nothing.
    if (text !== shown) show(JSON.parse(text));
    [shown, read_ms] = [text, Date.now()];
    problem("");
    write("read", `Read ${time(read_ms)}.`);
  } catch (error) {
    const isNetwork = error instanceof TypeError;
    const words = isNetwork ? `The gateway at ${location.host} does not answer. Retrying.` : error.message;
    problem(read_ms ? `${words} Everything below is from ${time(read_ms)}.` : words);
  }
  if (again) setTimeout(read, EVERY_MS);
}

at("variables").textContent = [
  `ANTHROPIC_BASE_URL=${location.origin}`,
  `OPENAI_BASE_URL=${location.origin}/v1`,
  `GOOGLE_GEMINI_BASE_URL=${location.origin}`,
].join("\n");
read();
