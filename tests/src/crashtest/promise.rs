//! What a child reports as acknowledged, one line each on standard output.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// One line of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// The session is open and work begins. Nothing is promised.
    Ready,
    /// A record is in the session, with a line of this hash.
    Record { id: String, hash: String },
    /// A message of this number is in the session: a model was shown it.
    ReceivedRequest(u64),
    /// A letter of this number is in the session or waits in its inbox.
    Letter(u64),
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::Ready => write!(f, "ready"),
            Promise::Record { id, hash } => write!(f, "record {id} {hash}"),
            Promise::ReceivedRequest(number) => write!(f, "heard {number}"),
            Promise::Letter(number) => write!(f, "letter {number}"),
        }
    }
}

impl FromStr for Promise {
    type Err = ();

    fn from_str(line: &str) -> Result<Promise, ()> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |digits: &str| digits.parse::<u64>().map_err(drop);
        match words.as_slice() {
            ["ready"] => Ok(Promise::Ready),
            ["record", id, hash] => {
                Ok(Promise::Record { id: (*id).to_owned(), hash: (*hash).to_owned() })
            }
            ["heard", digits] => number(digits).map(Promise::ReceivedRequest),
            ["letter", digits] => number(digits).map(Promise::Letter),
            _ => Err(()),
        }
    }
}

/// Where a child's promises go.
pub(super) struct Promises(Mutex<Box<dyn Write + Send>>);

impl Promises {
    pub(super) fn to(out: Box<dyn Write + Send>) -> Promises {
        Promises(Mutex::new(out))
    }

    /// Makes a promise, with one write. A supervisor that listens no more has ended, and so may the child.
    pub(super) fn make(&self, promise: &Promise) -> io::Result<()> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.write_all(format!("{promise}\n").as_bytes())?;
        out.flush()
    }
}

/// The hash of a line, in hexadecimal digits.
pub(super) fn hash(line: &str) -> String {
    Sha256::digest(line.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_read_as_it_was_made() {
        let record = Promise::Record { id: "ab12cd34".into(), hash: hash("line") };
        for promise in
            [Promise::Ready, record, Promise::ReceivedRequest(7), Promise::Letter(u64::MAX)]
        {
            assert_eq!(promise.to_string().parse(), Ok(promise));
        }
        for half in ["", "rec", "heard", "record ab12cd34", "heard x"] {
            assert_eq!(half.parse::<Promise>(), Err(()));
        }
    }
}
