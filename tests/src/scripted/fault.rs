//! The faults of the server, and when each occurs.

use std::collections::{BTreeMap, VecDeque};

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is said to be too large, in the form of the model, whatever its size.
    Overflow,
    /// The same inside a stream.
    OverflowMidStream {
        /// Whether some text has come already.
        after_text: bool,
    },
    /// 429.
    RateLimited {
        /// What the header `retry-after` says, in seconds.
        retry_after_s: u64,
    },
    /// 529 of Anthropic, 503 of the others.
    Overloaded,
    /// 500.
    ServerError,
    /// 200 and not one byte.
    EmptyBody,
    /// 200 and a whole stream in which nothing is said.
    NothingSaid,
    /// The connection ends at a random byte.
    CutStream,
    /// The stream ends well-formed, at a random byte.
    EndEarly,
    /// The stream stops at a random byte and the connection stays.
    HangMidStream,
    /// A frame that is no JSON.
    WrongJson,
    /// 502 of a proxy that writes HTML.
    HtmlPage,
    /// All is well, later.
    SlowFirstByte {
        /// So much later.
        delay_ms: u64,
    },
    /// Nothing comes, for ever.
    Hang,
    /// The connection is reset.
    Reset,
    /// 401.
    Unauthorized,
    /// 402.
    NoCredit,
    /// 404 for the model.
    NoModel,
    /// This and no more, as some other provider says it.
    Says {
        /// The status.
        status: u16,
        /// The body, in JSON.
        body: &'static str,
    },
}

/// When what goes wrong.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub(super) next: VecDeque<Fault>,
    pub(super) always: Option<Fault>,
    planned: BTreeMap<usize, Fault>,
    random: Option<(fastrand::Rng, f64, Vec<Fault>)>,
}

impl Faults {
    /// Never.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Each answer meets one of the kinds with a chance between 0 and 1.
    pub fn random(seed: u64, chance: f64, kinds: impl IntoIterator<Item = Fault>) -> Faults {
        let random = (fastrand::Rng::with_seed(seed), chance, kinds.into_iter().collect());
        Faults { random: Some(random), ..Faults::default() }
    }

    /// Request `n`, counted from 0 over all requests, meets this one.
    #[must_use]
    pub fn at(mut self, n: usize, fault: Fault) -> Faults {
        self.planned.insert(n, fault);
        self
    }

    /// What request `n` meets.
    pub(super) fn take(&mut self, n: usize) -> Option<Fault> {
        let planned = self.planned.remove(&n).or_else(|| self.next.pop_front()).or(self.always);
        planned.or_else(|| {
            let (random, chance, kinds) = self.random.as_mut()?;
            if random.f64() >= *chance { None } else { random.choice(kinds.iter()).copied() }
        })
    }
}
