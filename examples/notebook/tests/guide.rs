//! The guide shows this example, and nothing that is not in it.

const GUIDE: &str = include_str!("../../../crates/db/docs/own_driver.md");

const SOURCES: [&str; 6] = [
    include_str!("../src/connection.rs"),
    include_str!("../src/driver.rs"),
    include_str!("../src/main.rs"),
    include_str!("../src/rows.rs"),
    include_str!("../src/wire.rs"),
    include_str!("suite.rs"),
];

#[test]
fn every_piece_of_code_in_the_guide_is_a_piece_of_this_example() {
    let blocks: Vec<&str> = GUIDE.split("```").skip(1).step_by(2).collect();
    let code: Vec<&str> = blocks
        .iter()
        .filter_map(|block| block.strip_prefix("text\n"))
        // The drawing is no code.
        .filter(|block| !block.contains("──"))
        .collect();
    assert!(code.len() > 10, "the guide has code in it: {}", code.len());
    for piece in code {
        let is_here = SOURCES.iter().any(|source| source.contains(piece));
        assert!(is_here, "this is not in the example any more:\n{piece}");
    }
}
