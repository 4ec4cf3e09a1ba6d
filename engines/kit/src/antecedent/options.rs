//! The items of a list in an answer, by their place or their label.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::reference::OptionName;
use ctxhost_text::own_text::own_ranges;

/// The label of an item at the beginning of a line: `2.`, `b)`, `**Option B:**`, `方案B：`.
const LABEL: &str = concat!(
    r"^[#>*_\s(\[]*(?:(?:(?i:option|variante?|alternative|choice|plan|approach|solution|opción|opção|opzione|optie|opcja|вариант|варіант|seçenek|pilihan|opsi|phương án)|方案|选项|選択肢|案|옵션)\s*",
    r"(?<named>[A-Ha-h]|[1-9][0-9]?)|(?<bare>[A-Ha-h]|[1-9][0-9]?)[*_]*[.):\]、．）：])",
);
/// The label of an item within a line: `(b)`, `2)`.
const INLINE: &str = r"(?:^|\s)\(?(?<label>[A-Ha-h]|[1-9])\)\s+";
/// Marks of an item without a label.
const BULLETS: [&str; 5] = ["- ", "* ", "• ", "+ ", "– "];

static LABELS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(LABEL).ok());
static INLINE_LABELS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(INLINE).ok());

/// The text of the named items, without marks of lists; `None` if the answer has not all of them.
pub(super) fn find_options(answer: &str, names: &[OptionName]) -> Option<String> {
    let lists = ItemLists::read(answer);
    let items: Option<Vec<&str>> =
        names.iter().map(|name| answer.get(lists.find(name)?.range.clone())).collect();
    Some(
        items?
            .iter()
            .map(|item| item.trim().trim_start_matches(['#', ' ']))
            .collect::<Vec<_>>()
            .join(" / "),
    )
}

/// All items of the newest list of an answer; `None` without one.
pub(super) fn all_options(answer: &str) -> Option<String> {
    let lists = ItemLists::read(answer);
    let newest_first = lists.labelled.iter().rev().chain(lists.bulleted.iter().rev());
    let list = newest_first.into_iter().find(|list| list.len() > 1)?;
    let items = list.iter().filter_map(|item| answer.get(item.range.clone()));
    Some(items.map(str::trim).collect::<Vec<_>>().join(" / "))
}

/// An item of a list.
#[derive(Clone, Debug)]
struct Item {
    /// Its letter or number in lower case; empty without one.
    label: String,
    indent: usize,
    range: Range<usize>,
}

/// The lists of an answer, oldest first.
#[derive(Debug, Default)]
struct ItemLists {
    labelled: Vec<Vec<Item>>,
    bulleted: Vec<Vec<Item>>,
}

impl ItemLists {
    fn read(answer: &str) -> ItemLists {
        let mut lists = ItemLists::default();
        let mut is_after_prose = true;
        for line in own_ranges(answer) {
            let text = answer.get(line.clone()).unwrap_or_default();
            let bare = text.trim_start();
            let indent = text.len() - bare.len();
            let is_bullet = BULLETS.iter().any(|mark| bare.starts_with(mark));
            let inner = if is_bullet { bare.get(1..).unwrap_or_default() } else { bare };
            let item = |label: String| Item { label, indent, range: line.clone() };
            match label_of(inner) {
                Some(label) => {
                    is_after_prose = false;
                    lists.add_labelled(item(label));
                }
                None if is_bullet => {
                    lists.add_bullet(item(String::new()), is_after_prose);
                    is_after_prose = false;
                }
                None if bare.is_empty() => {}
                None if indent > 0 || lists.continue_heading(&line) => lists.extend_last(&line),
                None => is_after_prose = true,
            }
        }
        if lists.labelled.iter().all(|list| list.len() < 2) {
            lists.labelled.extend(inline_items(answer));
        }
        lists
    }

    fn add_labelled(&mut self, item: Item) {
        match self.labelled.last_mut() {
            // Items of an inner list belong to theirs.
            Some(list) if list.first().is_some_and(|first| item.indent > first.indent) => {
                self.extend_last(&item.range);
            }
            Some(list) if list.last().is_some_and(|last| follows(&item.label, &last.label)) => {
                list.push(item);
            }
            _ => self.labelled.push(vec![item]),
        }
    }

    fn add_bullet(&mut self, item: Item, is_after_prose: bool) {
        match self.bulleted.last_mut() {
            Some(list) if list.first().is_some_and(|first| item.indent > first.indent) => {
                self.extend_last(&item.range);
            }
            Some(list) if !is_after_prose => list.push(item),
            _ => self.bulleted.push(vec![item]),
        }
    }

    /// Whether a line belongs to a labelled item that is only a heading.
    fn continue_heading(&self, line: &Range<usize>) -> bool {
        let last = self.labelled.last().and_then(|list| list.last());
        last.is_some_and(|item| {
            line.start.saturating_sub(item.range.end) <= 2 && item.range.len() < 40
        })
    }

