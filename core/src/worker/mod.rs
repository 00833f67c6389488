//! Workers: sessions, contracts, and who gets which task.
