//! `sim show` and `sim diff`: a run as a page, and where two traces part.

use super::{Code, write};
use orbit_core::mutant::Mutant;
use orbit_sim::diff::first_difference;
use orbit_sim::mutant::Planted;
use orbit_sim::report::FailureKind;
use orbit_sim::report::header::Header;
use orbit_sim::run::Ensemble;
use orbit_sim::show::Shown;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

pub fn show(
    file: Option<&Path>,
    seed: Option<u64>,
    mutant: Option<Mutant>,
    out: &str,
    last_ms: Option<u64>,
    settings: Vec<(String, String)>,
) -> Code {
    let mut shown = match (file, seed) {
        (Some(file), _) => {
            let path = file.display().to_string();
            let text = std::fs::read_to_string(file).map_err(|e| format!("{path} cannot be read: {e}"))?;
            Shown::of_file(&path, &text).map_err(|e| format!("{path}: {e}"))?
        }
        (None, Some(seed)) => {
            let plan = Ensemble { settings, ..Ensemble::of(seed..seed.saturating_add(1)) }.plan(seed)?;
            Shown::of_seed(&plan, Planted(mutant))
        }
        (None, None) => unreachable!("the command line demands one of the two"),
    };
    if let Some(ms) = last_ms {
        shown.keep_last_ms(ms);
    }
    write(out, &shown.page())?;
    Ok(0)
}

/// A trace behind its header: builds may differ, and what they did is compared.
fn open(path: &Path) -> Result<BufReader<File>, String> {
    let file = File::open(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let mut trace = BufReader::new(file);
    Header::read(&mut trace).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(trace)
}

pub fn diff(left: &Path, right: &Path) -> Code {
    match first_difference(open(left)?, open(right)?).map_err(|e| format!("a trace cannot be read: {e}"))? {
        None => {
            println!("they are the same");
            Ok(0)
        }
        Some(mut difference) => {
            // The header is a line of the file.
            difference.line += 1;
            println!("{difference}");
            Ok(FailureKind::Nondeterminism.exit_code())
        }
    }
}
