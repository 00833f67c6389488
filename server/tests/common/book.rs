//! The pages of the book, and what they show.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the whole project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace").into()
}

/// A code block: the line before it, its language, and what is in it.
pub struct Block {
    pub before: String,
    pub language: String,
    pub code: String,
}

impl Block {
    /// The file that it shows, where the line before names one: `<!-- docs/examples/greeting.yaml -->`.
    pub fn file(&self) -> Option<&str> {
        self.before.strip_prefix("<!-- ")?.strip_suffix(" -->")
    }
}

/// The code blocks of a text.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    let mut before = "";
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let code = code.iter().map(|line| format!("{line}\n")).collect();
            blocks.push(Block { before: before.into(), language: language.into(), code });
        }
        before = line;
    }
    blocks
}

/// Holds the blocks that show a file to what is in it; how many there are.
pub fn compare_with_files(text: &str) -> usize {
    let shown: Vec<Block> = blocks(text).into_iter().filter(|block| block.file().is_some()).collect();
    for block in &shown {
        let path = block.file().expect("it names one");
        let file = std::fs::read_to_string(root().join(path)).expect("a file that the page names");
        assert_eq!(block.code, file, "{path}");
    }
    shown.len()
}

/// The program of an example of the SDK for Rust, built.
pub fn rust_example(name: &str) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "-p", "orbit-sdk", "--example", name])
        .current_dir(root())
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the example {name} does not build");
    let binary = Path::new(env!("CARGO_BIN_EXE_orbit")).with_file_name("examples").join(name);
    assert!(binary.exists(), "{}", binary.display());
    binary
}
