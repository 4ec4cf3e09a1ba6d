//! Decides which answers of a rendered request keep their signed thinking.
//!
//! ```text
//!  answers ─┬─ of a history that the upstream rejected ───────────────────► removed
//!           ├─ before the last compaction ──┬─ turn of that compaction ───► kept, until the upstream has rejected some
//!           │  or removal (`removed_thinking`)
//!           │                               └─ else ──────────────────────► removed
//!           ├─ after a change by the plan ──┬─ current turn ──────────────► kept
//!           │                               └─ else ──────────────────────► removed
//!           └─ else ──────────────────────────────────────────────────────► kept
//! ```
//!
//! Rules A-14 and A-21 are in `tests/src/rules`.

use std::ops::Range;

use ctxhost_conversations::{KnownItems, is_thinking_removal};
use ctxhost_engine_api::{Entry, EntryKind, Flags, PlanItem, Role, Transcript};

use ctxhost_context::LiveSession;
use ctxhost_session::RecordKind;

/// The answers of a request that lose their thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ThinkingPlan {
    /// The item groups without thinking.
    pub(super) without: [Range<usize>; 2],
    /// Whether the tool loop at the end starts without thinking. The request must then disable it: Anthropic rejects such a
    /// loop while thinking is enabled (A-14), and models without interleaved thinking think only before the first call of
    /// a turn.
    pub(super) is_off: bool,
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThinkingContext<'a> {
    pub(super) known_items: &'a KnownItems,
    pub(super) view: &'a Transcript,
    /// The last item group before the latest compaction, or before the latest removal of thinking from the session.
    pub(super) compacted: Option<usize>,
    /// The number of item groups whose thinking the upstream rejected.
    pub(super) refused: usize,
}

/// The last item group before the latest compaction, or before the latest removal of thinking. Derived from the session,
/// so that a restart renders the same bytes and removed thinking stays removed.
pub(super) fn last_compacted_unit(
    session: &LiveSession,
    known_items: &KnownItems,
) -> Option<usize> {
    let ignored = session.ignored_compactions();
    let mut newest_first = session.session().branch().into_iter().rev();
    newest_first.by_ref().find(|record| {
        let is_compaction = *record.kind() == RecordKind::Compaction;
        is_compaction && !ignored.iter().any(|id| id == record.id()) || is_thinking_removal(record)
    })?;
    newest_first.find_map(|record| known_items.location(record.id())).map(|place| place.group)
}

impl ThinkingPlan {
    /// The plan for a request with these items.
    pub(super) fn new(context: ThinkingContext<'_>, items: &[PlanItem<'_>]) -> ThinkingPlan {
        let ThinkingContext { known_items, view, compacted, refused } = context;
        let groups = groups(known_items, view);
        // Kept at first, although newer models bind it to the changed messages (A-21) and may reject it: without it, the
        // model rejects a turn that waits for tool results (A-14). A rejection is retried without any thinking.
        let current_turn =
            groups.len().checked_sub(1).and_then(|last| open_turn_start(&groups, last));
        let compacted_turn = compacted.map(|compacted| {
            let last = groups.iter().rposition(|group| group.number <= compacted);
            // An upstream that has rejected thinking of this session rejects what a further compaction leaves of a turn,
            // too. Not asking first saves a request of the whole prompt.
            let last = last.filter(|_| refused == 0);
            last.and_then(|last| open_turn_start(&groups, last)).unwrap_or(compacted + 1)
        });
        let older = 0..compacted_turn.unwrap_or_default().max(refused);
        let changed = first_changed(known_items, items).unwrap_or(usize::MAX);
        let without = [older, changed..current_turn.unwrap_or(usize::MAX).max(changed)];
        let plan = ThinkingPlan { without, is_off: false };
        let location = |entry: &Entry<'_>| known_items.location(entry.id());
        let first = open_loop_answers(items).into_iter().flatten().filter_map(PlanItem::entry);
        let first = first.filter_map(|entry| Some((entry, location(&entry)?))).next();
        // What a client sends is not judged as long as nothing of it was changed.
        let is_changed = compacted.is_some() || changed != usize::MAX;
        let is_off = first.is_some_and(|(entry, place)| {
            plan.omits(place.group) || is_changed && !entry.has(Flags::THINKING)
        });
        ThinkingPlan { is_off, ..plan }
    }

    /// Whether an item group loses its thinking.
    pub(super) fn omits(&self, group: usize) -> bool {
        self.without.iter().any(|groups| groups.contains(&group))
    }
}

/// An item group and the roles in it.
#[derive(Clone, Copy, Debug)]
struct UnitRoles {
    number: usize,
    has_result: bool,
    has_user: bool,
}

