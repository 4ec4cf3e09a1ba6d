/* ctxhost_engine.h: the contract of context engines for ctxhost, for C and languages with a C ABI.
 *
 * EXPERIMENTAL. Names and rules may change with a minor version of ctxhost; released tables of
 * `context_engine_c_v1` only grow at their end.
 *
 * An engine is a shared library that defines
 *
 *     CTXHOST_ENGINE_META("my-engine", "0.1.0")                   metadata, read without loading it
 *     const ctxhost_engine_v1 *context_engine_c_v1(void) { ... }  the table of its functions
 *
 * RULES
 *
 *  1. Tables and requests begin with `struct_size` and grow at their end only. Before reading a field
 *     that was added later, test for it: CTXHOST_HAS(table, field). Structs that are written with a
 *     `size` argument may grow as well; all others are frozen.
 *  2. Memory is never freed by the other side. What the host passes (strings, requests, transcript,
 *     answer) is valid until the engine's function returns. What an engine passes is copied before
 *     the host's function returns.
 *  3. Strings are a pointer and a length in UTF-8, not zero-terminated. The host validates them: an
 *     answer that is not UTF-8 fails the call. Blobs are arbitrary bytes.
 *  4. Functions of an engine may block. The host calls each on a thread of its own. With
 *     CTXHOST_THREAD_SAFE, calls for different sessions run concurrently; otherwise the host makes one
 *     call at a time, and a compaction that waits for a model delays every other session.
 *  5. Functions of the host may be called from any thread until `dispose` returns, and may block.
 *     Afterwards they return CTXHOST_E_DEAD. Threads of the engine must end in `dispose`.
 *  6. A cancelled call runs until it returns; its services return CTXHOST_E_CANCELLED at once. Long
 *     loops must poll `is_cancelled`. If a function does not return, the engine is quarantined and the
 *     thread is lost.
 *  7. No exception, longjmp or signal may leave a function of the engine. Faults end the process,
 *     unless the host runs the engine in a process of its own.
 */
#ifndef CTXHOST_ENGINE_H
#define CTXHOST_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ versions */

/* Major version of the engine ABI, for all languages. */
#define CTXHOST_ABI_MAJOR 1u
/* Version of the engine API that this header belongs to. */
#define CTXHOST_API_VERSION "1.1.0"
/* Its minor version. */
#define CTXHOST_API_MINOR "1"

/* Whether a table of the other side has a field. */
#define CTXHOST_HAS(table, field) \
    ((table)->struct_size >= (size_t)((const char *)(&(table)->field + 1) - (const char *)(table)))

/* ------------------------------------------------------------------ basic types */

/* 0, or an error kind. Unknown numbers are errors of an unknown kind. */
typedef uint32_t ctxhost_status;

#define CTXHOST_OK 0u
#define CTXHOST_E_FAILED 1u           /* the call failed */
#define CTXHOST_E_CONFIG 2u           /* a setting is wrong; detail: {"key":"path.of.the.setting"} */
#define CTXHOST_E_WINDOW_TOO_SMALL 3u /* the host tries the next model */
#define CTXHOST_E_UNSUPPORTED 4u      /* not implemented; the host uses its default */
#define CTXHOST_E_CANNOT_FIT 5u       /* the pinned entries exceed the budget */
#define CTXHOST_E_PANICKED 100u
#define CTXHOST_E_CANCELLED 101u      /* the call was cancelled; not a failure */
#define CTXHOST_E_DEADLINE 102u
#define CTXHOST_E_DEAD 103u           /* after dispose */
#define CTXHOST_E_PROTOCOL 104u       /* the other side sent invalid data */
#define CTXHOST_E_MODEL_MISSING 200u  /* no model is configured */
#define CTXHOST_E_MODEL_AUTH 201u
#define CTXHOST_E_MODEL_DENIED 202u
#define CTXHOST_E_MODEL_TIMEOUT 203u
#define CTXHOST_E_MODEL_EMPTY 204u
#define CTXHOST_E_MODEL_LENGTH 205u
#define CTXHOST_E_MODEL_RATE_LIMITED 206u
#define CTXHOST_E_MODEL_OVERFLOW 207u
#define CTXHOST_E_MODEL_TOOL_CALL 208u
#define CTXHOST_E_MODEL_FAILED 209u
#define CTXHOST_E_STORE 300u          /* the host's store failed */
/* Returned by host functions only: the value does not exist. Not an error. */
#define CTXHOST_ABSENT 900u

/* A text: `len` bytes of UTF-8 at `ptr`, which may be NULL if `len` is 0. */
typedef struct ctxhost_str {
    const char *ptr;
    size_t len;
} ctxhost_str;

/* A text from a literal, for initialisers: `ctxhost_str s = CTXHOST_STR("window");` */
#define CTXHOST_STR(literal) { (literal), sizeof(literal) - 1 }

/* A callback that receives a text, valid until it returns. `into` is the argument of the caller. */
typedef void (*ctxhost_sink)(void *into, ctxhost_str text);

