//! Recent counts of a model, and the rates that explain them.

use std::collections::VecDeque;

use ctxhost_config::AccountingSettings;

use super::rates::TokenRates;

/// Images and files are estimated by their bytes, and their price differs a hundredfold between models and levels of detail. From this
/// share of a request on, its count says more about them than about the text.
const MIN_ATTACHMENT_SHARE: f64 = 0.2;

/// The smallest factor of images and files: 40 tokens for one, where the cheapest ones cost 64 to 85.
const MIN_ATTACHMENT_FACTOR: f64 = 0.02;

/// Two counts show what is added for more text, if their sizes differ by this share: below it, the error of an estimate decides.
const MIN_GROWTH: f64 = 0.25;

/// A constant part below this share of a typical count is within the error of a factor.
const MIN_HIDDEN_SHARE: f64 = 0.125;

/// The largest error of a count that a constant part and a factor explain.
const MAX_HIDDEN_ERROR: f64 = 0.15;

/// A provider's count of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TokenSample {
    /// The estimate of its text.
    pub(super) text_tokens: u64,
    /// The estimate of its images and files.
    pub(super) attachment_tokens: u64,
    /// In provider tokens.
    pub(super) counted_tokens: u64,
}

impl TokenSample {
    /// Whether it says more about text than about images and files.
    pub(super) fn is_text(&self) -> bool {
        self.attachment_tokens as f64 <= MIN_ATTACHMENT_SHARE * self.estimated_tokens()
    }

    fn estimated_tokens(&self) -> f64 {
        self.text_tokens as f64 + self.attachment_tokens as f64
    }
}

/// Recent counts, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentCounts {
    recent: VecDeque<TokenSample>,
    /// The rates of these counts, for limits and typical: a request asks for them several times.
    rates: Option<(TokenRates, TokenRates)>,
}

impl RecentCounts {
    /// Records a count. Old ones are dropped: a session changes its language and content.
    pub(super) fn record(&mut self, sample: TokenSample, settings: &AccountingSettings) {
        self.recent.push_back(sample);
        while self.recent.len() > settings.remembered_counts.max(1) {
            self.recent.pop_front();
        }
        self.rates = Some(self.find_rates(settings));
    }

    /// The recent counts, oldest first.
    pub(super) fn recent(&self) -> impl Iterator<Item = TokenSample> {
        self.recent.iter().copied()
    }

    /// Whether there are enough counts for limits.
    pub(super) fn is_trusted(&self, settings: &AccountingSettings) -> bool {
        self.recent.len() >= settings.trusted_counts.max(1)
    }

    /// The rates for limits and the typical ones, neither part of which is above that for limits.
    pub(super) fn rates(&self, settings: &AccountingSettings) -> (TokenRates, TokenRates) {
        self.rates.unwrap_or_else(|| self.find_rates(settings))
    }

    fn find_rates(&self, settings: &AccountingSettings) -> (TokenRates, TokenRates) {
        let hidden_tokens = self.hidden_tokens(settings);
        let texts = self.recent().filter(TokenSample::is_text);
        let text = FactorRange::of_text(texts, hidden_tokens, settings);
        let attachments = self.attachment_factors(hidden_tokens, text.usual, settings);
        let attachments = attachments.unwrap_or(text);
        let limit = TokenRates { hidden_tokens, text: text.limit, attachments: attachments.limit };
        let usual = TokenRates { hidden_tokens, text: text.usual, attachments: attachments.usual };
        (limit, usual)
    }

    /// Whether a count has shown what images and files cost.
    pub(super) fn knows_attachments(&self) -> bool {
        self.recent().any(|sample| !sample.is_text())
    }

