//! Resends what stayed unknown until the answer is known.