fn groups(known_items: &KnownItems, view: &Transcript) -> Vec<UnitRoles> {
    let mut groups: Vec<UnitRoles> = Vec::new();
    for entry in view.iter().filter(|entry| entry.kind() == EntryKind::Message) {
        let Some(place) = known_items.location(entry.id()) else { continue };
        if groups.last().is_none_or(|last| last.number != place.group) {
            groups.push(UnitRoles { number: place.group, has_result: false, has_user: false });
        }
        if let Some(last) = groups.last_mut() {
            last.has_result |= entry.role() == Role::Tool;
            last.has_user |= entry.role() == Role::User;
        }
    }
    groups
}

/// The start of the turn that waits for the model after this group; `None` if none does. User text beside tool results
/// does not start a turn.
fn open_turn_start(groups: &[UnitRoles], last: usize) -> Option<usize> {
    groups.get(last).filter(|group| group.has_result)?;
    let until = groups.get(..last)?;
    let began = until.iter().rfind(|group| group.has_user && !group.has_result);
    Some(began.map_or(0, |group| group.number))
}

/// The first item group at or after a change by the plan.
fn first_changed(known_items: &KnownItems, items: &[PlanItem<'_>]) -> Option<usize> {
    let is_kept = |(at, item): &(u64, &PlanItem<'_>)| matches!(item, PlanItem::Kept(entry) if entry.seq() == *at);
    let changed = (0..).zip(items).skip_while(is_kept);
    let mut locations = changed.filter_map(|(_, item)| known_items.location(item.entry()?.id()));
    locations.next().map(|location| location.group)
}

/// The answers of the tool loop at the end of a request, as the provider reads it: items between two answers are
/// one message, also where a plan has dropped the answer between them.
fn open_loop_answers<'i, 'a>(
    items: &'i [PlanItem<'a>],
) -> Option<impl Iterator<Item = &'i PlanItem<'a>>> {
    let mut messages: Vec<UnitRoles> = Vec::new();
    let mut is_behind_answer = true;
    for (number, item) in items.iter().enumerate() {
        let is_answer = item.role() == Role::Assistant;
        if is_answer || is_behind_answer {
            messages.push(UnitRoles { number, has_result: false, has_user: false });
        }
        is_behind_answer = is_answer;
        let is_note = item.entry().is_some_and(|entry| entry.kind() == EntryKind::Custom);
        if let Some(message) = messages.last_mut() {
            message.has_result |= item.role() == Role::Tool;
            message.has_user |= item.role() == Role::User && !is_note;
        }
    }
    let from = open_turn_start(&messages, messages.len().checked_sub(1)?)?;
    Some(items.iter().skip(from).filter(|item| item.role() == Role::Assistant))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Plan;
    use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};

    use super::*;

    /// Groups by role: `u` user, `m` model, `r` tool results, `b` results and user text.
    fn groups_of(roles: &str) -> Vec<UnitRoles> {
        let group = |(number, role): (usize, char)| UnitRoles {
            number,
            has_result: matches!(role, 'r' | 'b'),
            has_user: matches!(role, 'u' | 'b'),
        };
        roles.chars().enumerate().map(group).collect()
    }

    #[test]
    fn a_question_behind_kept_results_continues_their_loop() {
        let mut log = TranscriptLog::new(0);
        let roles = [Role::User, Role::Assistant, Role::Tool, Role::Assistant, Role::User];
        for role in roles {
            let call = |is_one: bool| is_one.then(|| "a".to_owned());
            log.append(NewEntry {
                id: String::new(),
                parent_id: String::new(),
                timestamp_ms: 0,
                role,
                kind: EntryKind::Message,
                flags: Flags::default(),
                tokens: 1,
                text: "text".into(),
                raw: String::new(),
                calls: call(log.len() == 1).into_iter().collect(),
                answers: call(role == Role::Tool),
            });
        }
        let view = log.snapshot();
        let first = |plan: &Plan| {
            let items = plan.project(&view);
            let first = open_loop_answers(&items)?.next();
            first.and_then(|item| Some(item.entry()?.seq()))
        };
        assert_eq!(first(&Plan::keep_all(view.len())), None);
        let mut cut = Plan::default();
        cut.keep(0..3).insert(Role::User, "what was done", 3..4).keep(4..5);
        assert_eq!(first(&cut), Some(1));
    }

    #[test]
    fn a_turn_is_open_if_it_ends_with_results() {
        let check = |roles: &str, expected: Option<usize>| {
            let groups = groups_of(roles);
            assert_eq!(open_turn_start(&groups, groups.len() - 1), expected, "{roles}");
        };
        check("u", None);
        check("umu", None);
        check("um", None);
        check("umumr", Some(2));
        check("umumrmr", Some(2));
        check("umumbmr", Some(2));
        check("umumb", Some(2));
        // The start of the turn was compacted.
        check("mrmr", Some(0));
        assert_eq!(open_turn_start(&groups_of("umr"), 9), None);
    }
}
