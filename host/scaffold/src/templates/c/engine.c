/* The engine @id@: keeps the first request and the newest turns. Between them, tool results are replaced by
 * one line each, and the oldest turns are left out if that is not enough. It is stateless. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctxhost_engine.h"

#define ID "@id@"
#define VERSION "0.1.0"

/* Old tool results up to this size are kept: 50 tokens are two or three lines. */
#define SHORT_RESULT_TOKENS 50

typedef struct {
    const ctxhost_api_v1 *api;
    ctxhost_host *host;
    uint64_t short_result_tokens;
} engine;

/* The state of one plan. A frame is a group that must stay together: calls with their results, or a single
 * entry. held[f] marks the pinned frame that starts at f. */
typedef struct {
    const engine *of;
    const ctxhost_transcript *t;
    uint64_t len, budget;
    unsigned char *held;
} work;

static uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static int entry_at(const work *w, uint64_t at, ctxhost_entry *e) {
    return w->of->api->t_entry(w->t, at, e, sizeof *e) == CTXHOST_OK;
}

/* Marks the pinned frames: rules, the first task, summaries, the newest user message, the newest frame. The
 * host reinserts missing ones, so their tokens must be part of the budget. */
static void hold(const work *w) {
    ctxhost_entry e;
    for (uint64_t at = 0; at < w->len && entry_at(w, at, &e); at++)
        if ((e.flags & CTXHOST_FLAG_PINNED) || e.kind == CTXHOST_KIND_COMPACTION_SUMMARY) w->held[e.frame] = 1;
    if (entry_at(w, w->of->api->t_newest_user_message(w->t), &e)) w->held[e.frame] = 1;
    if (w->len > 0 && entry_at(w, w->len - 1, &e)) w->held[e.frame] = 1;
}

/* The tokens of the pinned frames before a position. */
static uint64_t held_tokens(const work *w, uint64_t end) {
    uint64_t tokens = 0;
    ctxhost_entry e;
    for (uint64_t at = 0; at < end && entry_at(w, at, &e); at++)
        if (w->held[e.frame]) tokens += e.tokens;
    return tokens;
}

/* Writes the line that replaces an old tool result and returns its tokens; 0 for entries that are kept. */
static uint64_t line_for(const work *w, const ctxhost_entry *e, char *line, size_t size) {
    if (e->role != CTXHOST_ROLE_TOOL || e->tokens <= w->of->short_result_tokens) return 0;
    snprintf(line, size, "[an old tool result of %" PRIu32 " tokens was here]", e->tokens);
    uint64_t cost = w->of->api->count_tokens(w->of->host, ctxhost_text(""), ctxhost_text(line));
    return cost < e->tokens ? cost : 0;
}

/* The position of the first of the newest turns, which get a quarter to a half of the budget. It moves in
 * steps, so that most requests start with the bytes of the previous one, which the provider has cached. */
static uint64_t first_recent(const work *w) {
    const ctxhost_api_v1 *api = w->of->api;
    uint64_t total = api->t_tokens(w->t, 0, w->len), step = w->budget / 4 > 0 ? w->budget / 4 : 1;
    uint64_t before = minus((total + step - 1) / step * step, w->budget / 2);
    uint64_t tail = less(minus(total, before), minus(w->budget, held_tokens(w, w->len)));
    ctxhost_entry newest;
    uint64_t last = entry_at(w, w->len - 1, &newest) ? newest.frame : 0;
    return less(api->t_tail_within(w->t, tail), last);
}

/* Gives the rest of the budget to older turns, newest first, down to a safe cut. */
static uint64_t first_kept(const work *w, uint64_t recent) {
    uint64_t tail = w->of->api->t_tokens(w->t, recent, w->len), first = recent;
    uint64_t room = minus(less(minus(w->budget, tail), w->budget / 2), held_tokens(w, recent));
    char line[80];
    ctxhost_entry e;
    for (uint64_t at = recent; at > 0 && entry_at(w, at - 1, &e); at--) {
        if (w->held[e.frame]) continue;
        uint64_t line_cost = line_for(w, &e, line, sizeof line);
        uint64_t cost = line_cost > 0 ? line_cost : e.tokens;
        if (cost > room) break;
        room -= cost;
        if (e.frame == e.seq) first = e.seq;
    }
    return first;
}

static ctxhost_status answer(const work *w, ctxhost_answer *a) {
    const ctxhost_api_v1 *api = w->of->api;
    uint64_t recent = first_recent(w), first = first_kept(w, recent);
    char line[80];
    ctxhost_entry e;
    for (uint64_t at = 0; at < recent && entry_at(w, at, &e); at++) {
        int stays = w->held[e.frame];
        if (!stays && at < first) continue;
        if (!stays && line_for(w, &e, line, sizeof line) > 0) {
            api->plan_replace_text(a, at, ctxhost_text(line));
            api->plan_note(a, ctxhost_text("old results"), ctxhost_text("one line each"));
        } else {
            api->plan_keep(a, at, at + 1);
        }
    }
    return api->plan_keep(a, recent, w->len);
}

static ctxhost_status assemble(void *self, const ctxhost_transcript *t, const ctxhost_assemble_request *r,
                               ctxhost_answer *a) {
    work w = {self, t, 0, r->budget, NULL};
    w.len = w.of->api->t_len(t);
    if (w.of->api->t_tokens(t, 0, w.len) <= w.budget) return w.of->api->plan_keep(a, 0, w.len);
    w.held = calloc(w.len, 1);
    if (w.held == NULL) return CTXHOST_E_FAILED;
    hold(&w);
    ctxhost_status status = answer(&w, a);
    free(w.held);
    return status;
}

static ctxhost_status create(const ctxhost_api_v1 *api, ctxhost_host *host, ctxhost_str config, void **self,
                             ctxhost_answer *a) {
    int64_t tokens = SHORT_RESULT_TOKENS;
    ctxhost_status read = api->json_integer(config, ctxhost_text("/short_result_tokens"), &tokens);
    if ((read != CTXHOST_OK && read != CTXHOST_ABSENT) || tokens < 0)
        return api->set_error(a, CTXHOST_E_CONFIG, ctxhost_text("short_result_tokens must be a number from 0"),
                              ctxhost_text("{\"key\":\"short_result_tokens\"}"));
    engine *made = malloc(sizeof *made);
    if (made == NULL) return CTXHOST_E_FAILED;
    *made = (engine){api, host, (uint64_t)tokens};
    *self = made;
    return CTXHOST_OK;
}

static void dispose(void *self) { free(self); }

/* DELEGATES_COMPACTION: the bundled engine does manual compactions. */
static const ctxhost_engine_v1 ENGINE = {
    .struct_size = sizeof ENGINE,
    .flags = CTXHOST_THREAD_SAFE | CTXHOST_OWNS_COMPACTION | CTXHOST_DELEGATES_COMPACTION,
    .id = CTXHOST_STR(ID),
    .name = CTXHOST_STR("@name@"),
    .version = CTXHOST_STR(VERSION),
    .create = create,
    .assemble = assemble,
    .dispose = dispose,
};

const ctxhost_engine_v1 *context_engine_c_v1(void) { return &ENGINE; }
CTXHOST_ENGINE_META(ID, VERSION)
