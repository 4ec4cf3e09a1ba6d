//! The results of the attacks: a row for each, and a summary line.

use serde_json::{Value, json};

/// One way in which a promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    /// Something acknowledged or sound cannot be read any more.
    Lost,
    /// An effect outside of what the attacker may touch, or a secret that came out.
    Escaped,
    /// A panic, a fatal signal or an exit of ctxhost that nobody asked for.
    Panic,
    /// It did not end in its time, or took more memory than its bound.
    Unbounded,
    /// Another promise: a client without an answer, a warning that is missing.
    Wrong,
}

impl Breach {
    fn name(self) -> &'static str {
        match self {
            Breach::Lost => "lost",
            Breach::Escaped => "escaped",
            Breach::Panic => "panic",
            Breach::Unbounded => "unbounded",
            Breach::Wrong => "wrong",
        }
    }
}

/// What came of one attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) tries: &'static str,
    pub(crate) tried: u64,
    pub(crate) seconds: f64,
    pub(crate) breaches: Vec<(Breach, String)>,
    /// Why all or a part of it was not tried on this machine.
    pub(crate) skipped: Vec<String>,
}

impl Row {
    fn count(&self, breach: Breach) -> usize {
        self.breaches.iter().filter(|(kind, _)| *kind == breach).count()
    }

    fn verdict(&self) -> &'static str {
        match (self.breaches.is_empty(), self.tried) {
            (false, _) => "BROKEN",
            (true, 0) => "SKIPPED",
            (true, _) => "HELD",
        }
    }
}

/// Whether anything broke.
pub(crate) fn is_broken(rows: &[Row]) -> bool {
    rows.iter().any(|row| !row.breaches.is_empty())
}

fn total(rows: &[Row], breach: Breach) -> usize {
    rows.iter().map(|row| row.count(breach)).sum()
}

fn summary(rows: &[Row]) -> String {
    let broken = rows.iter().filter(|row| !row.breaches.is_empty()).count();
    let tried: u64 = rows.iter().map(|row| row.tried).sum();
    format!(
        "{} attacks, {} lost, {} escaped, {} panics, {} unbounded, {} wrong; {tried} tries, {broken} broken",
        rows.len(),
        total(rows, Breach::Lost),
        total(rows, Breach::Escaped),
        total(rows, Breach::Panic),
        total(rows, Breach::Unbounded),
        total(rows, Breach::Wrong),
    )
}

/// The table for people.
pub(crate) fn print_table(rows: &[Row]) {
    println!(
        "{:<10} {:<26} {:>6} {:>5} {:>8} {:>7} {:>8} {:>7}  verdict",
        "group", "attack", "tried", "lost", "escaped", "panics", "in time", "seconds"
    );
    for row in rows {
        println!(
            "{:<10} {:<26} {:>6} {:>5} {:>8} {:>7} {:>8} {:>7.1}  {}",
            row.group,
            row.name,
            row.tried,
            row.count(Breach::Lost),
            row.count(Breach::Escaped),
            row.count(Breach::Panic),
            if row.count(Breach::Unbounded) == 0 { "yes" } else { "no" },
            row.seconds,
            row.verdict()
        );
        for (breach, what) in &row.breaches {
            println!("    {}: {what}", breach.name());
        }
        for why in &row.skipped {
            println!("    SKIPPED: {why}");
        }
    }
    println!("{}", summary(rows));
}

/// The same for programs: an object with `attacks`, a list, and the totals.
pub(crate) fn print_json(rows: &[Row]) {
    let each = |row: &Row| -> Value {
        let broke = row.breaches.iter().map(|(breach, what)| json!([breach.name(), what]));
        json!({
            "group": row.group,
            "attack": row.name,
            "tries": row.tries,
            "tried": row.tried,
            "lost": row.count(Breach::Lost),
            "escaped": row.count(Breach::Escaped),
            "panics": row.count(Breach::Panic),
            "wrong": row.count(Breach::Wrong),
            "bounded": row.count(Breach::Unbounded) == 0,
            "seconds": row.seconds,
            "verdict": row.verdict(),
            "broke": broke.collect::<Vec<_>>(),
            "skipped": row.skipped,
        })
    };
    let whole = json!({
        "attacks": rows.iter().map(each).collect::<Vec<_>>(),
        "lost": total(rows, Breach::Lost),
        "escaped": total(rows, Breach::Escaped),
        "panics": total(rows, Breach::Panic),
        "unbounded": total(rows, Breach::Unbounded),
        "wrong": total(rows, Breach::Wrong),
        "broken": is_broken(rows),
    });
    println!("{whole:#}");
}
