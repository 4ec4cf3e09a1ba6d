/* A context engine for ctxhost in C: a sliding window of the newest whole turns that fit.
 *
 * Pinned entries (the system prompt, the first task) and the newest user message are always kept. The window
 * never starts between a call and its result, and if possible it starts with a user message. It moves in
 * steps, so that the provider's prompt cache is valid for many requests. */
#include <stdlib.h>

#include "ctxhost_engine.h"

#define ID "c-window"
#define VERSION "0.1.0"

/* The size of a step, in percent of the budget. Default 20: one move per fifth of the budget. */
#define STEP_PERCENT 20

typedef struct {
    const ctxhost_api_v1 *api;
    int64_t step_percent;
} window;

static ctxhost_status create(const ctxhost_api_v1 *api, ctxhost_host *host, ctxhost_str config, void **engine,
                             ctxhost_answer *a) {
    (void)host;
    int64_t step = STEP_PERCENT;
    ctxhost_status read = api->json_integer(config, (ctxhost_str)CTXHOST_STR("/step_percent"), &step);
    if ((read != CTXHOST_OK && read != CTXHOST_ABSENT) || step < 0 || step > 90)
        return api->set_error(a, CTXHOST_E_CONFIG, ctxhost_text("step_percent must be a number from 0 to 90"),
                              ctxhost_text("{\"key\":\"step_percent\"}"));
    window *made = malloc(sizeof *made);
    if (made == NULL) return CTXHOST_E_FAILED;
    made->api = api;
    made->step_percent = step;
    *engine = made;
    return CTXHOST_OK;
}

static void dispose(void *engine) { free(engine); }

/* Whether a turn starts here: a user message at a safe cut. */
static int begins_turn(const ctxhost_entry *e) {
    return e->role == CTXHOST_ROLE_USER && e->kind == CTXHOST_KIND_MESSAGE && e->frame == e->seq &&
           (e->flags & CTXHOST_FLAG_HEARTBEAT) == 0;
}

/* Whether the host would reinsert the entry. */
static int is_pinned(const ctxhost_entry *e, uint64_t newest_user) { return (e->flags & CTXHOST_FLAG_PINNED) || e->seq == newest_user; }

/* The first position of the window if it may have `room` tokens. */
static uint64_t first_of_window(const window *w, const ctxhost_transcript *t, uint64_t room, uint64_t budget) {
    uint64_t len = w->api->t_len(t), total = w->api->t_tokens(t, 0, len);
    uint64_t step = budget / 100 * (uint64_t)w->step_percent, over = total > room ? total - room : 0;
    if (step > 0) over = (over + step - 1) / step * step;
    uint64_t first = w->api->t_tail_within(t, over < total ? total - over : 0);

    /* The newest frame is kept even if it does not fit; the host then trims the request. */
    ctxhost_entry e;
    if (first >= len && w->api->t_entry(t, len - 1, &e, sizeof e) == CTXHOST_OK) return e.frame;
    for (uint64_t at = first; w->api->t_entry(t, at, &e, sizeof e) == CTXHOST_OK; at++)
        if (begins_turn(&e)) return at;
    return first;
}

static ctxhost_status assemble(void *engine, const ctxhost_transcript *t, const ctxhost_assemble_request *r,
                               ctxhost_answer *a) {
    const window *w = engine;
    const ctxhost_api_v1 *api = w->api;
    uint64_t len = api->t_len(t);
    if (api->t_tokens(t, 0, len) <= r->budget) return api->plan_keep(a, 0, len);

    uint64_t pinned = 0, newest_user = api->t_newest_user_message(t);
    ctxhost_entry e;
    for (uint64_t at = 0; api->t_entry(t, at, &e, sizeof e) == CTXHOST_OK; at++)
        if (is_pinned(&e, newest_user)) pinned += e.tokens;
    uint64_t first = first_of_window(w, t, r->budget > pinned ? r->budget - pinned : 0, r->budget);
    for (uint64_t at = 0; at < first && api->t_entry(t, at, &e, sizeof e) == CTXHOST_OK; at++)
        if (is_pinned(&e, newest_user)) api->plan_keep(a, at, at + 1);
    return api->plan_keep(a, first, len);
}

static const ctxhost_engine_v1 ENGINE = {
    .struct_size = sizeof ENGINE,
    .flags = CTXHOST_THREAD_SAFE | CTXHOST_DELEGATES_COMPACTION,
    .id = CTXHOST_STR(ID),
    .name = CTXHOST_STR("Sliding window in C"),
    .version = CTXHOST_STR(VERSION),
    .create = create,
    .assemble = assemble,
    .dispose = dispose,
};

const ctxhost_engine_v1 *context_engine_c_v1(void) { return &ENGINE; }
CTXHOST_ENGINE_META(ID, VERSION)
