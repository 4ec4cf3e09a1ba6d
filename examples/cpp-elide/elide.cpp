// A context engine for ctxhost in C++17: replaces old tool results by one line each, and leaves out the oldest
// turns if that is not enough.
//
// The state is in a class; the functions of the table call its methods through `guarded`, which catches all
// exceptions.
#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxhost_engine.h"

namespace {

constexpr char ID[] = "cpp-elide";

// Newest results that are kept. Default 5: the ones the current work still uses.
constexpr std::int64_t KEEP_RESULTS = 5;
// Results up to this size are kept, in bytes. Default 200: about the size of the line that replaces them.
constexpr std::size_t SMALL_BYTES = 200;

ctxhost_str text(const std::string &s) { return {s.data(), s.size()}; }
std::string string(ctxhost_str s) { return s.len == 0 ? std::string() : std::string(s.ptr, s.len); }

struct ConfigError : std::runtime_error {
    std::string key;
    ConfigError(std::string k, const std::string &sentence) : std::runtime_error(sentence), key(std::move(k)) {}
};

// An entry in the plan and its tokens there.
struct PlannedEntry {
    ctxhost_entry entry;
    std::uint64_t tokens;
    std::string line;  // replaces the text; empty: unchanged
    bool pinned;       // pinned, or the newest user message: the host would reinsert it
};

class Elide {
public:
    Elide(const ctxhost_api_v1 *api, ctxhost_host *host, ctxhost_str config) : api_(api), host_(host) {
        const std::string key = "/keep_results";
        const ctxhost_status read = api_->json_integer(config, text(key), &keep_results_);
        if ((read != CTXHOST_OK && read != CTXHOST_ABSENT) || keep_results_ < 0)
            throw ConfigError("keep_results", "keep_results must be a number from 0");
    }

    void assemble(const ctxhost_transcript *t, const ctxhost_assemble_request &r, ctxhost_answer *a) {
        std::vector<PlannedEntry> shown = elided(t, r.model.id);
        const std::size_t first = first_that_fits(t, shown, r.budget);
        for (std::size_t at = 0; at < shown.size(); at++) {
            const PlannedEntry &s = shown[at];
            if (at < first && !s.pinned) continue;
            if (s.line.empty()) {
                api_->plan_keep(a, at, at + 1);
                continue;
            }
            elided_++;
            api_->plan_replace_text(a, at, text(s.line));
            api_->plan_note(a, ctxhost_text("elide"), text(std::to_string(s.entry.text.len) + " bytes -> one line"));
        }
        api_->plan_keep(a, 0, 0);  // makes the answer a plan even if nothing was kept
    }

    std::string status() const { return std::to_string(elided_) + " results shown as one line so far"; }

private:
    // All entries, with results older than the newest few replaced by a line.
    std::vector<PlannedEntry> elided(const ctxhost_transcript *t, ctxhost_str model) const {
        std::vector<PlannedEntry> shown(static_cast<std::size_t>(api_->t_len(t)));
        const std::uint64_t newest_user = api_->t_newest_user_message(t);
        std::int64_t newer = 0;
        for (std::size_t at = shown.size(); at-- > 0;) {
            PlannedEntry &s = shown[at];
            api_->t_entry(t, at, &s.entry, sizeof s.entry);
            s.tokens = s.entry.tokens;
            s.pinned = (s.entry.flags & CTXHOST_FLAG_PINNED) != 0 || at == newest_user;
            if (s.entry.role != CTXHOST_ROLE_TOOL || newer++ < keep_results_ || s.entry.text.len <= SMALL_BYTES) continue;
            ctxhost_tool_result head{};
            api_->t_tool_result(t, at, &head, sizeof head);
            s.line = "[" + string(head.tool) + (head.is_error ? " failed" : "") + ": " +
                     std::to_string(s.entry.text.len) + " bytes, left out]";
            s.tokens = api_->count_tokens(host_, model, text(s.line));
        }
        return shown;
    }

    // The first entry from which everything fits, together with the pinned entries before it.
    std::size_t first_that_fits(const ctxhost_transcript *t, const std::vector<PlannedEntry> &shown, std::uint64_t budget) const {
        if (shown.empty()) return 0;
        std::uint64_t cost = 0;
        for (const PlannedEntry &s : shown)
            if (s.pinned) cost += s.tokens;
        std::size_t first = shown.size();
        while (first > 0) {
            const PlannedEntry &s = shown[first - 1];
            const std::uint64_t more = s.pinned ? 0 : s.tokens;
            if (more > budget || cost > budget - more) break;
            cost += more;
            first--;
        }
        // The newest frame is kept even if it does not fit; the host then trims the request.
        const std::uint64_t newest = shown.back().entry.frame;
        return static_cast<std::size_t>(std::min(api_->t_cut_at_or_after(t, first), newest));
    }

    const ctxhost_api_v1 *api_;
    ctxhost_host *host_;
    std::int64_t keep_results_ = KEEP_RESULTS;
    std::uint64_t elided_ = 0;
};

// Runs `work`; an exception becomes the error of the call.
template <class Work>
ctxhost_status guarded(const ctxhost_api_v1 *api, ctxhost_answer *a, Work work) noexcept {
    try {
        work();
        return CTXHOST_OK;
    } catch (const ConfigError &error) {
        return api->set_error(a, CTXHOST_E_CONFIG, ctxhost_text(error.what()), text("{\"key\":\"" + error.key + "\"}"));
    } catch (const std::exception &error) {
        return api->set_error(a, CTXHOST_E_FAILED, ctxhost_text(error.what()), ctxhost_str{});
    } catch (...) {
        return api->set_error(a, CTXHOST_E_FAILED, ctxhost_text("unknown exception"), ctxhost_str{});
    }
}

const ctxhost_api_v1 *API = nullptr;  // one table for the whole process

ctxhost_status create(const ctxhost_api_v1 *api, ctxhost_host *host, ctxhost_str config, void **engine,
                      ctxhost_answer *a) noexcept {
    API = api;
    return guarded(api, a, [&] { *engine = std::make_unique<Elide>(api, host, config).release(); });
}

ctxhost_status assemble(void *engine, const ctxhost_transcript *t, const ctxhost_assemble_request *r,
                        ctxhost_answer *a) noexcept {
    return guarded(API, a, [&] { static_cast<Elide *>(engine)->assemble(t, *r, a); });
}

ctxhost_status status(void *engine, ctxhost_answer *a) noexcept {
    return guarded(API, a, [&] { API->set_text(a, text(static_cast<Elide *>(engine)->status())); });
}

void dispose(void *engine) noexcept { delete static_cast<Elide *>(engine); }

ctxhost_engine_v1 table() {
    ctxhost_engine_v1 engine{};
    engine.struct_size = sizeof engine;
    engine.flags = CTXHOST_DELEGATES_COMPACTION;  // not thread-safe: it has a counter
    engine.id = ctxhost_text(ID);
    engine.name = ctxhost_text("Old results as one line, in C++");
    engine.version = ctxhost_text("0.1.0");
    engine.create = create;
    engine.assemble = assemble;
    engine.status = status;
    engine.dispose = dispose;
    return engine;
}

}  // namespace

const ctxhost_engine_v1 *context_engine_c_v1() {
    static const ctxhost_engine_v1 engine = table();
    return &engine;
}
CTXHOST_ENGINE_META("cpp-elide", "0.1.0")
