//! When to kill: after a time, at a log event, within a write.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};

/// The longest a child works before a kill by the clock: a few turns.
const SHORT_WORK: Duration = Duration::from_millis(60);

/// The longest one in four works: a few compactions, also where the program was not optimised.
const LONG_WORK: Duration = Duration::from_millis(600);

/// The longest a child lives before it has opened its session, for a kill that early.
const LONGEST_START: Duration = Duration::from_millis(20);

/// The most points a child passes before a kill at one.
const MOST_POINTS: u64 = 60;

/// The most points of compactions a child passes before a kill at one; each compaction has three.
const MOST_COMPACTION_POINTS: u64 = 6;

/// The most of one in four: less than a line, also than the first one of a session.
const FEW_BYTES: u64 = 200;

/// Who logs the points of compactions.
const COMPACTIONS: &str = "session::pending_compaction";

/// The most bytes a session grows by before a kill in a write.
const MOST_BYTES: u64 = 40_000;

/// How a child will die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Killed so long after it was started.
    Early(Duration),
    /// Killed so long after its session was open.
    Late(Duration),
    /// It kills itself at the so many-th event of its log.
    Point(u64),
    /// It kills itself at the so many-th event that is a step of a compaction.
    Compaction(u64),
    /// The system ends it in the write that makes a file longer than its session is now, by so many bytes.
    Write(u64),
}

impl Way {
    /// One by chance.
    pub(super) fn draw(random: &mut fastrand::Rng) -> Way {
        let within = |random: &mut fastrand::Rng, most: Duration| {
            Duration::from_micros(random.u64(0..most.as_micros() as u64))
        };
        match random.u32(0..10) {
            0 => Way::Early(within(random, LONGEST_START)),
            1..=3 if random.u8(0..4) == 0 => Way::Late(within(random, LONG_WORK)),
            1..=3 => Way::Late(within(random, SHORT_WORK)),
            4..=5 => Way::Point(random.u64(1..=MOST_POINTS)),
            6..=7 => Way::Compaction(random.u64(1..=MOST_COMPACTION_POINTS)),
            _ if random.u8(0..4) == 0 => Way::Write(random.u64(0..FEW_BYTES)),
            _ => Way::Write(random.u64(0..MOST_BYTES)),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Early(after) => write!(f, "{after:?} after its start"),
            Way::Late(after) => write!(f, "{after:?} after its session was open"),
            Way::Point(number) => write!(f, "at point {number} of its log"),
            Way::Compaction(number) => write!(f, "at step {number} of its compactions"),
            Way::Write(bytes) => write!(f, "in a write, {bytes} bytes on"),
        }
    }
}

/// Points that are still to be passed; the child dies at the last one.
#[derive(Clone, Debug)]
pub(super) struct Points {
    any: Arc<AtomicU64>,
    of_compactions: Arc<AtomicU64>,
}

impl Points {
    /// So many, or as good as none that ends anything.
    pub(super) fn left(any: Option<u64>, of_compactions: Option<u64>) -> Points {
        let left = |points: Option<u64>| Arc::new(AtomicU64::new(points.unwrap_or(u64::MAX)));
        Points { any: left(any), of_compactions: left(of_compactions) }
    }

    /// One is passed.
    pub(super) fn pass(&self) {
        pass_one(&self.any);
    }
}

fn pass_one(left: &AtomicU64) {
    if left.fetch_sub(1, Ordering::Relaxed) == 1 {
        // A signal to oneself cannot fail, and if it did the supervisor's patience ends.
        let _ = raise(Signal::SIGKILL);
    }
}

/// Everything that the host logs is a point.
impl Subscriber for Points {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        self.pass();
        if event.metadata().target().ends_with(COMPACTIONS) {
            pass_one(&self.of_compactions);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// From here on the write that would make a file longer ends the process, with a part of it written.
pub(super) fn limit_files(bytes: u64) -> std::io::Result<()> {
    // The signal would leave an image of the process for each kill.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    setrlimit(Resource::RLIMIT_FSIZE, bytes, bytes)?;
    Ok(())
}
