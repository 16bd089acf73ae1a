//! The audit's decisions: what a listing shows, what is done about it, and that what is done never takes a volume away

//! from a node that uses it (rule R11, trap B15).

mod model;
mod rules;
