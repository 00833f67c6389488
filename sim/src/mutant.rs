//! The planted mistake of a run (design, section 11.4).

use orbit_core::mutant::{Mutant, Mutants};

/// The mistake that is planted in this run, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted(pub Option<Mutant>);

impl Mutants for Planted {
    fn planted(&self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }
}

/// The name of a mutant, as `--mutant` takes it.
pub fn name(mutant: Mutant) -> String {
    let name = serde_json::to_value(mutant).expect("a mutant is a name");
    name.as_str().expect("a mutant is a name").to_owned()
}

/// The mutant of that name.
pub fn parse(text: &str) -> Result<Mutant, String> {
    Mutant::ALL.into_iter().find(|m| name(*m) == text).ok_or_else(|| {
        let all: Vec<String> = Mutant::ALL.into_iter().map(name).collect();
        format!("there is no mutant {text:?}; there are: {}", all.join(", "))
    })
}

/// What that mistake is: its line in `core`'s list.
pub fn what(mutant: Mutant) -> String {
    const LIST: &str = include_str!("../../core/src/mutant.rs");
    let (_, list) = LIST.split_once("pub enum Mutant {").expect("core lists the mistakes");
    let name = format!("{mutant:?},");
    let mut said: Vec<&str> = Vec::new();
    for line in list.lines().map(str::trim) {
        match line.strip_prefix("///") {
            Some(more) => said.push(more.trim()),
            None if line == name => return said.join(" "),
            None => said.clear(),
        }
    }
    unreachable!("{mutant:?} is one of the list")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_has_a_name_that_is_read_back_and_a_line_that_says_what_it_is() {
        for mutant in Mutant::ALL {
            assert_eq!(parse(&name(mutant)), Ok(mutant));
            let what = what(mutant);
            assert!(what.len() > 15 && what.ends_with('.'), "{mutant:?}: {what:?}");
        }
        assert!(parse("fence-made-of-paper").unwrap_err().contains("fence-missing"));
    }
}
