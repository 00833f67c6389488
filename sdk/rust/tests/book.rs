//! The book's chapter on Rust shows the examples as they are.

use std::path::Path;

#[test]
fn the_programs_that_the_chapter_shows_are_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/src/sdk/rust.md")).expect("the chapter is there");
    let programs: Vec<&str> = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let mut names = page.lines().filter_map(|line| line.strip_prefix("<!-- ")?.strip_suffix(" -->"));
    for program in &programs {
        let path = names.next().expect("a comment before each program names its file");
        let file = std::fs::read_to_string(root.join(path)).expect("a file that the chapter names");
        assert_eq!(*program, file, "{path}");
    }
    assert_eq!((programs.len(), names.next()), (2, None), "a worker and a client");
}
