//! The last request of each session, which its provider has cached: a summary request that extends it costs little.

use std::collections::HashMap;
use std::sync::Arc;

use ctxhost_dialects::ModelRequest;
use ctxhost_provider::PrefixSource;
use parking_lot::Mutex;

use ctxhost_models::ModelName;

/// The last answered request of each session.
#[derive(Debug, Default)]
pub(super) struct CachedPrefixes {
    requests: Mutex<HashMap<String, (ModelName, Arc<ModelRequest>)>>,
}

impl CachedPrefixes {
    /// Records an answered request.
    pub(super) fn record(&self, session: &str, model: &ModelName, request: &ModelRequest) {
        let cached = (model.clone(), Arc::new(request.clone()));
        self.requests.lock().insert(session.to_owned(), cached);
    }

    /// Removes a session that was closed or whose history has changed.
    pub(super) fn forget(&self, session: &str) {
        self.requests.lock().remove(session);
    }
}

impl PrefixSource for CachedPrefixes {
    fn last_request(
        &self,
        session: &str,
        provider: &str,
        model: &str,
    ) -> Option<Arc<ModelRequest>> {
        let all = self.requests.lock();
        let (name, request) = all.get(session)?;
        // Another model has cached nothing.
        (name.provider == provider && name.id == model).then(|| request.clone())
    }
}
