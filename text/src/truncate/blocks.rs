//! Cuts several texts to one total size.

use std::borrow::Cow;

use super::{TextLimit, truncate, weighted_len};

/// Cuts the texts of one message so that together they take at most `limit`. Texts of at most
/// `limit.min_keep_chars` stay whole if they fit beside the notices of the others, which share the
/// rest in proportion to their size. The result depends only on texts and limit.
pub fn truncate_blocks<'a>(
    texts: &[&'a str],
    limit: TextLimit,
    notice: impl Fn(u64) -> String,
) -> Vec<Cow<'a, str>> {
    let sizes: Vec<u64> = texts.iter().map(|text| weighted_len(text, limit.min_weight)).collect();
    if sizes.iter().sum::<u64>() <= limit.max_chars {
        return texts.iter().map(|text| Cow::Borrowed(*text)).collect();
    }
    let notice_chars = |size: u64| weighted_len(&notice(size), limit.min_weight);
    let reserved = |is_large: &dyn Fn(u64) -> bool| -> u64 {
        let cost = |size: &u64| if is_large(*size) { notice_chars(*size) } else { *size };
        sizes.iter().map(cost).sum()
    };
    let over_minimum = |size: u64| size > limit.min_keep_chars;
    let any = |size: u64| size > 0;
    // If the small texts do not fit whole, all texts share the room.
    let small_fit =
        sizes.iter().any(|size| over_minimum(*size)) && reserved(&over_minimum) <= limit.max_chars;
    let is_large: &dyn Fn(u64) -> bool = if small_fit { &over_minimum } else { &any };
    let room = limit.max_chars.saturating_sub(reserved(is_large));
    let large: u64 = sizes.iter().filter(|size| is_large(**size)).sum();
    let cut = |(text, size): (&&'a str, &u64)| {
        if !is_large(*size) {
            return Cow::Borrowed(*text);
        }
        // 128 bits, because two sizes are multiplied.
        let share = u128::from(room) * u128::from(*size) / u128::from(large.max(1));
        let max_chars =
            share as u64 + notice_chars(*size).min(limit.max_chars / sizes.len() as u64);
        truncate(text, TextLimit { max_chars, ..limit }, &notice)
    };
    texts.iter().zip(&sizes).map(cut).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::truncate::tests::recorded;

    fn sizes(texts: &[&str], max_chars: u64) -> Vec<usize> {
        let cut = truncate_blocks(texts, TextLimit::with_max_chars(max_chars), recorded);
        cut.iter().map(|text| text.len()).collect()
    }

    #[test]
    fn case_21_large_blocks_share_and_small_ones_stay() {
        let (six, three, sixty) = ("a".repeat(6_000), "b".repeat(3_000), "c".repeat(60_000));
        assert_eq!(sizes(&[&six, &three], 5_000), [3_309, 1_690]);
        assert_eq!(sizes(&[&sixty, "tiny"], 5_000), [4_996, 4]);
        assert_eq!(sizes(&["tiny", "small"], 9), [4, 5]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn together_they_fit(
            texts in prop::collection::vec("[a-z 语\n]{0,400}", 1..6), max_chars in 0u64..900,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let limit = TextLimit::with_max_chars(max_chars).keeping(60);
            let cut = truncate_blocks(&texts, limit, recorded);
            prop_assert_eq!(cut.len(), texts.len());
            let whole: u64 = cut.iter().map(|text| weighted_len(text, 1)).sum();
            prop_assert!(whole <= max_chars, "{} of {}", whole, max_chars);
        }
    }
}
