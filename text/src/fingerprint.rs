//! The fingerprint of a text: excludes most texts that do not occur in it without a search.

/// Bytes of a window whose hash is kept.
const WINDOW_BYTES: usize = 8;
/// Bits of a fingerprint: a tenth of them is set by a text of six kilobytes.
const BITS: usize = 1 << 16;
/// Odd multiplier whose product spreads a window over the upper bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hashes of the windows of a text.
#[derive(Debug)]
pub struct TextFingerprint {
    bits: Vec<u64>,
}

impl TextFingerprint {
    /// The fingerprint of a text.
    pub fn new(text: &str) -> TextFingerprint {
        TextFingerprint::of_windows(text.as_bytes().windows(WINDOW_BYTES))
    }

    /// The fingerprint of the beginnings of some texts. Shorter ones than a window are left out.
    pub fn of_beginnings<'t>(texts: impl Iterator<Item = &'t str>) -> TextFingerprint {
        TextFingerprint::of_windows(texts.filter_map(|text| text.as_bytes().get(..WINDOW_BYTES)))
    }

    fn of_windows<'t>(windows: impl Iterator<Item = &'t [u8]>) -> TextFingerprint {
        let mut bits = vec![0; BITS / u64::BITS as usize];
        for (word, bit) in windows.map(place) {
            if let Some(word) = bits.get_mut(word) {
                *word |= bit;
            }
        }
        TextFingerprint { bits }
    }

    /// Whether a part may occur in the text; if not, it does not.
    pub fn may_contain(&self, part: &str) -> bool {
        part.as_bytes().chunks_exact(WINDOW_BYTES).all(|window| self.has(window))
    }

    /// Whether a text may begin with these bytes, at least eight.
    pub fn may_begin_with(&self, window: &[u8]) -> bool {
        self.has(window)
    }

    fn has(&self, window: &[u8]) -> bool {
        let (word, bit) = place(window);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// The word and the bit of a window.
fn place(window: &[u8]) -> (usize, u64) {
    let number = window.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let place = (number.wrapping_mul(SPREAD) >> (u64::BITS - BITS.ilog2())) as usize;
    (place / u64::BITS as usize, 1 << (place % u64::BITS as usize))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn most_other_texts_are_recognised() {
        let lines: Vec<String> = (0..2_000)
            .map(|number| format!("Always deploy part {number} to eu-{number}."))
            .collect();
        let (known, other) = lines.split_at(100);
        let fingerprint = TextFingerprint::new(&known.join("\n"));
        assert!(known.iter().all(|line| fingerprint.may_contain(line)));
        let unclear = other.iter().filter(|line| fingerprint.may_contain(line)).count();
        assert!(unclear < 100, "{unclear}");
        assert!(fingerprint.may_contain("short"), "shorter than a window");
    }

    proptest! {
        #[test]
        fn a_part_is_never_missed(text in "[ab字 ]{0,80}", part in "[ab字 ]{0,20}") {
            let contains = text.contains(&part);
            prop_assert!(!contains || TextFingerprint::new(&text).may_contain(&part));
        }
    }
}
