//! What the fuzz targets do with bytes: each `run` feeds them to Orbit as somebody outside would, and asserts what must
//! hold whatever they are. The targets in `fuzz_targets/` call these, and so does `io/tests/fuzz_corpus.rs`, which runs
//! the committed corpora in the ordinary tests.

pub mod definition;
pub mod expression;
pub mod history;
pub mod http;
mod life;
