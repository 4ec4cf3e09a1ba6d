//! Ways to die: after a while, at a point of the log, in the middle of a write.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};

/// The longest a child works before a kill by the clock.
const LONGEST_WORK: Duration = Duration::from_millis(60);

/// The longest a child lives before it has opened its session, for a kill that early.
const LONGEST_START: Duration = Duration::from_millis(20);

/// The most points a child passes before a kill at one.
const MOST_POINTS: u64 = 60;

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
            1..=3 => Way::Late(within(random, LONGEST_WORK)),
            4..=6 => Way::Point(random.u64(1..=MOST_POINTS)),
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
            Way::Write(bytes) => write!(f, "in a write, {bytes} bytes on"),
        }
    }
}

/// Points that are still to be passed; the child dies at the last one.
#[derive(Clone, Debug)]
pub(super) struct Points(Arc<AtomicU64>);

impl Points {
    /// So many, or as good as none that ends anything.
    pub(super) fn left(points: Option<u64>) -> Points {
        Points(Arc::new(AtomicU64::new(points.unwrap_or(u64::MAX))))
    }

    /// One is passed.
    pub(super) fn pass(&self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            // A signal to oneself cannot fail, and if it did the keeper's patience ends.
            let _ = raise(Signal::SIGKILL);
        }
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

    fn event(&self, _: &Event<'_>) {
        self.pass();
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
