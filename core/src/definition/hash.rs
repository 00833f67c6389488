//! The hash of a definition over its semantic content.