typedef struct ctxhost_host ctxhost_host;             /* the host's services; valid from create to dispose */
typedef struct ctxhost_transcript ctxhost_transcript; /* an immutable snapshot; valid for one call */
typedef struct ctxhost_answer ctxhost_answer;         /* the result of one call; valid for that call */

/* ctxhost_entry.role, plan_insert */
#define CTXHOST_ROLE_UNKNOWN 0u
#define CTXHOST_ROLE_SYSTEM 1u
#define CTXHOST_ROLE_USER 2u
#define CTXHOST_ROLE_ASSISTANT 3u
#define CTXHOST_ROLE_TOOL 4u

/* ctxhost_entry.kind; treat an entry of an unknown kind as opaque and keep it */
#define CTXHOST_KIND_UNKNOWN 0u
#define CTXHOST_KIND_MESSAGE 1u
#define CTXHOST_KIND_COMPACTION_SUMMARY 2u
#define CTXHOST_KIND_BRANCH_SUMMARY 3u
#define CTXHOST_KIND_CUSTOM 4u
#define CTXHOST_KIND_BASH 5u

/* ctxhost_entry.flags */
#define CTXHOST_FLAG_TOOL_CALLS 1u    /* calls at least one tool */
#define CTXHOST_FLAG_IMAGES 2u        /* contains at least one image */
#define CTXHOST_FLAG_ERROR 4u         /* the result of a failed tool */
#define CTXHOST_FLAG_ABORTED 8u       /* was aborted or ended in an error */
#define CTXHOST_FLAG_THINKING 16u     /* contains thinking: keep it byte for byte or drop it */
#define CTXHOST_FLAG_ORPHAN 32u       /* a result without its call; cannot be sent */
#define CTXHOST_FLAG_SYNTHETIC 64u    /* written by an engine or the host */
#define CTXHOST_FLAG_REPLACED 128u    /* its text was replaced by an earlier compaction */
#define CTXHOST_FLAG_PINNED 256u      /* must be kept: system entries, the first task */
#define CTXHOST_FLAG_HEARTBEAT 512u   /* a heartbeat instead of the user */
#define CTXHOST_FLAG_UNANSWERED 1024u /* has a call without a result */
#define CTXHOST_FLAG_DISPLACED 2048u  /* a result that does not directly follow its call */

/* ctxhost_compact_request.trigger */
#define CTXHOST_TRIGGER_UNKNOWN 0u
#define CTXHOST_TRIGGER_THRESHOLD 1u /* the next request would exceed its budget */
#define CTXHOST_TRIGGER_OVERFLOW 2u  /* the provider rejected a request as too large */
#define CTXHOST_TRIGGER_MANUAL 3u    /* the user asked for it */
#define CTXHOST_TRIGGER_TIMEOUT 4u   /* the provider timed out with a nearly full window */
#define CTXHOST_TRIGGER_BYTES 5u     /* the session file exceeded its size limit */

/* ctxhost_spawn_request.context_mode */
#define CTXHOST_CONTEXT_ISOLATED 0u
#define CTXHOST_CONTEXT_FORK 1u

/* ctxhost_spawn_end.reason */
#define CTXHOST_END_UNKNOWN 0u
#define CTXHOST_END_COMPLETED 1u
#define CTXHOST_END_DELETED 2u
#define CTXHOST_END_SWEPT 3u
#define CTXHOST_END_RELEASED 4u

/* log */
#define CTXHOST_LOG_ERROR 1u
#define CTXHOST_LOG_WARN 2u
#define CTXHOST_LOG_INFO 3u
#define CTXHOST_LOG_DEBUG 4u
#define CTXHOST_LOG_TRACE 5u

/* ctxhost_completion.purpose */
#define CTXHOST_PURPOSE_OTHER 0u
#define CTXHOST_PURPOSE_SUMMARY 1u
#define CTXHOST_PURPOSE_MEMORY_FLUSH 2u
#define CTXHOST_PURPOSE_QUALITY 3u

/* ctxhost_embed_request.purpose */
#define CTXHOST_EMBED_OTHER 0u
#define CTXHOST_EMBED_QUERY 1u    /* texts that are searched for */
#define CTXHOST_EMBED_DOCUMENT 2u /* texts that are found */

/* ctxhost_embed_request */
#define CTXHOST_EMBED_MAX_TEXTS 256u
#define CTXHOST_EMBED_MAX_BYTES 1048576u

/* An unknown time. */
#define CTXHOST_NO_TIME INT64_MIN
/* No position. */
#define CTXHOST_NO_ENTRY UINT64_MAX

/* ------------------------------------------------------------------ data of the host */

