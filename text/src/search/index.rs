//! The inverted index: maps terms to slices and scores slices for a query (BM25).
//!
//! Postings are append-only delta-coded bytes: adding a slice costs its length, and a hundred
//! thousand entries take tens of megabytes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::hash::BuildIdentityHasher;

/// Saturation and length normalisation of BM25: the usual constants, not fitted to data.
const K1: f32 = 1.2;
const B: f32 = 0.4;

/// Number of query terms that are looked up, rarest first.
// A prompt of several pages finds nothing more than its rare words do.
const QUERY_TERMS: usize = 32;

/// Maximum postings read for all terms after the rarest.
// Bounds a search to less than a millisecond in any session.
const QUERY_POSTINGS: u32 = 50_000;

/// Hardly a slice has as many terms.
const USUAL_TERMS: u16 = 256;

/// The inverted index of one session.
#[derive(Debug, Default)]
pub struct TermIndex {
    /// Terms are hashes.
    terms: HashMap<u64, TermSlices, BuildIdentityHasher>,
    /// The postings of the terms of several slices.
    postings: Vec<Postings>,
    /// Number of terms per slice.
    lengths: Vec<u16>,
    total_length: u64,
    /// Buffer for the terms of the slice being added.
    pending: Vec<u64>,
}

/// Where a term occurs.
// Most terms occur in one slice, and a list for each of them would take half of the index.
#[derive(Clone, Copy, Debug)]
enum TermSlices {
    /// In one slice, this often.
    One { slice: u32, times: u8 },
    /// The number of its postings.
    Several(u32),
}

/// Postings of one term: pairs of the distance to the previous slice and the number of occurrences.
#[derive(Debug, Default)]
struct Postings {
    bytes: Vec<u8>,
    last: u32,
    slices: u32,
}

/// The scores of one query.
#[derive(Debug, Default)]
pub struct SliceScores {
    by_slice: Vec<f32>,
}

impl SliceScores {
    /// The given scores, by slice.
    pub fn new(scores: impl IntoIterator<Item = f32>) -> SliceScores {
        SliceScores { by_slice: scores.into_iter().collect() }
    }

    /// The score of a slice; 0 without a common term.
    pub fn get(&self, slice: u32) -> f32 {
        self.by_slice.get(slice as usize).copied().unwrap_or(0.0)
    }

    /// The slices with a score above 0, and their scores.
    // A pass over all is faster than to look up the slices that a list would name.
    pub fn hits(&self) -> impl Iterator<Item = (u32, f32)> {
        let found = self.by_slice.iter().enumerate().filter(|(_, score)| **score > 0.0);
        found.map(|(slice, score)| (slice as u32, *score))
    }

    fn add(&mut self, slice: u32, score: f32) {
        if let Some(sum) = self.by_slice.get_mut(slice as usize) {
            *sum += score;
        }
    }
}

impl TermIndex {
    /// Adds a slice with the terms written by `fill`, and returns its number.
    pub fn add(&mut self, fill: impl FnOnce(&mut Vec<u64>)) -> u32 {
        let slice = self.lengths.len() as u32;
        let mut terms = std::mem::take(&mut self.pending);
        terms.clear();
        fill(&mut terms);
        // Lengths only normalise scores, so saturating is harmless.
        self.lengths.push(u16::try_from(terms.len()).unwrap_or(u16::MAX));
        self.total_length += terms.len() as u64;
        // Sorted, so that equal terms are counted in one pass.
        terms.sort_unstable();
        for equal in terms.chunk_by(|left, right| left == right) {
            let Some(term) = equal.first() else { continue };
            self.add_posting(*term, slice, equal.len().min(255) as u8);
        }
        self.pending = terms;
        slice
    }

    fn add_posting(&mut self, term: u64, slice: u32, times: u8) {
        let postings = &mut self.postings;
        match self.terms.entry(term) {
            Entry::Vacant(new) => _ = new.insert(TermSlices::One { slice, times }),
            Entry::Occupied(mut known) => match *known.get() {
                TermSlices::One { slice: first, times: first_times } => {
                    known.insert(TermSlices::Several(postings.len() as u32));
                    let mut list = Postings::default();
                    list.push(first, first_times);
                    list.push(slice, times);
                    postings.push(list);
                }
                TermSlices::Several(number) => {
                    if let Some(list) = postings.get_mut(number as usize) {
                        list.push(slice, times);
                    }
                }
            },
        }
    }

