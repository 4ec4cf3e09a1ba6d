//! The child process: works in a session until it is killed, and reports what was acknowledged.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::kill::{Points, limit_files};
use super::model::{EchoModel, Look, PROVIDER};
use super::promise::{Promise, Promises, hash};
use super::speech::text_of;
use super::{CrashtestError, cannot};
use ctxhost_agent::inbox::Inbox;
use ctxhost_agent::{Runtime, RuntimeBuilder, SessionId};
use ctxhost_config::Config;
use ctxhost_context::LiveSession;
use ctxhost_dialects::ChatMessage;
use ctxhost_session::Session;

/// The window of the model: small, so that sessions are compacted every few turns.
const WINDOW_TOKENS: u64 = 16_000;

/// Compactions are worked out ahead from here on, so that some are killed that nobody waits for.
const CONFIG: &str = "[compaction]\nprecompute_share = 0.7\n";

/// How long a child that lies waits before it does what it said it had done.
const LIE: Duration = Duration::from_millis(5);

/// What a child is to do.
#[derive(Clone, Debug, clap::Args)]
pub struct Orders {
    /// The session to work in; it is begun where it is not there.
    #[arg(long)]
    pub session: PathBuf,
    /// What chance begins with.
    #[arg(long)]
    pub seed: u64,
    /// It kills itself at this point of its log.
    #[arg(long)]
    pub points: Option<u64>,
    /// It kills itself at this step of its compactions.
    #[arg(long)]
    pub compaction_points: Option<u64>,
    /// No file may become longer.
    #[arg(long)]
    pub file_bytes: Option<u64>,
    /// It promises before it writes: to see whether anybody notices.
    #[arg(long)]
    pub lies: bool,
}

/// Works until it is killed. Promises go to `out`.
///
/// # Errors
///
/// [`CrashtestError`]: whatever a runtime answers.
pub fn live(orders: &Orders, out: Box<dyn Write + Send>) -> Result<(), CrashtestError> {
    let points = Points::left(orders.points, orders.compaction_points);
    let promises = Arc::new(Promises::to(out));
    tracing::subscriber::with_default(points.clone(), || {
        if let Some(bytes) = orders.file_bytes {
            limit_files(bytes).map_err(cannot("limit files"))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(cannot("start"))?.block_on(async {
            let mut child = Child::begin(orders, promises, points).await?;
            loop {
                child.step().await?;
            }
        })
    })
}

struct Child<'a> {
    orders: &'a Orders,
    runtime: Runtime,
    session: SessionId,
    random: fastrand::Rng,
    promises: Arc<Promises>,
    points: Points,
    /// Records that were promised, or were there before.
    promised_records: usize,
}

impl<'a> Child<'a> {
    async fn begin(
        orders: &'a Orders,
        promises: Arc<Promises>,
        points: Points,
    ) -> Result<Self, CrashtestError> {
        let mut random = fastrand::Rng::with_seed(orders.seed);
        let echo = EchoModel::new(random.u64(..), promises.clone(), points.clone());
        let builder = RuntimeBuilder::from_config(&Config::parse("crashtest", CONFIG)?)
            .model(&format!("{PROVIDER}/model"))
            .window_tokens(WINDOW_TOKENS)
            .client(Arc::new(echo))
            .without_builtin_tools()
            .tool(Arc::new(Look { points: points.clone() }));
        let runtime = builder.build().await?;
        let path = &orders.session;
        if path.exists() && random.bool() {
            store_inbox_message(orders, &promises, random.u64(..))?;
        }
        let session = if path.exists() {
            runtime.open_session(path)?
        } else {
            runtime.create_session(path, path.parent().unwrap_or(path))?
        };
        let promised_records = runtime.with_session(&session, count).await?;
        make(&promises, &Promise::Ready)?;
        Ok(Child { orders, runtime, session, random, promises, points, promised_records })
    }

    /// Does something, and promises all that is in the session then.
    async fn step(&mut self) -> Result<(), CrashtestError> {
        self.points.pass();
        match self.random.u32(0..20) {
            0..=12 => self.say().await?,
            // The second one waits in the inbox while the first is answered.
            13..=15 => {
                let (one, two) = (text_of(self.random.u64(..)), text_of(self.random.u64(..)));
                let both = tokio::join!(
                    self.runtime.send(&self.session, &one),
                    self.runtime.send(&self.session, &two),
                );
                both.0?;
                both.1?;
            }
            16..=17 => drop(self.runtime.compact(&self.session, None).await?),
            _ => drop(self.runtime.undo(&self.session).await?),
        }
        self.promise_records().await
    }

    async fn say(&mut self) -> Result<(), CrashtestError> {
        let number = self.random.u64(..);
        if self.orders.lies {
            make(&self.promises, &Promise::ReceivedRequest(number))?;
            tokio::time::sleep(LIE).await;
        }
        self.runtime.send(&self.session, &text_of(number)).await?;
        Ok(())
    }

    async fn promise_records(&mut self) -> Result<(), CrashtestError> {
        let known = self.promised_records;
        let promises =
            self.runtime.with_session(&self.session, |conversation| new(conversation, known));
        let promises = promises.await?;
        self.promised_records += promises.len();
        promises.iter().try_for_each(|promise| make(&self.promises, promise))
    }
}

fn count(conversation: &LiveSession) -> usize {
    conversation.session().records().len()
}

/// The records behind those that are known.
fn new(conversation: &LiveSession, known: usize) -> Vec<Promise> {
    let records = conversation.session().records().iter().skip(known);
    let promise = records
        .map(|record| Promise::Record { id: record.id().to_owned(), hash: hash(record.line()) });
    promise.collect()
}

/// Somebody speaks to a session that nobody is at work in.
fn store_inbox_message(
    orders: &Orders,
    promises: &Promises,
    number: u64,
) -> Result<(), CrashtestError> {
    let session = Session::open(&orders.session)?;
    let message =
        serde_json::to_string(&ChatMessage::from_user_text(text_of(number))).unwrap_or_default();
    Inbox::open(&session)?.push(&message)?;
    make(promises, &Promise::Letter(number))
}

fn make(promises: &Promises, promise: &Promise) -> Result<(), CrashtestError> {
    promises.make(promise).map_err(cannot("speak to the supervisor"))
}