/* One entry of a transcript. */
typedef struct ctxhost_entry {
    uint64_t seq;           /* position in this snapshot, from 0 without gaps; plans refer to it */
    int64_t timestamp_ms;   /* milliseconds since 1970; 0 when unknown */
    uint64_t frame;         /* nearest position at or before it where a cut does not separate a call from
                               its result; a kept range may start here if frame == seq */
    uint64_t tokens_before; /* tokens of all entries before it */
    uint32_t tokens;        /* the host's estimate, without margin */
    uint16_t flags;         /* CTXHOST_FLAG_* */
    uint8_t role;           /* CTXHOST_ROLE_* */
    uint8_t kind;           /* CTXHOST_KIND_* */
    ctxhost_str id;         /* in the session file; stable across compactions and restarts */
    ctxhost_str parent_id;  /* the previous entry; empty for the first */
    ctxhost_str text;       /* all text blocks, joined by newlines, without thinking and calls */
    ctxhost_str raw;        /* JSON of the message, Pi session v3 */
} ctxhost_entry;

/* A tool call of an assistant entry. */
typedef struct ctxhost_tool_call {
    ctxhost_str id;
    ctxhost_str name;
    ctxhost_str arguments_json; /* an object; `{}` if there are none */
} ctxhost_tool_call;

/* The head of a tool entry. */
typedef struct ctxhost_tool_result {
    ctxhost_str call_id; /* the call it answers */
    ctxhost_str tool;    /* name of the tool; empty if unknown */
    uint32_t is_error;   /* 1 if the tool failed */
    uint32_t reserved;
} ctxhost_tool_result;

/* The session of a call. */
typedef struct ctxhost_session {
    ctxhost_str id;  /* opaque; do not use it as a path */
    ctxhost_str key; /* a name that outlives the file; may be empty */
} ctxhost_session;

/* The model of a request. */
typedef struct ctxhost_model {
    ctxhost_str provider;
    ctxhost_str id;
    uint64_t window_tokens; /* the whole window, in provider tokens; 0 when unknown */
} ctxhost_model;

/* ------------------------------------------------------------------ requests */

/* A session starts, or is reopened. */
typedef struct ctxhost_bootstrap_request {
    size_t struct_size;
    uint64_t call; /* id of this call for is_cancelled, remaining_ms, progress and complete */
    ctxhost_session session;
} ctxhost_bootstrap_request;

/* New entries: positions from <= seq < to. The same range may be repeated. */
typedef struct ctxhost_ingest_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    uint64_t from;
    uint64_t to;
    uint32_t is_heartbeat;
    uint32_t reserved;
} ctxhost_ingest_request;

/* A request for the plan of the next model request. */
typedef struct ctxhost_assemble_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    uint64_t budget;          /* size limit of the plan, in estimated tokens */
    uint64_t reserve_tokens;  /* reserve for the answer, in provider tokens */
    ctxhost_str prompt;       /* about to be answered; empty inside a tool loop */
    ctxhost_model model;
    const ctxhost_str *tools; /* names of the tools the model may call */
    size_t tools_len;
    int64_t now_ms;           /* the host's clock; recorded time in a replay */
} ctxhost_assemble_request;

/* A request to shrink the live transcript. */
typedef struct ctxhost_compact_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    uint64_t budget;                 /* size limit of the result, in estimated tokens */
    uint64_t reserve_tokens;
    uint64_t current_tokens;         /* current size of the live transcript */
    uint32_t trigger;                /* CTXHOST_TRIGGER_* */
    uint32_t force;                  /* 1: compact even below every threshold */
    ctxhost_str custom_instructions; /* of the user: untrusted text; may be empty */
    ctxhost_model model;
    uint32_t attempt;                /* 1, increasing with each attempt that made too little progress */
    uint32_t reserved;
    int64_t now_ms;
} ctxhost_compact_request;

/* A turn succeeded: its entries are from <= seq < to. */
typedef struct ctxhost_after_turn_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    uint64_t from;
    uint64_t to;
    uint64_t budget;
    uint64_t provider_tokens; /* the provider's count of the last request; 0 if unknown */
    uint32_t is_heartbeat;
    uint32_t reserved;
    int64_t now_ms;
} ctxhost_after_turn_request;

/* A turn is final. Sent at least once; a repeat has the same key and must change nothing. */
typedef struct ctxhost_commit_turn_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    ctxhost_str advancement_key;
    uint64_t from;
    uint64_t to;
} ctxhost_commit_turn_request;

/* A request for background maintenance. */
typedef struct ctxhost_maintain_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    ctxhost_str reason; /* bootstrap, turn, compaction, or one of a newer host */
} ctxhost_maintain_request;

/* A sub-agent is about to start. */
typedef struct ctxhost_spawn_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session parent;
    ctxhost_session child;
    uint64_t ttl_ms;       /* how long to keep the preparation; 0 for no limit */
    uint32_t context_mode; /* CTXHOST_CONTEXT_* */
    uint32_t reserved;
} ctxhost_spawn_request;

/* A prepared spawn failed: undo the preparation with this token. */
typedef struct ctxhost_rollback_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_str token;
} ctxhost_rollback_request;

