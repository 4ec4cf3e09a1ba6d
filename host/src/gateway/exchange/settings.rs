//! The numbers of an exchange.

/// How conversations are kept and what a request may ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeSettings {
    /// How many conversations stay in memory, by their keys. Default 256: a busy team's, at some
    /// megabytes each.
    pub conversations: usize,
    /// How long one stays that nobody goes on with, in milliseconds. Default 900,000: three times as
    /// long as a provider keeps a prefix, so that coming back costs a file at most.
    pub conversation_idle_ms: u64,
    /// How often a request that its upstream finds too large is made smaller. Default 3, as in a turn of
    /// our own.
    pub too_large_tries: u32,
    /// The largest share of the window that an answer may hold free. Default 0.75: clients ask for the
    /// longest answer of the model, whatever its window, and a conversation needs room as well.
    pub reserve_max_share: f64,
}

impl Default for ExchangeSettings {
    fn default() -> Self {
        ExchangeSettings {
            conversations: 256,
            conversation_idle_ms: 900_000,
            too_large_tries: 3,
            reserve_max_share: 0.75,
        }
    }
}
