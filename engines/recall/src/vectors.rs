//! Vectors of slices, for a search by meaning beside the one by words.
//!
//! ```text
//!  slices without a vector ─► Host::embed ─► vectors by content hash ─► pages in the store
//!  prompt ─► Host::embed ─► cosines ─► the ranking by words ─┬─► rank fusion
//!                                      the one by cosines ───┘
//! ```
//!
//! A vector is one signed byte per dimension: the same after a restart as before, and a quarter of the memory.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ctxhost_engine_api::{Embeddings, EngineError, ErrorKind, Result, Transcript};
use ctxhost_text::hash;
use ctxhost_text::search::SliceScores;
use serde::{Deserialize, Serialize};

use crate::session::RecallSession;

/// Vectors per page in the store: about 50 kB with 256 dimensions.
const PAGE_VECTORS: usize = 128;

/// Bytes of a text that are embedded; models read hardly more.
const TEXT_BYTES: usize = 4_000;

/// Percent of the texts that need vectors before their cosines rank them.
// A text without one has no cosine, so the few that have one would be placed before what words find: with a slow embedder and
// a budget of 2,000 tokens, 88.7 % of the evidence of 30 LongMemEval questions were kept instead of 92.4 %.
const LEAST_VECTORS_PERCENT: usize = 90;

/// Version of the pages; others are ignored.
const VERSION: u32 = 1;

/// The vectors of one session.
#[derive(Debug, Default)]
pub(crate) struct SliceVectors {
    /// The model of all vectors; empty before the first.
    pub(crate) model: String,
    by_hash: HashMap<u64, UnitVector>,
    /// The content hashes, in the order in which their vectors came.
    order: Vec<u64>,
    /// The content hash of each slice that was read; `None` for a slice without text.
    hashes: Vec<Option<u64>>,
    /// Vectors that are in the store.
    stored: usize,
    /// The newest query.
    query: Option<(u64, UnitVector)>,
    pub(crate) is_loaded: bool,
}

/// A direction, in steps of its largest number.
#[derive(Clone, Debug)]
struct UnitVector {
    steps: Box<[i8]>,
    norm: f32,
}

/// Vectors as stored.
#[derive(Serialize, Deserialize)]
struct VectorPage {
    version: u32,
    model: String,
    dimensions: usize,
    hashes: Vec<u64>,
    /// One byte per number, in base64.
    steps: String,
}

/// A text to embed, with its hash.
pub(crate) type HashedText = (u64, String);

impl UnitVector {
    fn new(values: &[f32]) -> UnitVector {
        let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let factor = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        UnitVector::from_steps(values.iter().map(|value| (value * factor).round() as i8).collect())
    }

    fn from_steps(steps: Box<[i8]>) -> UnitVector {
        let squares: i64 = steps.iter().map(|step| i64::from(*step).pow(2)).sum();
        UnitVector { steps, norm: (squares as f32).sqrt() }
    }

    /// The cosine of the angle to another; 0 if either has no direction.
    fn cosine(&self, other: &UnitVector) -> f32 {
        let pairs = self.steps.iter().zip(&other.steps);
        let product: i64 =
            pairs.map(|(left, right)| i64::from(i32::from(*left) * i32::from(*right))).sum();
        let norms = self.norm * other.norm;
        if norms > 0.0 { product as f32 / norms } else { 0.0 }
    }
}

impl SliceVectors {
    /// Forgets which slices there are; their vectors stay.
    pub(crate) fn forget_slices(&mut self) {
        self.hashes.clear();
    }

    /// Number of slices with a vector, and of those with text.
    pub(crate) fn count(&self) -> (usize, usize) {
        let texts = self.hashes.iter().flatten();
        let found = texts.clone().filter(|hash| self.by_hash.contains_key(*hash)).count();
        (found, texts.count())
    }

    /// Whether the query with this hash has no vector yet.
    pub(crate) fn misses_query(&self, hash: u64) -> bool {
        self.query.as_ref().is_none_or(|(known, _)| *known != hash)
    }

    /// Keeps the vector of a query.
    pub(crate) fn set_query(&mut self, hash: u64, found: &Embeddings) -> Result<()> {
        self.check(found, 1)?;
        self.query = found.vector(0).map(|vector| (hash, UnitVector::new(vector)));
        Ok(())
    }

