//! What every process tells of itself, under the names that all Prometheus clients use, and which moor it is.

use std::fmt;
use std::fs;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::{clock_ticks_per_second, page_size};

/// This process, read from /proc whenever somebody asks.
#[derive(Debug)]
pub(crate) struct Process {
    started: Timestamp,
}

impl Process {
    /// Of a process that has just begun.
    pub fn started_now() -> Self {
        Self { started: Timestamp::now() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = cpu_seconds() {
            let help = "Time on the processor, user and system, in seconds.";
            tell(&mut encoder, "process_cpu_seconds", help, &ConstCounter::new(seconds))?;
        }
        if let Some(bytes) = resident_bytes() {
            let help = "Memory that is in use, in bytes.";
            tell(&mut encoder, "process_resident_memory_bytes", help, &ConstGauge::new(bytes))?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            let open = i64::try_from(open.count()).unwrap_or(i64::MAX);
            tell(&mut encoder, "process_open_fds", "Open files and sockets.", &ConstGauge::new(open))?;
        }
        let help = "1, with the version of moor as its label.";
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let one = ConstGauge::new(1_i64);
        let mut info = encoder.encode_descriptor("moor_build_info", help, None, one.metric_type())?;
        one.encode(info.encode_family(&version)?)?;
        let help = "When the process began, in seconds since the epoch.";
        tell(&mut encoder, "process_start_time_seconds", help, &ConstGauge::new(self.started.as_second()))
    }
}

fn tell(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// User and system time: the 14th and 15th field of stat (proc_pid_stat(5)). The second is the program's name, in
/// parentheses, and may have spaces in it.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let (user, system) = (ticks()?, ticks()?);
    let per_second = u32::try_from(clock_ticks_per_second()).ok()?;
    Some((f64::from(user) + f64::from(system)) / f64::from(per_second))
}

/// The second field of statm, in pages (proc_pid_statm(5)).
fn resident_bytes() -> Option<i64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(i64::try_from(page_size()).ok()?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_process_tells_what_it_uses() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process::started_now()));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find(|line| line.split(' ').next() == Some(name));
            line.unwrap_or_else(|| panic!("{name} is not in {text}"))
                .rsplit(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_resident_memory_bytes") > 1e6, "{text}");
        assert!(value("process_open_fds") >= 3.0);
        assert!(text.contains("moor_build_info{version=\""), "{text}");
        assert!(value("process_start_time_seconds") > 1.7e9);
    }
}