/* A sub-agent ended. */
typedef struct ctxhost_spawn_end {
    size_t struct_size;
    uint64_t call;
    ctxhost_session child;
    uint32_t reason; /* CTXHOST_END_* */
    uint32_t reserved;
} ctxhost_spawn_end;

/* The model called one of the engine's tools. */
typedef struct ctxhost_tool_request {
    size_t struct_size;
    uint64_t call;
    ctxhost_session session;
    ctxhost_str name;
    ctxhost_str arguments_json;
} ctxhost_tool_request;

/* A request for text from a model, written by the engine. Zero unused fields. */
typedef struct ctxhost_completion {
    size_t struct_size;
    uint32_t purpose;           /* CTXHOST_PURPOSE_* */
    uint32_t has_temperature;   /* 0: the model's default */
    double temperature;         /* 0.0 to 2.0 */
    uint64_t max_output_tokens; /* 0: the model's default */
    ctxhost_str model;          /* empty for the one configured for the purpose */
    ctxhost_str system;
    ctxhost_str prompt;
    ctxhost_str session;        /* id of the session whose last request `continuation` extends */
    ctxhost_str continuation;   /* a shorter prompt, appended to that cached request */
} ctxhost_completion;

/* A request for vectors of texts, written by the engine. Zero unused fields. */
typedef struct ctxhost_embed_request {
    size_t struct_size;
    uint32_t purpose; /* CTXHOST_EMBED_* */
    uint32_t reserved;
    const ctxhost_str *texts; /* at most CTXHOST_EMBED_MAX_TEXTS, of CTXHOST_EMBED_MAX_BYTES in all */
    size_t texts_len;
} ctxhost_embed_request;

/* The vectors of texts, in the order of the request. */
typedef struct ctxhost_embeddings {
    size_t struct_size;
    ctxhost_str model;   /* vectors of different models are not comparable */
    size_t count;        /* number of vectors */
    size_t dimensions;   /* numbers per vector */
    const float *values; /* count * dimensions finite numbers */
} ctxhost_embeddings;

/* A callback that receives vectors, valid until it returns. */
typedef void (*ctxhost_embeddings_sink)(void *into, const ctxhost_embeddings *embeddings);

/* The state of the provider's prompt cache. */
typedef struct ctxhost_prompt_cache {
    int64_t last_touch_ms; /* when the last request began; CTXHOST_NO_TIME before the first */
    int64_t expires_ms;    /* when the cached prefix expires; CTXHOST_NO_TIME when unknown */
    uint64_t read_tokens;  /* of the last request, in provider tokens */
    uint64_t write_tokens;
    uint32_t broke;        /* 1: the last request lost a cached prefix */
    uint32_t reserved;
} ctxhost_prompt_cache;

/* An entry of the session's history. */
typedef struct ctxhost_history_entry {
    size_t struct_size;
    ctxhost_str id;
    ctxhost_str role; /* its name: user, assistant, tool, system */
    ctxhost_str text;
    int64_t timestamp_ms;
    uint64_t tokens;
} ctxhost_history_entry;

/* A callback that receives an entry, valid until it returns. */
typedef void (*ctxhost_history_sink)(void *into, const ctxhost_history_entry *entry);

/* ------------------------------------------------------------------ functions of the host */

/* Functions of the host. The table is valid for the life of the process.
 *
 * `last_error` has the message of a failed status. NULL for a handle or an `out` is CTXHOST_E_PROTOCOL,
 * or 0 for functions that return a number.
 */
