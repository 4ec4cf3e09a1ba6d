//! A set of names, by their numbers.

/// A set of name numbers.
// A bit for each name: a request adds tens of thousands, for which hashing would take milliseconds.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    bits: Vec<u64>,
    pub(super) numbers: Vec<u32>,
}

impl NameSet {
    /// Adds a name.
    pub fn insert(&mut self, number: u32) {
        let (word, bit) = NameSet::place(number);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(bits) = self.bits.get_mut(word).filter(|bits| **bits & bit == 0) {
            *bits |= bit;
            self.numbers.push(number);
        }
    }

    /// Whether a name is in it.
    pub fn contains(&self, number: u32) -> bool {
        let (word, bit) = NameSet::place(number);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn place(number: u32) -> (usize, u64) {
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }
}

impl Extend<u32> for NameSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| self.insert(number));
    }
}

impl FromIterator<u32> for NameSet {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> NameSet {
        let mut set = NameSet::default();
        set.extend(numbers);
        set
    }
}
