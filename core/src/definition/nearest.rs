//! "Did you mean": the candidate that a misspelt name is nearest to.

/// Names longer than this are not compared: nobody types them.
const MAX_COMPARED: usize = 64;

/// The candidate that `name` is most likely meant to be, if one is near enough: the fewest edits (a letter added, left
/// out, replaced, or two swapped), at most a third of the name's length. Letter case counts as nothing.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = name.to_lowercase().chars().collect();
    if wanted.is_empty() || wanted.len() > MAX_COMPARED {
        return None;
    }
    let limit = wanted.len().div_ceil(3);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let length = candidate.chars().count();
            // Each edit changes the length by one at most; most candidates end here.
            if length.abs_diff(wanted.len()) > limit {
                return None;
            }
            let distance = distance(&wanted, &candidate.to_lowercase().chars().collect::<Vec<_>>());
            (distance <= limit && distance < length).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ` Did you mean `…`?` where a candidate is near, else what `otherwise` says.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    match nearest(name, candidates) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => otherwise(),
    }
}

/// Edits between two words (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_finds_the_one_that_was_meant() {
        let names = ["input", "steps", "execution"];
        assert_eq!(nearest("inptu", names), Some("input"));
        assert_eq!(nearest("Input", names), Some("input"));
        assert_eq!(nearest("step", names), Some("steps"));
        assert_eq!(nearest("excution", names), Some("execution"));
        // Two letters swapped are one edit, all that a name of three may have.
        assert_eq!(nearest("teh", ["the"]), Some("the"));
    }

    #[test]
    fn a_name_that_is_near_nothing_finds_nothing() {
        assert_eq!(nearest("banana", ["input", "steps", "execution"]), None);
        assert_eq!(nearest("", ["a"]), None);
        assert_eq!(nearest("x", ["y"]), None);
    }
}
