//! "Did you mean": the known name that is nearest to one that is not known.

/// The nearest of `known`, if it is near enough to be what was meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The names in question are short; a long one is no typing mistake, and measuring it would cost its square.
    if name.len() > 64 {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    known
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many bytes must be inserted, removed or replaced to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_is_recognised() {
        let known = ["session_id", "max_tasks", "wait_ms"];
        assert_eq!(nearest("sesion_id", known), Some("session_id"));
        assert_eq!(nearest("maxTasks", known), Some("max_tasks"));
        assert_eq!(nearest("wait", known), None, "three of seven bytes are not a typing mistake");
        assert_eq!(nearest("WAIT_MS", known), Some("wait_ms"));
    }

    #[test]
    fn a_name_that_resembles_nothing_has_no_nearest() {
        assert_eq!(nearest("zebra", ["session_id", "token"]), None);
        assert_eq!(nearest(&"x".repeat(1000), ["session_id"]), None);
    }
}
