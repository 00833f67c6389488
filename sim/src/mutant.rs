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