typedef struct ctxhost_api_v1 {
    size_t struct_size;

    /* -- the transcript of a call -- */

    /* Number of entries. */
    uint64_t (*t_len)(const ctxhost_transcript *t);
    /* Increments at each compaction; stored positions are then stale. */
    uint64_t (*t_epoch)(const ctxhost_transcript *t);
    /* Copies an entry: at most `size` bytes, which is sizeof *out. ABSENT past the end. */
    ctxhost_status (*t_entry)(const ctxhost_transcript *t, uint64_t seq, ctxhost_entry *out, size_t size);
    /* Tokens of from <= seq < to, in constant time. */
    uint64_t (*t_tokens)(const ctxhost_transcript *t, uint64_t from, uint64_t to);
    /* Nearest position at or before `seq` where a cut does not separate a call from its result. */
    uint64_t (*t_cut_at_or_before)(const ctxhost_transcript *t, uint64_t seq);
    /* Nearest such position at or after `seq`; the length if there is none. */
    uint64_t (*t_cut_at_or_after)(const ctxhost_transcript *t, uint64_t seq);
    /* First such position from which the rest has at most `budget` tokens. */
    uint64_t (*t_tail_within)(const ctxhost_transcript *t, uint64_t budget);
    /* Position of the newest user message, or CTXHOST_NO_ENTRY. */
    uint64_t (*t_newest_user_message)(const ctxhost_transcript *t);
    /* The call number `index` of an assistant entry. ABSENT past the last. Parses the entry. */
    ctxhost_status (*t_tool_call)(const ctxhost_transcript *t, uint64_t seq, size_t index,
                                  ctxhost_tool_call *out, size_t size);
    /* The head of a tool entry. ABSENT for other roles. Parses the entry. */
    ctxhost_status (*t_tool_result)(const ctxhost_transcript *t, uint64_t seq,
                                    ctxhost_tool_result *out, size_t size);

    /* -- the answer of a call: a plan, for assemble and compact -- */

    /* Keeps from <= seq < to. plan_keep(a, 0, 0) makes a plan that keeps nothing. */
    ctxhost_status (*plan_keep)(ctxhost_answer *a, uint64_t from, uint64_t to);
    /* Keeps an entry with other text; keeps calls, ids and role, drops thinking. */
    ctxhost_status (*plan_replace_text)(ctxhost_answer *a, uint64_t seq, ctxhost_str text);
    /* Keeps an entry with other JSON of the same role and the same call ids. The host refuses JSON that a request
     * cannot be written from, such as half of a surrogate pair, and more than 64 nested lists and objects unless the
     * entry has as many. */
    ctxhost_status (*plan_replace_raw)(ctxhost_answer *a, uint64_t seq, ctxhost_str raw);
    /* Inserts a message of USER or ASSISTANT that replaces from <= seq < to. The host moves one behind the
     * user's message or the tool round that the transcript ends with before it. */
    ctxhost_status (*plan_insert)(ctxhost_answer *a, uint32_t role, ctxhost_str text, uint64_t from, uint64_t to);
    /* Leaves a range out explicitly; entries without an operation are left out anyway. */
    ctxhost_status (*plan_leave_out)(ctxhost_answer *a, uint64_t from, uint64_t to);
    /* Explains the last operation, for reports. */
    ctxhost_status (*plan_note)(ctxhost_answer *a, ctxhost_str layer, ctxhost_str detail);
    /* The engine's estimate of the plan, in tokens; the host counts itself. */
    ctxhost_status (*plan_estimate)(ctxhost_answer *a, uint64_t tokens);
    /* Optional fields, as a JSON object. All may be absent:
     *   system_prompt_addition  string: is put before the system prompt of this request; counts as inserted text
     *   prompt_authority        "assembled" or "preassembly_may_overflow": the count that is compared with the
     *                           budget, of this plan or of the whole live transcript where that is larger
     *   projection_epoch        integer: increases when the projection restarts
     *   compaction_wanted       string: why a compaction is wanted although the plan fits
     *   notes                   [{"layer": string, "detail": string}], for reports
     *   details                 any JSON, recorded with a compaction for readers of the session
     * JSON of more than 64 nested lists and objects is PROTOCOL, here and in set_result_json. */
    ctxhost_status (*plan_extras)(ctxhost_answer *a, ctxhost_str json);
    /* compact: use the bundled engine. */
    ctxhost_status (*compact_delegate)(ctxhost_answer *a);
    /* compact: nothing to compact, with the reason. */
    ctxhost_status (*compact_nothing)(ctxhost_answer *a, ctxhost_str reason);

    /* -- the answer of a call: other results, once per call -- */

    /* ingest, ingest_batch: number of entries ingested. bootstrap: number imported. */
    ctxhost_status (*set_count)(ctxhost_answer *a, uint64_t count);
    /* call_tool: the result. prepare_subagent_spawn: the token. status: one line. */
    ctxhost_status (*set_text)(ctxhost_answer *a, ctxhost_str text);
    /* The result as JSON of the Rust type: bootstrap {"imported","reason"}, commit_turn
     * "committed" or "duplicate", maintain {"changed","bytes_freed","reason"}, tools
     * [{"name","description","input_schema"}], call_tool {"text","is_error"}, status
     * {"summary","compactions","details"}, prepare_subagent_spawn {"token"}. */
    ctxhost_status (*set_result_json)(ctxhost_answer *a, ctxhost_str json);
    /* Any call: an error with one sentence (what failed, what to do next); `detail_json` may be empty.
     * Returns `kind`, for `return api->set_error(...)`. Discards earlier results. */
    ctxhost_status (*set_error)(ctxhost_answer *a, ctxhost_status kind, ctxhost_str message, ctxhost_str detail_json);

    /* -- services -- */

    /* The host's info as JSON: api_version, host_version, capabilities. */
    ctxhost_status (*host_info)(ctxhost_host *host, ctxhost_sink sink, void *into);
    /* 1 if the host has a capability: model.complete, model.embed, kv, blob, history,
     * prompt_cache, compact.delegate, spawn. */
    uint32_t (*has_capability)(ctxhost_host *host, ctxhost_str name);
    /* Writes to the host's log. `fields_json` is an object or empty. */
    void (*log)(ctxhost_host *host, uint32_t level, ctxhost_str message, ctxhost_str fields_json);
    /* The host's clock, in milliseconds since 1970; recorded time in a replay. */
    int64_t (*now_ms)(ctxhost_host *host);
    /* A monotonic clock, in nanoseconds. */
    uint64_t (*monotonic_ns)(ctxhost_host *host);
    /* Tokens of a text for a model; an empty model is the active one. */
    uint64_t (*count_tokens)(ctxhost_host *host, ctxhost_str model, ctxhost_str text);
    /* 1 if the call was cancelled. */
    uint32_t (*is_cancelled)(ctxhost_host *host, uint64_t call);
    /* Milliseconds until the deadline of a call; negative without one. */
    int64_t (*remaining_ms)(ctxhost_host *host, uint64_t call);
    /* Reports progress, 0 to 1000; extends the deadline of a compaction. */
    void (*progress)(ctxhost_host *host, uint64_t call, uint32_t permille, ctxhost_str note);
    /* Waits; CANCELLED if the call is cancelled meanwhile. */
    ctxhost_status (*sleep_ms)(ctxhost_host *host, uint64_t milliseconds);
    /* Requests text from a model; passes it to `sink` once. */
    ctxhost_status (*complete)(ctxhost_host *host, uint64_t call, const ctxhost_completion *request,
                               ctxhost_sink sink, void *into);
    /* The engine's store, scoped to the engine id. Keys have 1 to 80 bytes. ABSENT for no value. */
    ctxhost_status (*kv_get)(ctxhost_host *host, ctxhost_str key, ctxhost_sink sink, void *into);
    ctxhost_status (*kv_put)(ctxhost_host *host, ctxhost_str key, ctxhost_str value);
    ctxhost_status (*kv_delete)(ctxhost_host *host, ctxhost_str key);
    /* Passes the keys that begin with `prefix`, sorted, one at a time. */
    ctxhost_status (*kv_list)(ctxhost_host *host, ctxhost_str prefix, ctxhost_sink sink, void *into);
    /* Stores bytes; passes their handle (64 hex digits) to `sink`. */
    ctxhost_status (*blob_put)(ctxhost_host *host, const void *bytes, size_t len, ctxhost_sink sink, void *into);
    /* Passes the bytes of a handle, not necessarily UTF-8. ABSENT for an unknown handle. */
    ctxhost_status (*blob_get)(ctxhost_host *host, ctxhost_str handle, ctxhost_sink sink, void *into);
    /* Passes entries of a session after `after_id` (empty: from the start), oldest first, at most
     * `limit` or 1,000. Sets `more` to 1 if others follow. */
    ctxhost_status (*history)(ctxhost_host *host, ctxhost_session session, ctxhost_str after_id, uint64_t limit,
                              ctxhost_history_sink sink, void *into, uint32_t *more);
    /* The state of the provider's prompt cache for a session. */
    ctxhost_status (*prompt_cache)(ctxhost_host *host, ctxhost_str session_id, ctxhost_prompt_cache *out, size_t size);
    /* compact: runs the bundled engine and sets its result as the answer. */
    ctxhost_status (*delegate_compact)(ctxhost_host *host, ctxhost_answer *a);

    /* -- JSON, for engines without a parser: config, arguments, raw entries --
     * `pointer` as in RFC 6901: "" is the document, "/head" a member, "/list/0" an item.
     * ABSENT if the value does not exist, FAILED for another type, PROTOCOL for invalid JSON. */

    /* An integer. */
    ctxhost_status (*json_integer)(ctxhost_str json, ctxhost_str pointer, int64_t *out);
    /* Any number. */
    ctxhost_status (*json_number)(ctxhost_str json, ctxhost_str pointer, double *out);
    /* A string without its quotes; other values as JSON. */
    ctxhost_status (*json_text)(ctxhost_str json, ctxhost_str pointer, ctxhost_sink sink, void *into);
    /* The keys of an object, one at a time. */
    ctxhost_status (*json_keys)(ctxhost_str json, ctxhost_str pointer, ctxhost_sink sink, void *into);
    /* Converts a text to a JSON string. */
    ctxhost_status (*json_quote)(ctxhost_str text, ctxhost_sink sink, void *into);

    /* The message of the last failure on this thread. ABSENT if there was none. */
    ctxhost_status (*last_error)(ctxhost_sink sink, void *into);

    /* -- since 1.1: test for it with CTXHOST_HAS(api, embed) -- */

    /* Requests vectors of texts; passes them to `sink` once. MODEL_MISSING without an embedder. */
    ctxhost_status (*embed)(ctxhost_host *host, uint64_t call, const ctxhost_embed_request *request,
                            ctxhost_embeddings_sink sink, void *into);
} ctxhost_api_v1;

