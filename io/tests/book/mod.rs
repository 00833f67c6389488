//! Pages of the book, as tests read them.
// Each test that has this as a module uses a part of it.
#![allow(dead_code)]

use std::path::Path;

/// The text of a page, by its path below `docs/src`.
pub fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The blocks between fences, each with what stands behind the first fence.
pub fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            open = !open;
            if open {
                blocks.push((kind.to_owned(), String::new()));
            }
        } else if open {
            let block = &mut blocks.last_mut().expect("a block is open").1;
            block.push_str(line);
            block.push('\n');
        }
    }
    assert!(!open, "a block has no end");
    blocks
}

/// The definition that a block of the definitions reference shows: whole (`yaml`), or the steps of one (`yaml,steps`).
/// None for other blocks.
pub fn definition(kind: &str, text: &str) -> Option<String> {
    match kind {
        "yaml" => Some(text.to_owned()),
        "yaml,steps" => {
            let steps: String = text.lines().map(|line| format!("  {line}\n")).collect();
            Some(format!("name: Example\nversion: \"1\"\nsteps:\n{steps}"))
        }
        _ => None,
    }
}
