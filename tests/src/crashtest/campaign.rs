//! Many kills: several supervisors at once, one count.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde::Serialize;

use super::CrashtestError;
use super::supervisor::{ChildCommand, Supervisor};
use ctxhost_session::{Record, RecordKind, Session, UNDO_TYPE};

/// Sessions that one worker takes in turn.
const SESSIONS_OF_WORKER: usize = 3;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// How many kills.
    pub times: u64,
    /// What chance begins with.
    pub seed: u64,
    /// How many children live at once.
    pub at_once: usize,
    /// The folder for the sessions.
    pub folder: PathBuf,
    /// The binary whose `child` is killed: this one.
    pub program: PathBuf,
    /// Children promise before they write: to see whether anybody notices.
    pub lies: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Children that were killed.
    pub kills: u64,
    /// Sessions that were as promised afterwards.
    pub intact: u64,
    /// Records, messages and letters that children promised to have kept.
    pub promises: u64,
    /// Compactions that a kill had cut short after their result: they are in the session now.
    pub redone: u64,
    /// Compactions that a kill had cut short earlier, or that were in the session already.
    pub discarded: u64,
    /// Kills that left a part of a line at the end of a session.
    pub torn: u64,
    /// Sessions that were worked in.
    pub sessions: u64,
    /// Compactions in them.
    pub compactions: u64,
    /// Undos in them.
    pub undos: u64,
}

impl Tally {
    /// A session is worked in no more.
    pub(super) fn closed(&mut self, session: &Session, promises: usize) {
        let count = |is_it: &dyn Fn(&Record) -> bool| {
            session.records().iter().filter(|record| is_it(record)).count() as u64
        };
        self.sessions += 1;
        self.promises += promises as u64;
        self.compactions += count(&|record| *record.kind() == RecordKind::Compaction);
        self.undos += count(&|record| record.custom_data(UNDO_TYPE).is_some());
    }

    fn add(&mut self, other: &Tally) {
        self.kills += other.kills;
        self.intact += other.intact;
        self.promises += other.promises;
        self.redone += other.redone;
        self.discarded += other.discarded;
        self.torn += other.torn;
        self.sessions += other.sessions;
        self.compactions += other.compactions;
        self.undos += other.undos;
    }
}

impl Campaign {
    /// Kills until it was often enough, or until something is not as promised.
    ///
    /// # Errors
    ///
    /// [`CrashtestError::Violation`] with the first thing that was lost; the folder is left as it is.
    pub fn run(&self) -> Result<Tally, CrashtestError> {
        let (begun, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let work = |worker: usize| {
            let done = self.work(worker, &begun, &is_over);
            is_over.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        let work = &work;
        let tallies: Vec<Result<Tally, CrashtestError>> = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.at_once).map(|worker| scope.spawn(move || work(worker))).collect();
            workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
        });
        let mut sum = Tally::default();
        for tally in tallies {
            sum.add(&tally?);
        }
        Ok(sum)
    }

    /// What one worker does: its sessions in turn.
    fn work(
        &self,
        worker: usize,
        begun: &AtomicU64,
        is_over: &AtomicBool,
    ) -> Result<Tally, CrashtestError> {
        let mut random = fastrand::Rng::with_seed(self.seed.wrapping_add(worker as u64));
        let command = ChildCommand { program: self.program.clone(), lies: self.lies };
        let mut tally = Tally::default();
        let mut supervisors: Vec<Supervisor> = (0..SESSIONS_OF_WORKER)
            .map(|at| Supervisor::of(self.folder.join(format!("worker-{worker}-{at}"))))
            .collect();
        'all: loop {
            for supervisor in &mut supervisors {
                let kill = begun.fetch_add(1, Ordering::Relaxed) + 1;
                if kill > self.times || is_over.load(Ordering::Relaxed) {
                    break 'all;
                }
                supervisor.round(kill, &mut random, &command, &mut tally)?;
            }
        }
        supervisors.iter().for_each(|supervisor| supervisor.close(&mut tally));
        Ok(tally)
    }
}
