//! What can come of a moment at which several can go on: on a real server it is chance who is faster. Whoever wants to
//! know all of it runs the moment again and again, each time with other choices ([`outcomes`]).

use std::collections::{BTreeMap, VecDeque};

/// Which of those comes first that can go on at the same moment: the first of them, unless somebody explores.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    exploring: bool,
    /// What is to be chosen next, one after the other; then always the first.
    given: VecDeque<usize>,
    /// What was chosen, of how many.
    made: Vec<(usize, usize)>,
}

impl Choices {
    /// Somebody explores, and chooses by itself.
    pub fn explored() -> Choices {
        Choices { exploring: true, ..Choices::default() }
    }

    /// One of so many.
    pub fn one_of(&mut self, count: usize) -> usize {
        if !self.exploring || count < 2 {
            return 0;
        }
        let chosen = self.given.pop_front().unwrap_or(0);
        assert!(chosen < count, "the same choices lead to the same choices");
        self.made.push((chosen, count));
        chosen
    }

    /// Whether statements let each other in between two rows.
    pub fn are_explored(&self) -> bool {
        self.exploring
    }
}

/// Something in which choices are made.
pub trait Explored: Clone {
    fn choices(&mut self) -> &mut Choices;

    /// What tells it from others in which something else may happen from now on.
    fn identity(&self) -> String;
}

/// There are more orders than anybody looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {0} orders are possible")]
pub struct TooMany(pub usize);

/// Everything that can come of something done to it, each once.
pub fn outcomes<T: Explored>(from: &T, limit: usize, act: impl Fn(&mut T)) -> Result<Vec<T>, TooMany> {
    let mut todo = vec![Vec::new()];
    let mut runs = 0;
    let mut found = BTreeMap::new();
    while let Some(given) = todo.pop() {
        runs += 1;
        if runs > limit {
            return Err(TooMany(limit));
        }
        let mut one = from.clone();
        let known = given.len();
        *one.choices() = Choices { exploring: true, given: given.into(), made: Vec::new() };
        act(&mut one);
        let Choices { made, .. } = std::mem::take(one.choices());
        for (at, (_, count)) in made.iter().enumerate().skip(known) {
            for other in 1..*count {
                let before = made[..at].iter().map(|(chosen, _)| *chosen);
                todo.push(before.chain([other]).collect());
            }
        }
        if made.is_empty() {
            return Ok(vec![one]);
        }
        found.entry(one.identity()).or_insert(one);
    }
    Ok(found.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Words(Choices, String);

    impl Explored for Words {
        fn choices(&mut self) -> &mut Choices {
            &mut self.0
        }

        fn identity(&self) -> String {
            self.1.clone()
        }
    }

    #[test]
    fn every_sequence_of_choices_is_made_once_and_the_same_outcome_is_kept_once() {
        let spell = |words: &mut Words| {
            let letters: Vec<char> = "ab".chars().collect();
            for _ in 0..2 {
                let at = words.0.one_of(letters.len());
                words.1.push(letters[at]);
            }
            // A choice that changes nothing.
            words.0.one_of(3);
        };
        let found = outcomes(&Words::default(), 100, spell).expect("there are twelve");
        let words: Vec<&str> = found.iter().map(|w| w.1.as_str()).collect();
        assert_eq!(words, ["aa", "ab", "ba", "bb"]);
        assert_eq!(outcomes(&Words::default(), 11, spell).err(), Some(TooMany(11)));
    }
}
