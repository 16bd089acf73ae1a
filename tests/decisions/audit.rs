//! The audit's decisions: what a listing shows, what is done about it, and that what is done never takes a volume away

//! from a node that uses it (design R11, interleavings B15).

mod model;
mod rules;
