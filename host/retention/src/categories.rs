//! The categories of facts and the retained share of each.

use serde::{Deserialize, Serialize};

/// Defines the categories with their names and shares in one place.
macro_rules! categories {
    ($( $(#[$doc:meta])* $variant:ident = $field:ident, )*) => {
        /// The category of a fact.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Category {
            $( $(#[$doc])* $variant, )*
        }

        impl Category {
            /// Every category, in the order in which people read them.
            pub const ALL: [Category; [$( Category::$variant, )*].len()] =
                [$( Category::$variant, )*];

            /// The name used in the session file, in gates and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Category::$variant => stringify!($field), )*
                }
            }
        }

        /// The retained share of each category.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Shares {
            $( $(#[$doc])* pub $field: CategoryShare, )*
        }

        impl Shares {
            /// The share of a category.
            pub fn of(&self, category: Category) -> CategoryShare {
                match category {
                    $( Category::$variant => self.$field, )*
                }
            }

            /// The share of a category, mutable.
            pub(super) fn of_mut(&mut self, category: Category) -> &mut CategoryShare {
                match category {
                    $( Category::$variant => &mut self.$field, )*
                }
            }
        }
    };
}

categories! {
    /// Requests of the user, but not mere confirmations.
    Asks = asks,
    /// Paths of files and folders.
    Paths = paths,
    /// Commands that were run.
    Commands = commands,
    /// URLs, hosts, hashes and other names that must be exact.
    Ids = ids,
    /// Numbers with a unit.
    Numbers = numbers,
    /// Failed calls and commands, by their output.
    Failures = failures,
}

impl Category {
    /// The category of a name.
    pub fn from_name(name: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// A retained part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CategoryShare {
    /// Facts that are still stated.
    pub kept: u64,
    /// All facts.
    pub total: u64,
}

impl CategoryShare {
    /// The share from 0 to 1; 1 where there were no facts.
    pub fn ratio(self) -> f64 {
        // Nothing was there to lose.
        if self.total == 0 { 1.0 } else { self.kept as f64 / self.total as f64 }
    }
}

impl Shares {
    /// Adds the counts of another compaction.
    pub fn add(&mut self, more: &Shares) {
        for category in Category::ALL {
            let (sum, more) = (self.of_mut(category), more.of(category));
            sum.kept += more.kept;
            sum.total += more.total;
        }
    }

    /// The mean of the categories with facts, from 0 to 1; 1 where there were none. A mean, so that
    /// a listing of 500 addresses does not outweigh the user's requests.
    pub fn mean(&self) -> f64 {
        let shares = Category::ALL.map(|category| self.of(category));
        let ratios: Vec<f64> =
            // A category without facts would raise the mean of a session that lost everything else.
            shares.iter().filter(|share| share.total > 0).map(|share| share.ratio()).collect();
        if ratios.is_empty() { 1.0 } else { ratios.iter().sum::<f64>() / ratios.len() as f64 }
    }
}
