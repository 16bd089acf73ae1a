//! What the processes of moor take of the machine's memory.

use std::fs;

use super::Rig;

impl Rig {
    /// The most memory that the process `actor` has had since it was started, in bytes.
    pub fn peak_memory(&self, actor: &str) -> u64 {
        let id = self.processes.lock().unwrap()[actor].id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes << 10
    }
}
