//! ABI types of plans: operations with numeric kinds, extras as JSON.

use abi_stable::StableAbi;
use abi_stable::std_types::{RString, RVec};
use serde::{Deserialize, Serialize};

use super::json::{AbiCodec, from_json, to_json};
use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Action, Compaction, Op, Plan, PlanExtras, PlanNote};
use crate::transcript::Role;

/// The ABI of [`Op`]. Frozen within the major version; new operations get new kind numbers.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiOp {
    kind: u32,
    role: u8,
    a: u64,
    b: u64,
    text: RString,
    /// The operation's note as JSON; empty for none.
    ext_json: RString,
}

/// The ABI of [`Plan`]. Frozen within the major version.
#[repr(C)]
#[derive(StableAbi)]
pub struct AbiPlan {
    ops: RVec<AbiOp>,
    estimated_tokens: u64,
    /// The extras as JSON; empty for none.
    ext_json: RString,
}

const KEEP: u32 = 1;
const REPLACE_TEXT: u32 = 2;
const REPLACE_RAW: u32 = 3;
const INSERT: u32 = 4;
const DROP: u32 = 5;

/// The extras of a plan and the outcome of `compact`.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct WireExtras {
    #[serde(flatten)]
    extras: PlanExtras,
    /// Empty for a plan, else `delegate` or `nothing`.
    #[serde(skip_serializing_if = "String::is_empty")]
    outcome: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl AbiCodec<AbiPlan> for Plan {
    fn encode(self) -> AbiPlan {
        let wire = WireExtras { extras: self.extras, ..WireExtras::default() };
        AbiPlan {
            ops: self.ops.into_iter().map(AbiOp::from).collect(),
            estimated_tokens: self.estimated_tokens,
            ext_json: encode_extras(&wire),
        }
    }

    fn decode(abi: AbiPlan) -> Result<Plan> {
        Ok(abi.decode()?.0)
    }
}

impl AbiCodec<AbiPlan> for Compaction {
    fn encode(self) -> AbiPlan {
        let (outcome, reason) = match self {
            Compaction::Plan(plan) => return plan.encode(),
            Compaction::Delegate => ("delegate", String::new()),
            Compaction::Nothing { reason } => ("nothing", reason),
        };
        let wire = WireExtras { outcome: outcome.into(), reason, ..WireExtras::default() };
        AbiPlan { ops: RVec::new(), estimated_tokens: 0, ext_json: encode_extras(&wire) }
    }

    fn decode(abi: AbiPlan) -> Result<Compaction> {
        let (plan, outcome, reason) = abi.decode()?;
        match outcome.as_str() {
            "" => Ok(Compaction::Plan(plan)),
            "delegate" => Ok(Compaction::Delegate),
            "nothing" => Ok(Compaction::Nothing { reason }),
            other => Err(EngineError::new(
                ErrorKind::Protocol,
                format!("compact returned the unknown outcome {other:?}"),
            )),
        }
    }
}

impl AbiPlan {
    fn decode(self) -> Result<(Plan, String, String)> {
        let wire = match self.ext_json.as_str() {
            "" => WireExtras::default(),
            json => from_json(json)?,
        };
        let ops = self.ops.into_iter().map(Op::from).collect();
        let plan = Plan { ops, estimated_tokens: self.estimated_tokens, extras: wire.extras };
        Ok((plan, wire.outcome, wire.reason))
    }
}

fn encode_extras(wire: &WireExtras) -> RString {
    // Most plans have no extras. An empty string saves serialising and parsing in every `assemble`.
    if *wire == WireExtras::default() { RString::new() } else { to_json(wire) }
}

impl From<Op> for AbiOp {
    fn from(op: Op) -> Self {
        let range = op.action.range();
        let (kind, role, text) = match op.action {
            Action::Keep(_) => (KEEP, Role::Unknown, String::new()),
            Action::ReplaceText { text, .. } => (REPLACE_TEXT, Role::Unknown, text),
            Action::ReplaceRaw { raw, .. } => (REPLACE_RAW, Role::Unknown, raw),
            Action::Insert { role, text, .. } => (INSERT, role, text),
            Action::Drop(_) => (DROP, Role::Unknown, String::new()),
            // Passed on unchanged, so that the host rejects the plan and names the kind.
            Action::Unknown(kind) => (kind, Role::Unknown, String::new()),
        };
        AbiOp {
            kind,
            role: role.code(),
            a: range.start,
            b: range.end,
            text: text.into(),
            ext_json: op.note.as_ref().map_or_else(RString::new, to_json),
        }
    }
}

impl From<AbiOp> for Op {
    fn from(raw: AbiOp) -> Self {
        let text = raw.text.into_string();
        // Not validated here: the host's invariants report invalid ranges with their position.
        let range = raw.a..raw.b;
        let action = match raw.kind {
            KEEP => Action::Keep(range),
            REPLACE_TEXT => Action::ReplaceText { seq: raw.a, text },
            REPLACE_RAW => Action::ReplaceRaw { seq: raw.a, raw: text },
            INSERT => Action::Insert { role: Role::from_code(raw.role), text, covers: range },
            DROP => Action::Drop(range),
            other => Action::Unknown(other),
        };
        // Notes are informational: one that does not parse must not fail the plan. Most operations have none.
        let note = Some(raw.ext_json.as_str()).filter(|json| !json.is_empty());
        let note = note.and_then(|json| from_json::<PlanNote>(json).ok());
        Op { action, note }
    }
}
