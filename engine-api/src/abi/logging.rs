//! Sends `tracing` events of a loaded engine to the host's log.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Level, Metadata, Subscriber};

use super::guard::catch_panic;
use crate::host::{Host, LogLevel};

/// Sets the global subscriber of this library; a second call has no effect.
pub(crate) fn install_subscriber(host: Host) {
    let _ =
        // Fails if the engine installed its own subscriber, which then has priority.
        tracing_core::dispatcher::set_global_default(tracing_core::Dispatch::new(LogSubscriber {
            host,
        }));
}

struct LogSubscriber {
    host: Host,
}

impl Subscriber for LogSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Each event crosses the ABI as JSON, which is too expensive for TRACE.
        *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let target = event.metadata().target();
        fields.others.insert("target".into(), target.into());
        let level = level(*event.metadata().level());
        let _ = catch_panic(|| {
            self.host.log_fields(level, &fields.message, &Value::Object(fields.others))
        });
    }

    // Spans are ignored: log lines are made from events only.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Never used, but ids must not be zero.
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct EventFields {
    message: String,
    others: Map<String, Value>,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.others.insert(field.name().into(), format!("{value:?}").into());
        }
    }
}

fn level(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}
