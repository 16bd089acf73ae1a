//! Who may use a volume together, and who waits for whom: the whole table of modes, and fairness over time.

mod fairness;
mod forgotten;
mod guards;
mod line;
mod pods;
mod scene;
mod table;
mod without_lock;