    /// Keeps the vectors of texts.
    pub(crate) fn add(&mut self, texts: &[HashedText], found: &Embeddings) -> Result<()> {
        self.check(found, texts.len())?;
        for ((hash, _), vector) in texts.iter().zip(found.vectors()) {
            self.insert(*hash, UnitVector::new(vector));
        }
        Ok(())
    }

    /// Passes one finite vector per text; the vectors of another model are dropped.
    fn check(&mut self, found: &Embeddings, texts: usize) -> Result<()> {
        let is_finite = found.values.iter().all(|value| value.is_finite());
        if found.vectors().len() != texts || !is_finite {
            let message = format!("{} vectors for {texts} texts", found.vectors().len());
            return Err(EngineError::new(ErrorKind::Protocol, message));
        }
        let known = self.by_hash.values().next().map(|vector| vector.steps.len());
        let is_other = known.is_some_and(|known| known != found.dimensions);
        if self.model != found.model || is_other {
            self.model.clone_from(&found.model);
            self.by_hash.clear();
            self.order.clear();
            (self.stored, self.query) = (0, None);
        }
        Ok(())
    }

    fn insert(&mut self, hash: u64, vector: UnitVector) {
        if self.by_hash.insert(hash, vector).is_none() {
            self.order.push(hash);
        }
    }

    /// The pages that are not stored as they are, with their numbers.
    pub(crate) fn take_unsaved(&mut self) -> Vec<(usize, String)> {
        let first = self.stored / PAGE_VECTORS;
        let unsaved = self.order.chunks(PAGE_VECTORS).enumerate().skip(first);
        let pages = unsaved.map(|(number, hashes)| (number, self.page(hashes))).collect();
        if std::mem::replace(&mut self.stored, self.order.len()) == self.order.len() {
            return Vec::new();
        }
        pages
    }

    fn page(&self, hashes: &[u64]) -> String {
        let vectors = hashes.iter().filter_map(|hash| self.by_hash.get(hash));
        let steps: Vec<u8> = vectors
            .flat_map(|vector| vector.steps.iter().map(|step| step.cast_unsigned()))
            .collect();
        let page = VectorPage {
            version: VERSION,
            model: self.model.clone(),
            dimensions: steps.len() / hashes.len().max(1),
            hashes: hashes.to_vec(),
            steps: STANDARD.encode(steps),
        };
        serde_json::to_string(&page).unwrap_or_default()
    }

    /// Reads the next page of an earlier run; false if it is none of these vectors.
    pub(crate) fn load_page(&mut self, page: &str) -> bool {
        let Ok(page) = serde_json::from_str::<VectorPage>(page) else { return false };
        let steps = STANDARD.decode(&page.steps).unwrap_or_default();
        let is_whole = page.dimensions > 0
            && page.hashes.len().checked_mul(page.dimensions) == Some(steps.len());
        let is_first = self.order.is_empty();
        if page.version != VERSION || !is_whole || !(is_first || page.model == self.model) {
            return false;
        }
        self.model = page.model;
        for (hash, steps) in page.hashes.iter().zip(steps.chunks_exact(page.dimensions)) {
            let steps = steps.iter().map(|step| step.cast_signed()).collect();
            self.insert(*hash, UnitVector::from_steps(steps));
        }
        self.stored = self.order.len();
        true
    }

    /// Memory use, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let dimensions = self.by_hash.values().next().map_or(0, |vector| vector.steps.len());
        let row = size_of::<u64>() + size_of::<UnitVector>() + dimensions;
        self.by_hash.capacity() * row
            + self.order.capacity() * size_of::<u64>()
            + self.hashes.capacity() * size_of::<Option<u64>>()
    }
}

/// Whether so many vectors are enough to rank so many texts by them.
pub(crate) fn are_enough(vectors: usize, texts: usize) -> bool {
    vectors * 100 >= texts * LEAST_VECTORS_PERCENT
}

/// A text as it is embedded.
pub(crate) fn embedded_text(text: &str) -> HashedText {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default();
    (hash::fnv1a(text), text.to_owned())
}