/* ------------------------------------------------------------------ the engine */

/* ctxhost_engine_v1.flags */
#define CTXHOST_THREAD_SAFE 1u        /* calls for different sessions may run concurrently */
#define CTXHOST_OWNS_COMPACTION 2u    /* keeps every plan within its budget by itself */
#define CTXHOST_DELEGATES_COMPACTION 4u /* compact may be NULL: the bundled engine compacts */

/* An engine. Must not change while the process runs: make it static.
 *
 * Each function returns CTXHOST_OK or an error kind; `set_error` adds a message. NULL selects the host's
 * default, except for create, assemble and compact. `engine` is the value that create wrote to `*engine`;
 * it may be NULL for a stateless engine.
 */
typedef struct ctxhost_engine_v1 {
    size_t struct_size; /* sizeof(ctxhost_engine_v1) */
    uint32_t flags;     /* CTXHOST_THREAD_SAFE, ... */
    uint32_t reserved;  /* 0 */
    ctxhost_str id;     /* as in CTXHOST_ENGINE_META: ^[a-z0-9][a-z0-9-]{0,63}$ */
    ctxhost_str name;   /* display name */
    ctxhost_str version;/* semantic; as in CTXHOST_ENGINE_META */
    const ctxhost_str *needs; /* required capabilities */
    size_t needs_len;

    /* 1. Creates the engine. `config_json` is its table of the config, `{}` by default.
     *    CTXHOST_E_CONFIG for a wrong setting: the host reports its line. */
    ctxhost_status (*create)(const ctxhost_api_v1 *api, ctxhost_host *host, ctxhost_str config_json,
                             void **engine, ctxhost_answer *a);
    /* 2. Returns the plan of a request. */
    ctxhost_status (*assemble)(void *engine, const ctxhost_transcript *t,
                               const ctxhost_assemble_request *r, ctxhost_answer *a);
    /* 3. Shrinks the transcript: returns a smaller plan, delegates, or declines. */
    ctxhost_status (*compact)(void *engine, const ctxhost_transcript *t,
                              const ctxhost_compact_request *r, ctxhost_answer *a);

    /* The following functions are optional. */

    /* Releases all resources. Called once, when no other call runs. */
    void (*dispose)(void *engine);
    ctxhost_status (*bootstrap)(void *engine, const ctxhost_transcript *t,
                                const ctxhost_bootstrap_request *r, ctxhost_answer *a);
    ctxhost_status (*ingest)(void *engine, const ctxhost_transcript *t,
                             const ctxhost_ingest_request *r, ctxhost_answer *a);
    /* Many entries at once; ingest if NULL. */
    ctxhost_status (*ingest_batch)(void *engine, const ctxhost_transcript *t,
                                   const ctxhost_ingest_request *r, ctxhost_answer *a);
    ctxhost_status (*after_turn)(void *engine, const ctxhost_transcript *t,
                                 const ctxhost_after_turn_request *r, ctxhost_answer *a);
    ctxhost_status (*commit_turn)(void *engine, const ctxhost_transcript *t,
                                  const ctxhost_commit_turn_request *r, ctxhost_answer *a);
    ctxhost_status (*maintain)(void *engine, const ctxhost_transcript *t,
                               const ctxhost_maintain_request *r, ctxhost_answer *a);
    ctxhost_status (*prepare_subagent_spawn)(void *engine, const ctxhost_transcript *t,
                                             const ctxhost_spawn_request *r, ctxhost_answer *a);
    ctxhost_status (*rollback_subagent_spawn)(void *engine, const ctxhost_rollback_request *r, ctxhost_answer *a);
    ctxhost_status (*on_subagent_ended)(void *engine, const ctxhost_spawn_end *r, ctxhost_answer *a);
    /* The tools offered to the model of a session. */
    ctxhost_status (*tools)(void *engine, const ctxhost_session *session, ctxhost_answer *a);
    ctxhost_status (*call_tool)(void *engine, const ctxhost_transcript *t,
                                const ctxhost_tool_request *r, ctxhost_answer *a);
    /* Counters for users. */
    ctxhost_status (*status)(void *engine, ctxhost_answer *a);
} ctxhost_engine_v1;

