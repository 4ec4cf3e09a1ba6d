// Polls /ui/state once a second and renders it. All strings are inserted as text, never as markup.
"use strict";

const EVERY_MS = 1000;
const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [600, 140];
const NEWEST_MARKS = 20;

const at = (id) => document.getElementById(id);
const number = (n) => n.toLocaleString("en");

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

function facts(live) {
  const list = element("dl");
  const fact = (name, value) => {
    if (value === null || value === undefined || value === "") return;
    const pair = element("div");
    pair.append(element("dt", "", name), element("dd", "", value));
    list.append(pair);
  };
  const last = live.curve.at(-1);
  fact("client", live.dialect);
  fact("model", live.model);
  fact("engine", live.fallback ? `${live.engine} (fallback: ${live.fallback})` : live.engine);
  fact("requests", number(live.requests));
  if (last) fact("budget used", `${Math.round(100 * last.tokens / Math.max(1, last.budget_tokens))} %`);
  if (last) fact("tokens", `${number(last.tokens)} of ${number(last.budget_tokens)}`);
  fact("compactions", number(live.compactions));
  fact("compacted", `${number(live.folded_tokens)} tokens`);
  if (live.prompt_tokens !== null) fact("prompt tokens", number(live.prompt_tokens));
  if (live.cache_read_tokens !== null) fact("from cache", number(live.cache_read_tokens));
  fact("last request", new Date(live.last_ms).toLocaleTimeString());
  return list;
}

function highest(points) {
  return Math.max(1, ...points.map((p) => Math.max(p.live_tokens, p.tokens, p.budget_tokens)));
}

function curve(live) {
  const points = live.curve;
  const label = `window usage of ${live.id} over ${points.length} requests`;
  const picture = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label,
    preserveAspectRatio: "none" });
  if (points.length === 0) return picture;
  const most = highest(points);
  const first = points[0].request;
  const span = Math.max(1, points.at(-1).request - first);
  const x = (request) => ((request - first) / span) * (WIDTH - 4) + 2;
  const y = (tokens) => HEIGHT - 4 - (tokens / most) * (HEIGHT - 8);
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
  return picture;
}

function legend(live) {
  const words = element("p", "legend");
  words.append(element("b", "sent", "sent"), ", conversation, ", element("b", "budget", "budget"),
    `, up to ${number(highest(live.curve))} tokens; vertical lines are compactions and failures`);
  return words;
}

function marks(all) {
  const list = element("ol", "marks");
  for (const mark of [...all].slice(-NEWEST_MARKS).reverse()) {
    const item = element("li");
    item.append(element("time", "", new Date(mark.at_ms).toLocaleTimeString()), " ",
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

function session(live) {
  const card = element("article");
  card.dataset.session = live.id;
  card.append(element("h3", "", live.id), facts(live), curve(live), legend(live), marks(live.marks));
  return card;
}

function show(all) {
  const isFallback = all.effective !== all.configured;
  at("slot").textContent = isFallback
    ? `engine ${all.effective} (fallback for ${all.configured})`
    : `engine ${all.effective}`;
  at("slot").className = isFallback ? "is-fallback" : "";
  at("nothing").hidden = all.sessions.length > 0;
  // Keep opened details open.
  const open = new Set([...document.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  at("sessions").replaceChildren(...[...all.sessions].reverse().map(session));
  for (const summary of document.querySelectorAll("details > summary")) {
    summary.parentElement.open = open.has(summary.textContent);
  }
  at("slot-marks").replaceChildren(...marks(all.marks).children);
  at("read").textContent = `Read ${new Date().toLocaleTimeString()}.`;
}

async function read() {
  try {
    const answer = await fetch("/ui/state", { cache: "no-store" });
    if (!answer.ok) throw new Error(`the gateway says ${answer.status}`);
    show(await answer.json());
  } catch (error) {
    at("read").textContent = `Not up to date: ${error.message}.`;
  }
  setTimeout(read, EVERY_MS);
}

read();
