//! Did you mean …?

/// The candidate that takes the fewest changes to become, if it takes at most two and
/// fewer than it has letters.
pub(crate) fn nearest<'c>(text: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let with_distance = candidates.iter().map(|name| (distance(text, name), *name));
    let (changes, name) = with_distance.min_by_key(|(changes, _)| *changes)?;
    (changes <= 2 && changes < name.chars().count()).then_some(name)
}

/// How many letters have to be added, left out or replaced to make one of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("tasks", "tasks"), 0);
        assert_eq!(distance("task", "tasks"), 1);
        assert_eq!(distance("tsaks", "tasks"), 2);
        assert_eq!(distance("", "max"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_what_is_near_is_guessed() {
        let flags = ["tasks", "max", "json"];
        assert_eq!(nearest("jsn", &flags), Some("json"));
        assert_eq!(nearest("", &["ab"]), None);
        assert_eq!(nearest("something", &flags), None);
    }
}
