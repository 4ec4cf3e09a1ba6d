//! What each session's model has read last: a summary that is asked for behind it costs only what is new.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_dialects::ModelRequest;
use ctxhost_provider::Prefixes;

use ctxhost_models::ModelName;

/// The last answered request of each session.
#[derive(Debug, Default)]
pub(super) struct LivePrefixes {
    read: Mutex<HashMap<String, (ModelName, Arc<ModelRequest>)>>,
}

impl LivePrefixes {
    /// A model has read a request of a session.
    pub(super) fn read(&self, session: &str, model: &ModelName, request: &ModelRequest) {
        let read = (model.clone(), Arc::new(request.clone()));
        self.all().insert(session.to_owned(), read);
    }

    /// A session is closed, or its history is another one.
    pub(super) fn forget(&self, session: &str) {
        self.all().remove(session);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, (ModelName, Arc<ModelRequest>)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Prefixes for LivePrefixes {
    fn of(&self, session: &str, provider: &str, model: &str) -> Option<Arc<ModelRequest>> {
        let all = self.all();
        let (name, request) = all.get(session)?;
        (name.provider == provider && name.id == model).then(|| request.clone())
    }
}