/* ------------------------------------------------------------------ exports */

#if defined(_WIN32)
#define CTXHOST_EXPORT __declspec(dllexport)
#elif defined(__GNUC__)
#define CTXHOST_EXPORT __attribute__((visibility("default")))
#else
#define CTXHOST_EXPORT
#endif

/* The entry point of major version 1. Defined by the engine; called once for each load. */
CTXHOST_EXPORT const ctxhost_engine_v1 *context_engine_c_v1(void);

#if defined(__x86_64__) || defined(_M_X64)
#define CTXHOST_TARGET_ARCH "x86_64"
#elif defined(__aarch64__) || defined(_M_ARM64)
#define CTXHOST_TARGET_ARCH "aarch64"
#elif defined(__riscv) && __riscv_xlen == 64
#define CTXHOST_TARGET_ARCH "riscv64"
#elif defined(__i386__) || defined(_M_IX86)
#define CTXHOST_TARGET_ARCH "x86"
#elif defined(__arm__)
#define CTXHOST_TARGET_ARCH "arm"
#elif defined(__powerpc64__)
#define CTXHOST_TARGET_ARCH "powerpc64"
#elif defined(__s390x__)
#define CTXHOST_TARGET_ARCH "s390x"
#else
#define CTXHOST_TARGET_ARCH "unknown"
#endif

