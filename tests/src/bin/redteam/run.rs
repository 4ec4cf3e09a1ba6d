//! Runs attacks concurrently, each in a stand of its own with a time limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::report::{Breach, Row};
use crate::stand::Stand;

/// How long an attack may take, in the short form and else. What takes longer is unbounded by definition.
const SHORT_LIMIT: Duration = Duration::from_secs(50);
const LIMIT: Duration = Duration::from_secs(600);
/// How long an attack whose processes were killed may take to notice.
const LETTING_GO: Duration = Duration::from_secs(10);

/// One attack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    /// What it tries, in a sentence.
    pub(crate) tries: &'static str,
    /// Left out of the short form: it waits long, or needs a build that the gate does elsewhere.
    pub(crate) is_long: bool,
    pub(crate) run: fn(&Stand),
}

impl Attack {
    pub(crate) fn new(
        group: &'static str,
        name: &'static str,
        tries: &'static str,
        run: fn(&Stand),
    ) -> Attack {
        Attack { group, name, tries, is_long: false, run }
    }
}

/// What all attacks of a run have in common.
#[derive(Clone, Debug)]
pub(crate) struct Campaign {
    pub(crate) binary: PathBuf,
    pub(crate) is_short: bool,
    pub(crate) is_long: bool,
    pub(crate) seed: u64,
    pub(crate) at_once: usize,
    pub(crate) keep: Option<PathBuf>,
}

impl Campaign {
    /// Runs them all; rows in their order.
    pub(crate) fn run(&self, attacks: &[Attack], tells: bool) -> Vec<Row> {
        let is_wanted = |attack: &&Attack| !self.is_short || !attack.is_long;
        let attacks: Vec<&Attack> = attacks.iter().filter(is_wanted).collect();
        let next = AtomicUsize::new(0);
        let rows = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..self.at_once {
                scope.spawn(|| {
                    while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let row = self.run_one(attack);
                        if tells && !row.breaches.is_empty() {
                            eprintln!("BROKEN {} {}", row.group, row.name);
                        }
                        rows.lock().unwrap().push(row);
                    }
                });
            }
        });
        let mut rows = rows.into_inner().unwrap();
        let place =
            |row: &Row| attacks.iter().position(|it| (it.group, it.name) == (row.group, row.name));
        rows.sort_by_key(place);
        rows
    }

    fn run_one(&self, attack: &Attack) -> Row {
        let begun = Instant::now();
        let stand = Arc::new(Stand::new(self, attack.name));
        let (ended, end) = mpsc::channel();
        let run = attack.run;
        let own = stand.clone();
        std::thread::spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&own)));
            if let Err(panic) = outcome {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
                let text = text.unwrap_or_default();
                own.broke(Breach::Wrong, format!("the attack could not go on: {text}"));
            }
            let _ = ended.send(());
        });
        let limit = if self.is_short { SHORT_LIMIT } else { LIMIT };
        if end.recv_timeout(limit).is_err() {
            stand.broke(Breach::Unbounded, format!("not over after {} s", limit.as_secs()));
            stand.kill_all();
            let _ = end.recv_timeout(LETTING_GO);
        }
        stand.kill_all();
        let record = stand.record();
        Row {
            group: attack.group,
            name: attack.name,
            tries: attack.tries,
            tried: record.tried,
            seconds: begun.elapsed().as_secs_f64(),
            breaches: record.breaches,
            skipped: record.skipped,
        }
    }
}