    /// The part of each count that does not grow with the content, by what is counted for more text. 0 if too few counts differ enough.
    fn hidden_tokens(&self, settings: &AccountingSettings) -> u64 {
        let texts: Vec<TokenSample> = self.recent().filter(TokenSample::is_text).collect();
        let mut slopes = Vec::new();
        for (number, one) in texts.iter().enumerate() {
            slopes.extend(texts.iter().skip(number + 1).filter_map(|other| slope(one, other)));
        }
        if slopes.len() < settings.trusted_counts.max(1) {
            return 0;
        }
        let slope = bounded(quantile(slopes, 0.5).unwrap_or(1.0), settings);
        let counted = |sample: &TokenSample| sample.counted_tokens as f64;
        let rest = |sample: &TokenSample| counted(sample) - slope * sample.estimated_tokens();
        let hidden = quantile(texts.iter().map(rest).collect(), 0.5).unwrap_or_default();
        let typical = quantile(texts.iter().map(counted).collect(), 0.5).unwrap_or_default();
        // A server that cuts its prompts also counts the same for more text, but less than this for some of them.
        let explains = |sample: &TokenSample| {
            (rest(sample) - hidden).abs() <= MAX_HIDDEN_ERROR * counted(sample)
        };
        let is_constant = hidden >= MIN_HIDDEN_SHARE * typical && texts.iter().all(explains);
        if is_constant { hidden as u64 } else { 0 }
    }

    /// The factors of images and files; `None` without a count of a request with many.
    fn attachment_factors(
        &self,
        hidden_tokens: u64,
        text: f64,
        settings: &AccountingSettings,
    ) -> Option<FactorRange> {
        let factor = |sample: TokenSample| {
            let rest = sample.counted_tokens.saturating_sub(hidden_tokens) as f64
                - text * sample.text_tokens as f64;
            let factor = rest / sample.attachment_tokens as f64;
            factor.max(MIN_ATTACHMENT_FACTOR).min(settings.max_factor)
        };
        let factors = self.recent().filter(|sample| !sample.is_text()).map(factor);
        let factors: Vec<f64> = factors.collect();
        let usual = quantile(factors.clone(), 0.5)?;
        // A quantile of few counts is their maximum anyway.
        let limit = quantile(factors, settings.limit_quantile)?.max(usual);
        Some(FactorRange { limit, usual })
    }
}

/// A factor for limits and the typical one, which is at most that.
#[derive(Clone, Copy)]
struct FactorRange {
    limit: f64,
    usual: f64,
}

impl FactorRange {
    /// The factors of text: for limits a quantile, or the worst of too few counts, at least that of an unknown model.
    fn of_text(
        samples: impl Iterator<Item = TokenSample>,
        hidden_tokens: u64,
        settings: &AccountingSettings,
    ) -> FactorRange {
        let factor = |sample: TokenSample| {
            let counted_tokens = sample.counted_tokens.saturating_sub(hidden_tokens);
            // Bounded: one implausible count of a provider must not starve or overflow the next requests.
            bounded(counted_tokens as f64 / sample.estimated_tokens(), settings)
        };
        let factors: Vec<f64> = samples.map(factor).collect();
        let unknown = bounded(settings.unknown_factor, settings);
        let usual = quantile(factors.clone(), 0.5).unwrap_or(1.0);
        let limit = if factors.len() < settings.trusted_counts.max(1) {
            // A quantile of few counts would be their maximum anyway.
            factors.iter().copied().fold(unknown, f64::max)
        } else {
            quantile(factors, settings.limit_quantile).unwrap_or(unknown).max(usual)
        };
        // What is expected must not exceed the limit, whatever quantile is configured.
        FactorRange { limit, usual: usual.min(limit) }
    }
}

/// The tokens that are counted for one more estimated token; `None` if two sizes differ too little.
fn slope(one: &TokenSample, other: &TokenSample) -> Option<f64> {
    let (one_tokens, other_tokens) = (one.estimated_tokens(), other.estimated_tokens());
    let growth = other_tokens - one_tokens;
    let is_enough = growth.abs() >= MIN_GROWTH * one_tokens.max(other_tokens);
    is_enough.then(|| (other.counted_tokens as f64 - one.counted_tokens as f64) / growth)
}

fn bounded(factor: f64, settings: &AccountingSettings) -> f64 {
    factor.max(settings.min_factor).min(settings.max_factor)
}

/// The quantile of a share, by nearest rank: the smallest number that this share of all does not exceed.
fn quantile(mut numbers: Vec<f64>, share: f64) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    // No interpolation between two counts.
    let rank = (share * numbers.len() as f64).ceil() as usize;
    numbers.get(rank.clamp(1, numbers.len().max(1)) - 1).copied()
}
