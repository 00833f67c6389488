//! `admit`, `decide` and `apply`: what each construct of a definition does, and that all of it is total.

mod attempts;
mod endings;
mod items;
mod machine;
mod random;
mod signals;
mod totality;