impl RecallSession {
    /// Texts of slices without a vector, at most `most`, oldest first.
    pub(crate) fn texts_without_vector(
        &mut self,
        transcript: &Transcript,
        most: usize,
    ) -> Vec<HashedText> {
        let slice_text = |number: usize| {
            let slice = self.index.slices().get(number)?;
            let text = transcript.get(u64::from(slice.entry))?.text().get(slice.range())?;
            (!text.trim().is_empty()).then(|| embedded_text(text))
        };
        for number in self.vectors.hashes.len()..self.index.slices().len() {
            self.vectors.hashes.push(slice_text(number).map(|(hash, _)| hash));
        }
        let mut texts: Vec<HashedText> = Vec::new();
        for (number, hash) in self.vectors.hashes.iter().enumerate() {
            let is_missing = hash.is_some_and(|hash| !self.vectors.by_hash.contains_key(&hash));
            if !is_missing || texts.iter().any(|(known, _)| Some(*known) == *hash) {
                continue;
            }
            texts.extend(slice_text(number));
            if texts.len() >= most {
                break;
            }
        }
        texts
    }

    /// How near each slice is to the query with this hash: its cosine above the mean. `None` if the query or too many
    /// slices have no vector.
    pub(crate) fn cosines(&self, query: u64) -> Option<SliceScores> {
        let (_, query) = self.vectors.query.as_ref().filter(|(known, _)| *known == query)?;
        let vector = |hash: &Option<u64>| self.vectors.by_hash.get(&(*hash)?);
        let cosines: Vec<Option<f32>> =
            self.vectors.hashes.iter().map(|hash| Some(vector(hash)?.cosine(query))).collect();
        let count = cosines.iter().flatten().count();
        if !are_enough(count, self.vectors.hashes.iter().flatten().count()) {
            return None;
        }
        let mean = cosines.iter().flatten().sum::<f32>() / count.max(1) as f32;
        // Vectors of one language all point into one half; what is below the mean has nothing to do with the query.
        Some(SliceScores::new(
            cosines.iter().map(|cosine| cosine.map_or(0.0, |it| (it - mean).max(0.0))),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn embeddings(model: &str, vectors: &[[f32; 2]]) -> Embeddings {
        Embeddings { model: model.into(), dimensions: 2, values: vectors.concat() }
    }

    fn texts(texts: &[&str]) -> Vec<HashedText> {
        texts.iter().map(|text| embedded_text(text)).collect()
    }

    #[test]
    fn cosines_survive_the_steps_and_the_store() {
        let (one, other) = (UnitVector::new(&[0.3, 0.4]), UnitVector::new(&[4.0, 3.0]));
        assert!((one.cosine(&other) - 0.96).abs() < 0.01);
        assert_eq!(UnitVector::new(&[0.0, 0.0]).cosine(&one), 0.0);
        let mut vectors = SliceVectors::default();
        for number in 0..300 {
            let texts = texts(&[&format!("text {number}")]);
            vectors.add(&texts, &embeddings("m", &[[number as f32, -1.0]])).unwrap();
        }
        let first = vectors.take_unsaved();
        assert_eq!(first.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(vectors.take_unsaved().is_empty(), "nothing is new");
        vectors.add(&texts(&["late"]), &embeddings("m", &[[1.0, 1.0]])).unwrap();
        let second = vectors.take_unsaved();
        assert_eq!(second.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
        let mut again = SliceVectors::default();
        let pages = [&first[0].1, &first[1].1, &second[0].1].map(Clone::clone);
        assert!(pages.iter().all(|page| again.load_page(page)));
        assert_eq!(again.order, vectors.order);
        let (hash, _) = embedded_text("text 200");
        assert_eq!(again.by_hash[&hash].steps, vectors.by_hash[&hash].steps);
        assert!(again.take_unsaved().is_empty());
        let mut damaged = SliceVectors::default();
        let other = pages[1].replace("\"m\"", "\"n\"");
        let found = [&pages[0], "{", &other].map(|page| damaged.load_page(page));
        assert_eq!((found, damaged.order.len()), ([true, false, false], PAGE_VECTORS));
    }

    #[test]
    fn vectors_of_another_model_are_dropped() {
        let mut vectors = SliceVectors::default();
        vectors.add(&texts(&["a", "b"]), &embeddings("m", &[[1.0, 0.0], [0.0, 1.0]])).unwrap();
        vectors.set_query(7, &embeddings("m", &[[1.0, 0.0]])).unwrap();
        assert!(!vectors.misses_query(7));
        vectors.add(&texts(&["c"]), &embeddings("n", &[[1.0, 0.0]])).unwrap();
        assert_eq!((vectors.order.len(), vectors.misses_query(7)), (1, true));
        for bad in [embeddings("n", &[]), embeddings("n", &[[f32::NAN, 0.0]])] {
            assert!(vectors.add(&texts(&["d"]), &bad).is_err());
        }
    }
}