#if defined(__linux__)
#define CTXHOST_TARGET_OS "linux"
#elif defined(__APPLE__)
#define CTXHOST_TARGET_OS "macos"
#elif defined(_WIN32)
#define CTXHOST_TARGET_OS "windows"
#elif defined(__FreeBSD__)
#define CTXHOST_TARGET_OS "freebsd"
#else
#define CTXHOST_TARGET_OS "unknown"
#endif

/* Define this before including the header if the engine is written in another language. */
#ifndef CTXHOST_LANGUAGE
#ifdef __cplusplus
#define CTXHOST_LANGUAGE "c++"
#else
#define CTXHOST_LANGUAGE "c"
#endif
#endif

#if defined(__clang__)
#define CTXHOST_COMPILER __VERSION__
#elif defined(__GNUC__)
#define CTXHOST_COMPILER "gcc " __VERSION__
#else
#define CTXHOST_COMPILER "unknown"
#endif

#if UINTPTR_MAX > 0xffffffffu
#define CTXHOST_POINTER "64"
#else
#define CTXHOST_POINTER "32"
#endif

/* Size of the metadata block, and of the text in it. */
#define CTXHOST_META_BYTES 1024
#define CTXHOST_META_TEXT_BYTES (CTXHOST_META_BYTES - 18)

/* The metadata that a host reads from the file before any code of it runs. */
typedef struct ctxhost_meta_block {
    unsigned char magic[16];
    unsigned char length[2]; /* of the text, little endian */
    char text[CTXHOST_META_TEXT_BYTES];
} ctxhost_meta_block;

#ifdef __cplusplus
#define CTXHOST_ASSERT(condition, sentence) static_assert(condition, sentence)
#else
#define CTXHOST_ASSERT(condition, sentence) _Static_assert(condition, sentence)
#endif

#define CTXHOST_META_TEXT(engine_id, engine_version)                                             \
    "door=c\nabi_major=1\nabi_minor=" CTXHOST_API_MINOR "\nid=" engine_id                        \
    "\nversion=" engine_version "\napi=" CTXHOST_API_VERSION "\nlanguage=" CTXHOST_LANGUAGE      \
    "\ncompiler=" CTXHOST_COMPILER "\ntarget=" CTXHOST_TARGET_ARCH "-" CTXHOST_TARGET_OS         \
    "\npointer=" CTXHOST_POINTER "\n"

/* Use once for each library, at file scope, with string literals as arguments. */
#ifdef __cplusplus
#define CTXHOST_ENGINE_META(engine_id, engine_version)                                           \
    extern "C" {                                                                                 \
    CTXHOST_META_DEFINITION(engine_id, engine_version)                                           \
    }
#else
#define CTXHOST_ENGINE_META(engine_id, engine_version) CTXHOST_META_DEFINITION(engine_id, engine_version)
#endif

#define CTXHOST_META_DEFINITION(engine_id, engine_version)                                       \
    CTXHOST_ASSERT(sizeof(CTXHOST_META_TEXT(engine_id, engine_version)) <= CTXHOST_META_TEXT_BYTES, \
                   "id and version are too long for the metadata");                              \
    extern CTXHOST_EXPORT const ctxhost_meta_block CONTEXT_ENGINE_META;                          \
    const ctxhost_meta_block CONTEXT_ENGINE_META = {                                             \
        {'C', 'T', 'X', 'H', 'O', 'S', 'T', 1, 'E', 'N', 'G', 'M', 'E', 'T', 'A', '\n'},         \
        {(unsigned char)((sizeof(CTXHOST_META_TEXT(engine_id, engine_version)) - 1) & 0xff),     \
         (unsigned char)((sizeof(CTXHOST_META_TEXT(engine_id, engine_version)) - 1) >> 8)},      \
        CTXHOST_META_TEXT(engine_id, engine_version)};

/* ------------------------------------------------------------------ helpers */

/* A buffer for one text. `len` is set to the full length of the text: if it exceeds `cap`, the text was
 * truncated. */
typedef struct ctxhost_buffer {
    char *ptr;
    size_t cap;
    size_t len;
} ctxhost_buffer;

/* A sink that copies into a ctxhost_buffer. */
static inline void ctxhost_into_buffer(void *into, ctxhost_str text) {
    ctxhost_buffer *buffer = (ctxhost_buffer *)into;
    size_t fits = text.len < buffer->cap ? text.len : buffer->cap;
    for (size_t at = 0; at < fits; at++) buffer->ptr[at] = text.ptr[at];
    buffer->len = text.len;
}

/* The text of a zero-terminated string. */
static inline ctxhost_str ctxhost_text(const char *zero_terminated) {
    ctxhost_str text = {zero_terminated, 0};
    while (zero_terminated[text.len] != 0) text.len++;
    return text;
}

#ifdef __cplusplus
}
#endif

#endif
