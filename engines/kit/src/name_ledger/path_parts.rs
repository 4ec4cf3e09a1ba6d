//! The names that a path shows: the known files and folders that it begins or ends with.

/// Steps of a path that are looked up. Paths have fewer; what a program generates may have thousands.
const MOST_STEPS: usize = 24;

/// The numbers of the parts of all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct PathParts {
    /// Where the parts of each name begin; 0 for none. Most names have none, and their rows need not be read to know it.
    starts: Vec<u32>,
    /// For each path their count, then the numbers.
    numbers: Vec<u32>,
}

impl PathParts {
    /// The numbers of the parts of a name.
    pub(super) fn get(&self, name: u32) -> &[u32] {
        let start = self.starts.get(name as usize).map_or(0, |start| *start as usize);
        let count = self.numbers.get(start).filter(|_| start > 0);
        let parts = count.and_then(|count| self.numbers.get(start + 1..=start + *count as usize));
        parts.unwrap_or_default()
    }

    /// Sets the parts of a name.
    pub(super) fn set(&mut self, name: u32, parts: &[u32]) {
        if self.get(name) == parts {
            return;
        }
        // The first place is for none.
        let start = self.numbers.len().max(1);
        self.numbers.resize(start, 0);
        self.numbers.push(parts.len() as u32);
        self.numbers.extend_from_slice(parts);
        let place = name as usize;
        if self.starts.len() <= place {
            self.starts.resize(place + 1, 0);
        }
        if let Some(known) = self.starts.get_mut(place) {
            *known = start as u32;
        }
    }

    /// Memory use in bytes, including allocations.
    pub(super) fn size_bytes(&self) -> usize {
        (self.starts.capacity() + self.numbers.capacity()) * size_of::<u32>()
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
    fn each_name_has_the_parts_that_were_set_last() {
        let mut parts = PathParts::default();
        parts.set(2, &[]);
        parts.set(4, &[7, 8]);
        parts.set(3, &[9]);
        assert_eq!([parts.get(2), parts.get(4), parts.get(3)], [&[][..], &[7, 8], &[9]]);
        let bytes = parts.numbers.len();
        parts.set(4, &[7, 8]);
        assert_eq!(parts.numbers.len(), bytes, "the same parts take no more room");
        parts.set(4, &[7, 8, 9]);
        parts.set(3, &[]);
        assert_eq!([parts.get(4), parts.get(3), parts.get(9)], [&[7, 8, 9][..], &[], &[]]);
    }
}
