//! The names that a path shows: the known files and folders that it begins or ends with.

/// Steps of a path that are looked up. Paths have fewer; what a program generates may have thousands.
const MOST_STEPS: usize = 24;

/// Where the numbers of a path's parts begin; 0 without any.
pub(super) type PartsStart = u32;

/// The numbers of the parts of all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct PathParts {
    /// For each path their count, then the numbers.
    numbers: Vec<u32>,
}

impl PathParts {
    /// The numbers that begin at `start`.
    pub(super) fn get(&self, start: PartsStart) -> &[u32] {
        let count = self.numbers.get(start as usize).filter(|_| start > 0);
        let from = start as usize + 1;
        count.and_then(|count| self.numbers.get(from..from + *count as usize)).unwrap_or_default()
    }

    /// Adds the numbers of a path, unless they are those at `known`. Returns where they begin.
    pub(super) fn add(&mut self, numbers: &[u32], known: PartsStart) -> PartsStart {
        if self.get(known) == numbers {
            return known;
        }
        // The first place is for none.
        let start = self.numbers.len().max(1);
        self.numbers.resize(start, 0);
        self.numbers.push(numbers.len() as u32);
        self.numbers.extend_from_slice(numbers);
        start as PartsStart
    }

    /// Memory use in bytes, including allocations.
    pub(super) fn size_bytes(&self) -> usize {
        self.numbers.capacity() * size_of::<u32>()
    }
}

/// What a path begins or ends with, at its separators.
pub(super) fn parts_of_path(path: &str) -> impl Iterator<Item = &str> {
    let separators = path.match_indices(['/', '\\']).take(MOST_STEPS);
    separators.flat_map(|(at, _)| [path.get(..at), path.get(at + 1..)]).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_and_ends_with_its_parts() {
        let parts: Vec<&str> = parts_of_path("src/io/a.rs").collect();
        assert_eq!(parts, ["src", "io/a.rs", "src/io", "a.rs"]);
        assert_eq!(parts_of_path("C:\\a.rs").collect::<Vec<_>>(), ["C:", "a.rs"]);
        assert_eq!(parts_of_path("a.rs").count(), 0);
    }

    #[test]
    fn numbers_are_found_where_they_begin() {
        let mut parts = PathParts::default();
        let nothing = parts.add(&[], 0);
        assert_eq!(parts.get(nothing), [0; 0]);
        let first = parts.add(&[7, 8], nothing);
        let second = parts.add(&[9], nothing);
        assert_eq!((parts.get(first), parts.get(second)), (&[7, 8][..], &[9][..]));
        assert_eq!(parts.add(&[7, 8], first), first);
        let more = parts.add(&[7, 8, 9], first);
        assert_eq!(parts.get(more), [7, 8, 9]);
    }
}
