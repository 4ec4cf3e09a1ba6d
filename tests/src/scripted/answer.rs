//! An answer before it is put into a dialect.

use serde_json::Value;

use super::model::{chars_of, tokens};
use super::script::Step;
use crate::rules::{Issued, Part};

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) blocks: Vec<Block>,
    pub(super) stop: Stop,
    pub(super) usage: Usage,
}

/// One block of it.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Think { id: String, text: String, signature: String },
    Text { id: String, text: String, signature: String },
    Call { id: String, call_id: String, tool: String, args: Value, signature: String },
}

/// Why it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Done,
    Calls,
    Length,
    /// The window was full: Anthropic's newer models.
    Window,
}

/// What it costs, in tokens. `prompt` holds `cached` and `written`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) cached: u64,
    pub(super) written: u64,
    pub(super) output: u64,
    pub(super) thinking: u64,
}

/// Makes ids and signatures.
#[derive(Debug)]
pub(super) struct Mint<'a> {
    pub(super) random: &'a mut fastrand::Rng,
    /// What ids of calls begin with.
    pub(super) call_prefix: &'static str,
    /// Whether the first call of every answer is signed.
    pub(super) signs_calls: bool,
}

impl Mint<'_> {
    /// An id of letters and digits.
    pub(super) fn id(&mut self, prefix: &str, chars: usize) -> String {
        let random: String = (0..chars).map(|_| self.random.alphanumeric()).collect();
        format!("{prefix}{random}")
    }

    /// Letters and digits that are Base64.
    pub(super) fn signature(&mut self) -> String {
        let quads = self.random.usize(20..80);
        self.id("", quads * 4)
    }

    /// The blocks of an answer.
    pub(super) fn blocks(&mut self, steps: &[Step]) -> Vec<Block> {
        let thinks = steps.iter().any(|step| matches!(step, Step::Think(_)));
        let calls = steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let mut unsigned = thinks || self.signs_calls;
        let mut sign = |mint: &mut Self, wanted: bool| {
            let now = wanted && std::mem::take(&mut unsigned);
            if now { mint.signature() } else { String::new() }
        };
        let block = |step: &Step| match step {
            Step::Think(text) => Block::Think {
                id: self.id("rs_", 48),
                text: text.clone(),
                signature: self.signature(),
            },
            Step::Say(text) => Block::Text {
                id: self.id("msg_", 48),
                text: text.clone(),
                signature: sign(self, thinks && !calls),
            },
            Step::Call { tool, args } => Block::Call {
                id: self.id("fc_", 48),
                call_id: self.id(self.call_prefix, 22),
                tool: tool.clone(),
                args: args.clone(),
                signature: sign(self, true),
            },
        };
        steps.iter().map(block).collect()
    }
}

impl Answer {
    /// Cuts what is longer than the limit, in tokens.
    pub(super) fn limit(&mut self, max_tokens: u64) {
        let mut left = chars_of(max_tokens);
        let mut cut = false;
        self.blocks.retain_mut(|block| {
            let chars = block.chars();
            if chars <= left && !cut {
                left -= chars;
                return true;
            }
            let keeps = !cut && block.shorten(left);
            cut = true;
            keeps
        });
        if cut {
            self.stop = Stop::Length;
        }
        self.count();
    }

    /// Keeps the beginning of its texts, and no call.
    pub(super) fn break_off(&mut self, after_text: bool) {
        self.blocks.retain_mut(|block| match block {
            Block::Think { .. } => true,
            Block::Text { .. } => after_text && block.shorten(block.chars().div_ceil(2)),
            Block::Call { .. } => false,
        });
        self.stop = Stop::Window;
        self.count();
    }

    fn count(&mut self) {
        let think = |block: &Block| matches!(block, Block::Think { .. });
        let chars = |blocks: &mut dyn Iterator<Item = &Block>| blocks.map(Block::chars).sum();
        self.usage.output = tokens(chars(&mut self.blocks.iter()));
        self.usage.thinking = tokens(chars(&mut self.blocks.iter().filter(|block| think(block))));
    }

    /// What the memory keeps of it.
    pub(super) fn issued(&self, is_stored: bool) -> Issued {
        let parts = self.blocks.iter().cloned().map(|block| match block {
            Block::Think { id, text, signature } => Part::Thinking { id, text, signature },
            Block::Text { id, text, signature } => Part::Text { id, text, signature },
            Block::Call { id, call_id, tool, signature, .. } => {
                Part::Call { id, call_id, name: tool, signature }
            }
        });
        Issued { response_id: self.id.clone(), is_stored, parts: parts.collect() }
    }

    /// How many calls it makes.
    pub(super) fn calls(&self) -> usize {
        self.blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count()
    }
}

impl Block {
    fn chars(&self) -> usize {
        match self {
            Block::Think { text, .. } | Block::Text { text, .. } => text.chars().count(),
            Block::Call { tool, args, .. } => tool.len() + args.to_string().chars().count(),
        }
    }

    /// Whether something is left of it.
    fn shorten(&mut self, chars: usize) -> bool {
        match self {
            Block::Think { .. } | Block::Call { .. } => false,
            Block::Text { text, .. } => {
                *text = text.chars().take(chars).collect();
                !text.is_empty()
            }
        }
    }
}
