//! Decides which answers of a rendered request keep their signed thinking.
//!
//! ```text
//!  answers ─┬─ of a history that the upstream rejected ───────────────────► removed
//!           ├─ before the last compaction ──┬─ turn of that compaction ───► kept
//!           │                               └─ else ──────────────────────► removed
//!           ├─ after a change by the plan ──┬─ current turn ──────────────► kept
//!           │                               └─ else ──────────────────────► removed
//!           └─ else ──────────────────────────────────────────────────────► kept
//! ```
//!
//! Rules A-14 and A-21 are in `tests/src/rules`.

use std::ops::Range;

use ctxhost_engine_api::{EntryKind, PlanItem, Role, Transcript};

use crate::conversations::KnownItems;
use ctxhost_session::{RecordKind, Session};

/// The answers of a request that lose their thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ThinkingPlan {
    /// The item groups without thinking.
    pub(super) without: [Range<usize>; 2],
    /// Whether the current turn starts without thinking. The request must then disable it: Anthropic rejects a tool loop
    /// that starts without thinking while thinking is enabled (A-14).
    pub(super) is_off: bool,
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThinkingContext<'a> {
    pub(super) known_items: &'a KnownItems,
    pub(super) view: &'a Transcript,
    /// The last item group before the latest compaction.
    pub(super) compacted: Option<usize>,
    /// The number of item groups whose thinking the upstream rejected.
    pub(super) refused: usize,
}

/// The last item group before the latest compaction. Derived from the session, so that a restart renders the same bytes
/// and removed thinking stays removed.
pub(super) fn last_compacted_unit(session: &Session, known_items: &KnownItems) -> Option<usize> {
    let mut newest_first = session.branch().into_iter().rev();
    newest_first.by_ref().find(|record| *record.kind() == RecordKind::Compaction)?;
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
            last.and_then(|last| open_turn_start(&groups, last)).unwrap_or(compacted + 1)
        });
        let older = 0..compacted_turn.unwrap_or_default().max(refused);
        let changed = first_changed(known_items, items).unwrap_or(usize::MAX);
        let without = [older, changed..current_turn.unwrap_or(usize::MAX).max(changed)];
        let plan = ThinkingPlan { without, is_off: false };
        let first = current_turn.and_then(|from| first_answer(known_items, items, from));
        ThinkingPlan { is_off: first.is_some_and(|group| plan.omits(group)), ..plan }
    }

    fn omits(&self, group: usize) -> bool {
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

/// The group of the first answer of a turn.
fn first_answer(known_items: &KnownItems, items: &[PlanItem<'_>], from: usize) -> Option<usize> {
    let answers = items.iter().filter(|item| item.role() == Role::Assistant);
    let mut groups =
        answers.filter_map(|item| Some(known_items.location(item.entry()?.id())?.group));
    groups.find(|group| *group >= from)
}

#[cfg(test)]
mod tests {
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