    /// Adds a line to the newest item.
    fn extend_last(&mut self, line: &Range<usize>) {
        let newest = |lists: &[Vec<Item>]| {
            lists.last().and_then(|list| list.last()).map_or(0, |item| item.range.start + 1)
        };
        let is_labelled = newest(&self.labelled) >= newest(&self.bulleted);
        let lists = if is_labelled { &mut self.labelled } else { &mut self.bulleted };
        if let Some(item) = lists.last_mut().and_then(|list| list.last_mut()) {
            item.range.end = line.end;
        }
    }

    fn find(&self, name: &OptionName) -> Option<&Item> {
        let newest_first = || {
            let lists = self.labelled.iter().rev().chain(self.bulleted.iter().rev());
            lists.filter(|list| list.len() > 1)
        };
        match name {
            OptionName::Label(label) => {
                let labelled = newest_first().flatten().find(|item| item.label == *label);
                labelled.or_else(|| self.find(&OptionName::Place(place_of(label)?)))
            }
            OptionName::Place(place) => newest_first().find_map(|list| list.get(*place)),
            OptionName::Last => newest_first().next()?.last(),
        }
    }
}

/// The label at the beginning of a line.
fn label_of(line: &str) -> Option<String> {
    let found = LABELS.as_ref()?.captures(line)?;
    let label = found.name("named").or_else(|| found.name("bare"))?;
    Some(label.as_str().to_lowercase())
}

/// The items within the lines of an answer: `(a) this, (b) that`.
fn inline_items(answer: &str) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    for found in INLINE_LABELS.as_ref()?.captures_iter(answer) {
        let (whole, label) = (found.get(0)?, found.name("label")?.as_str().to_lowercase());
        if items.last().is_some_and(|last| !follows(&label, &last.label)) {
            items.clear();
        }
        if let Some(last) = items.last_mut() {
            last.range.end = whole.start();
        }
        let line_end =
            answer.get(whole.end()..)?.find('\n').map_or(answer.len(), |at| whole.end() + at);
        items.push(Item { label, indent: 0, range: whole.start()..line_end });
    }
    (items.len() > 1).then_some(items)
}

/// Whether a label is the one behind another.
fn follows(label: &str, before: &str) -> bool {
    let is_alike = label.parse::<u8>().is_ok() == before.parse::<u8>().is_ok();
    is_alike
        && place_of(label).is_some_and(|place| Some(place) == place_of(before).map(|at| at + 1))
}

/// The place of a label, from 0.
fn place_of(label: &str) -> Option<usize> {
    match label.parse::<usize>() {
        Ok(number) => number.checked_sub(1),
        Err(_) => {
            label.bytes().next().and_then(|byte| usize::from(byte).checked_sub(usize::from(b'a')))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(answer: &str, place: usize) -> Option<String> {
        find_options(answer, &[OptionName::Place(place)])
    }

    fn label(answer: &str, label: &str) -> Option<String> {
        find_options(answer, &[OptionName::Label(label.to_owned())])
    }

    #[test]
    fn items_have_places_in_every_kind_of_list() {
        for answer in [
            "Three ways:\n1. Redis\n2. Postgres 16\n3. files",
            "Three ways:\n\n1) Redis\n\n2) Postgres 16\n\n3) files\n\nWhich one?",
            "Ways:\n- Redis\n  * fast\n- Postgres 16\n- files",
            "**1.** Redis\n   - fast\n   - small\n**2.** Postgres 16\n**3.** files",
            "Ways: (a) Redis, (b) Postgres 16, (c) files?",
            "1. old\n2. older\n\nBut now:\n\n1. Redis\n2. Postgres 16\n3. files",
        ] {
            let found = place(answer, 1).unwrap();
            assert!(found.contains("Postgres 16") && !found.contains("Redis"), "{answer}: {found}");
            assert!(!found.contains("files"), "{answer}: {found}");
        }
        assert_eq!(place("No list here. Second sentence.", 1), None);
        assert_eq!(place("1. Redis\n2. Postgres", 4), None);
    }

    #[test]
    fn items_have_labels() {
        for answer in [
            "Option A: Redis\nOption B: Postgres 16\nOption C: files",
            "### Option A\nRedis\n\n### Option B\nPostgres 16\n\n### Option C\nfiles",
            "- **Option A** - Redis\n- **Option B** - Postgres 16",
            "A) Redis\nB) Postgres 16",
            "方案A：Redis\n方案B：Postgres 16",
        ] {
            let found = label(answer, "b").unwrap();
            assert!(found.contains("Postgres 16") && !found.contains("Redis"), "{answer}: {found}");
        }
        assert_eq!(label("1. Redis\n2. Postgres", "b").as_deref(), Some("2. Postgres"));
        let both = [OptionName::Place(0), OptionName::Last];
        let found = find_options("1. Redis\n2. Postgres\n3. files", &both);
        assert_eq!(found.as_deref(), Some("1. Redis / 3. files"));
    }
}
