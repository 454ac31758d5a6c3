//! Guesses what a misspelt word was meant to be.

/// Returns the candidate that the fewest changes make of the text, if these are at most two and
/// fewer than it has letters.
pub(crate) fn nearest<'c>(text: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let with_distance = candidates.iter().map(|name| (distance(text, name), *name));
    let (changes, name) = with_distance.min_by_key(|(changes, _)| *changes)?;
    (changes <= 2 && changes < name.chars().count()).then_some(name)
}

/// Returns how many letters to add, remove, replace or swap with their neighbour to make one of
/// the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    for i in 0..=from.len() {
        for j in 0..=to.len() {
            if i == 0 || j == 0 {
                rows[i][j] = i + j;
                continue;
            }
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut fewest = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                fewest = fewest.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = fewest;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("tasks", "tasks"), 0);
        assert_eq!(distance("task", "tasks"), 1);
        assert_eq!(distance("tsaks", "tasks"), 1);
        assert_eq!(distance("hlep", "help"), 1);
        assert_eq!(distance("", "max"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn only_what_is_near_is_guessed() {
        let flags = ["tasks", "max", "json", "keep", "help"];
        assert_eq!(nearest("jsn", &flags), Some("json"));
        assert_eq!(nearest("hlep", &flags), Some("help"));
        assert_eq!(nearest("", &["ab"]), None);
        assert_eq!(nearest("something", &flags), None);
    }
}