    /// Scores every slice that shares a term with the weighted query terms.
    pub fn search(&self, query: &[(u64, f32)]) -> SliceScores {
        // A dense vector: faster than a map, and freed after the request.
        let mut scores = SliceScores { by_slice: vec![0.0; self.lengths.len()] };
        let slices = self.lengths.len() as f32;
        let mean_length = (self.total_length as f32 / slices.max(1.0)).max(1.0);
        let norm_of = |length: u16| K1 * (1.0 - B + B * f32::from(length) / mean_length);
        // A division less for each posting.
        let norms: Vec<f32> = (0..USUAL_TERMS).map(norm_of).collect();
        let terms = query.iter().filter_map(|(term, weight)| {
            let places = *self.terms.get(term)?;
            Some((places, self.count_of(places), *weight))
        });
        let mut terms: Vec<(TermSlices, u32, f32)> = terms.collect();
        // The sort is stable, so terms of equal rarity keep the order of the query.
        terms.sort_by_key(|(_, count, _)| *count);
        let mut read = 0;
        for (places, count, weight) in terms.into_iter().take(QUERY_TERMS) {
            // Frequent terms carry little information but most of the work in a long session.
            if read > 0 && read + count > QUERY_POSTINGS {
                break;
            }
            read += count;
            let count = count as f32;
            let rarity = (1.0 + (slices - count + 0.5) / (count + 0.5)).ln() * weight;
            self.for_each_posting(places, |slice, times| {
                let length = self.lengths.get(slice as usize).copied().unwrap_or(1);
                let known = norms.get(usize::from(length)).copied();
                let norm = known.unwrap_or_else(|| norm_of(length));
                let times = f32::from(times);
                scores.add(slice, rarity * times * (K1 + 1.0) / (times + norm));
            });
        }
        scores
    }

    /// Number of slices.
    fn count_of(&self, places: TermSlices) -> u32 {
        match places {
            TermSlices::One { .. } => 1,
            TermSlices::Several(number) => {
                self.postings.get(number as usize).map_or(0, |list| list.slices)
            }
        }
    }

    /// Calls `found` with each slice, in rising order, and the number of occurrences.
    fn for_each_posting(&self, places: TermSlices, mut found: impl FnMut(u32, u8)) {
        match places {
            TermSlices::One { slice, times } => found(slice, times),
            TermSlices::Several(number) => {
                let list = self.postings.get(number as usize);
                let mut bytes = list.map_or(&[][..], |list| list.bytes.as_slice());
                let mut slice = 0;
                while !bytes.is_empty() {
                    slice += read_number(&mut bytes);
                    found(slice, read_number(&mut bytes) as u8);
                }
            }
        }
    }

    /// Memory use in bytes, including allocations.
    pub fn size_bytes(&self) -> usize {
        let lists = self.postings.iter().map(|list| list.bytes.capacity());
        let row = size_of::<(u64, TermSlices)>() + 1;
        lists.sum::<usize>()
            + self.postings.capacity() * size_of::<Postings>()
            + self.terms.capacity() * row
            + self.lengths.capacity() * size_of::<u16>()
    }
}

impl Postings {
    fn push(&mut self, slice: u32, times: u8) {
        write_number(&mut self.bytes, slice - self.last);
        write_number(&mut self.bytes, u32::from(times));
        self.last = slice;
        self.slices += 1;
    }
}

/// Variable-length encoding: seven bits per byte, the high bit marks a continuation.
fn write_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push((number as u8) | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> u32 {
    // Nearly all numbers have one byte.
    if let [byte @ 0..0x80, rest @ ..] = bytes {
        let number = u32::from(*byte);
        *bytes = rest;
        return number;
    }
    let (mut number, mut shift) = (0, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
        shift += 7;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, 70_000, u32::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            let mut rest = bytes.as_slice();
            assert_eq!(read_number(&mut rest), number);
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn rare_terms_count_more_and_short_slices_before_long_ones() {
        let mut index = TermIndex::default();
        for terms in [vec![1, 2], vec![1, 3, 4, 5, 6, 7, 8, 9], vec![1], vec![2, 3]] {
            index.add(|pending| pending.extend(terms));
        }
        let scores = index.search(&[(1, 1.0), (3, 1.0)]);
        assert_eq!(scores.hits().count(), 4);
        assert!(scores.get(3) > scores.get(2), "3 is rarer than 1");
        assert!(index.search(&[(3, 1.0)]).get(3) > index.search(&[(3, 1.0)]).get(1));
        assert_eq!(index.search(&[(99, 1.0)]).hits().count(), 0);
    }
}
