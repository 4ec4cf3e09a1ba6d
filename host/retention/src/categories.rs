//! How much of each sort of thing is still said.

use serde::{Deserialize, Serialize};

/// Makes the categories, their names and their shares, so that no two of them can disagree.
macro_rules! categories {
    ($( $(#[$doc:meta])* $variant:ident = $field:ident, )*) => {
        /// What sort of thing was said.
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

        /// How much of each category is still said.
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

            /// The same, to be changed.
            pub(super) fn of_mut(&mut self, category: Category) -> &mut CategoryShare {
                match category {
                    $( Category::$variant => &mut self.$field, )*
                }
            }
        }
    };
}

categories! {
    /// Requests of the person; a nod is none.
    Asks = asks,
    /// Paths of files and folders.
    Paths = paths,
    /// Commands that were run.
    Commands = commands,
    /// URLs, hosts, hashes and other names that must be right to the letter.
    Ids = ids,
    /// Numbers with a unit: what was measured.
    Numbers = numbers,
    /// Calls and commands that failed, by what they answered.
    Failures = failures,
}

impl Category {
    /// The category of a name.
    pub fn from_name(name: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.name() == name)
    }
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CategoryShare {
    /// So many are still said.
    pub kept: u64,
    /// So many were said.
    pub total: u64,
}

impl CategoryShare {
    /// The part, from 0 to 1; 1 where nothing was there to be lost.
    pub fn ratio(self) -> f64 {
        if self.total == 0 { 1.0 } else { self.kept as f64 / self.total as f64 }
    }
}

impl Shares {
    /// Adds what other compactions kept.
    pub fn add(&mut self, more: &Shares) {
        for category in Category::ALL {
            let (sum, more) = (self.of_mut(category), more.of(category));
            sum.kept += more.kept;
            sum.total += more.total;
        }
    }

    /// The mean of the categories of which anything was said, from 0 to 1; 1 where nothing was. A mean,
    /// because a listing of 500 addresses shall not outweigh what the person asked for.
    pub fn mean(&self) -> f64 {
        let said = Category::ALL.map(|category| self.of(category));
        let ratios: Vec<f64> =
            said.iter().filter(|share| share.total > 0).map(|share| share.ratio()).collect();
        if ratios.is_empty() { 1.0 } else { ratios.iter().sum::<f64>() / ratios.len() as f64 }
    }
}
