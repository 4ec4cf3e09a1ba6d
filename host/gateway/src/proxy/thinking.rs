//! Whose thinking a body of ours still has. Signed thinking may be bound to all that stood before it (A-21),
//! so it goes where that is not what it was.
//!
//! ```text
//!  answers ─┬─ of a history that was refused ───────────────────► without
//!           ├─ before the last compaction ──┬─ of its own turn ─► as they came
//!           │                               └─ else ────────────► without
//!           ├─ behind what a plan changes ──┬─ of this turn ────► as they came
//!           │                               └─ else ────────────► without
//!           └─ else ────────────────────────────────────────────► as they came
//! ```
//!
//! A turn that waits for the results of tools keeps its thinking at first, because a model that thinks
//! refuses to go on without it (A-14). A model that has bound it refuses the request with it; then all
//! of it goes, and the turn ends unthinking. What is left out stays out, so that the beginning of a
//! request is the same in the next one: by the session itself, so that a restart changes nothing.

use std::ops::Range;

use ctxhost_engine_api::{EntryKind, PlanItem, Role, Transcript};

use crate::conversations::KnownItems;
use ctxhost_session::{RecordKind, Session};

/// What a body has of its answers' thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ThinkingPlan {
    /// The units without it.
    pub(super) without: [Range<usize>; 2],
    /// Whether the turn that goes on begins without it, so that its model cannot be asked to think.
    pub(super) is_off: bool,
}

/// What decides it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThinkingContext<'a> {
    pub(super) outline: &'a KnownItems,
    pub(super) view: &'a Transcript,
    /// The unit before which the conversation was compacted last.
    pub(super) compacted: Option<usize>,
    /// How many units there were when their thinking was refused.
    pub(super) refused: usize,
}

/// Where the conversation was compacted last: behind this unit.
pub(super) fn last_compacted_unit(session: &Session, outline: &KnownItems) -> Option<usize> {
    let mut newest_first = session.branch().into_iter().rev();
    newest_first.by_ref().find(|record| *record.kind() == RecordKind::Compaction)?;
    newest_first.find_map(|record| outline.location(record.id())).map(|place| place.group)
}

impl ThinkingPlan {
    /// Of a body that is made of these items.
    pub(super) fn new(told: ThinkingContext<'_>, items: &[PlanItem<'_>]) -> ThinkingPlan {
        let units = units(told.outline, told.view);
        let now = units.len().checked_sub(1).and_then(|last| open_turn_start(&units, last));
        let then = told.compacted.map(|behind| {
            let last = units.iter().rposition(|unit| unit.number <= behind);
            last.and_then(|last| open_turn_start(&units, last)).unwrap_or(behind + 1)
        });
        let older = 0..then.unwrap_or_default().max(told.refused);
        let changed = first_changed(told.outline, items).unwrap_or(usize::MAX);
        let without = [older, changed..now.unwrap_or(usize::MAX).max(changed)];
        let thinking = ThinkingPlan { without, is_off: false };
        let first = now.and_then(|from| first_answer(told.outline, items, from));
        ThinkingPlan { is_off: first.is_some_and(|unit| thinking.omits(unit)), ..thinking }
    }

    fn omits(&self, unit: usize) -> bool {
        self.without.iter().any(|units| units.contains(&unit))
    }
}

/// A unit, and who speaks in it.
#[derive(Clone, Copy, Debug)]
struct UnitRoles {
    number: usize,
    has_result: bool,
    has_user: bool,
}

fn units(outline: &KnownItems, view: &Transcript) -> Vec<UnitRoles> {
    let mut units: Vec<UnitRoles> = Vec::new();
    for entry in view.iter().filter(|entry| entry.kind() == EntryKind::Message) {
        let Some(place) = outline.location(entry.id()) else { continue };
        if units.last().is_none_or(|last| last.number != place.group) {
            units.push(UnitRoles { number: place.group, has_result: false, has_user: false });
        }
        if let Some(last) = units.last_mut() {
            last.has_result |= entry.role() == Role::Tool;
            last.has_user |= entry.role() == Role::User;
        }
    }
    units
}

/// Where the turn began that waits for the model at this place; `None` where none does. What a client
/// says beside results begins none.
fn open_turn_start(units: &[UnitRoles], last: usize) -> Option<usize> {
    units.get(last).filter(|unit| unit.has_result)?;
    let until = units.get(..last)?;
    let began = until.iter().rfind(|unit| unit.has_user && !unit.has_result);
    Some(began.map_or(0, |unit| unit.number))
}

/// The first unit at or behind something that is not as it was said.
fn first_changed(outline: &KnownItems, items: &[PlanItem<'_>]) -> Option<usize> {
    let is_kept =
        |(at, item): &(u64, &PlanItem<'_>)| matches!(item, PlanItem::Kept(it) if it.seq() == *at);
    let changed = (0..).zip(items).skip_while(is_kept);
    let mut places = changed.filter_map(|(_, item)| outline.location(item.entry()?.id()));
    places.next().map(|place| place.group)
}

/// The first answer that is sent of a turn.
fn first_answer(outline: &KnownItems, items: &[PlanItem<'_>], from: usize) -> Option<usize> {
    let answers = items.iter().filter(|item| item.role() == Role::Assistant);
    let mut units = answers.filter_map(|item| Some(outline.location(item.entry()?.id())?.group));
    units.find(|unit| *unit >= from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units by who speaks in them: `p` the person, `m` the model, `r` results, `b` results and words.
    fn spoken(who: &str) -> Vec<UnitRoles> {
        let unit = |(number, who): (usize, char)| UnitRoles {
            number,
            has_result: matches!(who, 'r' | 'b'),
            has_user: matches!(who, 'p' | 'b'),
        };
        who.chars().enumerate().map(unit).collect()
    }

    #[test]
    fn a_turn_waits_where_results_stand_last() {
        let check = |who: &str, expected: Option<usize>| {
            let units = spoken(who);
            assert_eq!(open_turn_start(&units, units.len() - 1), expected, "{who}");
        };
        check("p", None);
        check("pmp", None);
        check("pm", None);
        check("pmpmr", Some(2));
        check("pmpmrmr", Some(2));
        check("pmpmbmr", Some(2));
        check("pmpmb", Some(2));
        // Where it began is folded into a summary.
        check("mrmr", Some(0));
        assert_eq!(open_turn_start(&spoken("pmr"), 9), None);
    }
}
