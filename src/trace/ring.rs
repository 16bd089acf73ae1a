//! The memory of an agent's calls, bounded by their number and their bytes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use parking_lot::Mutex;

use super::call::{Call, End, Told};

/// Most calls that are kept about one volume of a driver.
const PER_VOLUME: usize = 64;
/// Most calls that are kept.
const MOST: usize = 4096;
/// Most bytes of all calls together.
const BYTES: usize = 4 * 1024 * 1024;
/// Longest id or name that is kept, in bytes: CSI's ids are at most as long as moor takes them.
const LONGEST: usize = 1024;

/// The last calls of a process. The oldest go first; a volume that is gone stays until others have pushed it out.
#[derive(Debug)]
pub struct Trace {
    since: Timestamp,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    bytes: usize,
    calls: BTreeMap<u64, Call>,
    /// The numbers of the calls about each volume: a busy agent takes in thousands while it keeps thousands.
    of_each: HashMap<Subject, BTreeSet<u64>>,
}

/// Whom a call is about: a driver, and a volume of it or what else comes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    driver: String,
    first: Option<String>,
}

impl Subject {
    fn of(call: &Call) -> Self {
        Self { driver: call.driver.clone(), first: call.of.first().cloned() }
    }
}

/// A call that begins.
#[derive(Debug)]
pub struct Begun<'a> {
    /// The method.
    pub rpc: &'static str,
    /// The call changes nothing. Of those that went well only the last is kept: kubelet has some repeated for ever.
    pub is_question: bool,
    /// The driver.
    pub driver: &'a str,
    /// Whom it is about, the volume before all others.
    pub of: &'a [&'a str],
    /// The request, redacted.
    pub request: String,
}

/// A call that is running. Dropped before it has ended it was given up.
#[derive(Debug)]
pub struct Running {
    trace: Arc<Trace>,
    number: u64,
    is_question: bool,
    started: Instant,
    has_ended: bool,
}

impl Default for Trace {
    fn default() -> Self {
        Self { since: Timestamp::now(), ring: Mutex::default() }
    }
}

impl Trace {
    /// Takes in a call that begins.
    pub fn begin(self: &Arc<Self>, begun: Begun<'_>) -> Running {
        let Begun { rpc, is_question, driver, of, request } = begun;
        let call = Call {
            began: MicroTime(Timestamp::now()),
            rpc: rpc.to_owned(),
            driver: driver.to_owned(),
            of: of.iter().filter(|id| id.len() <= LONGEST).map(|id| (*id).to_owned()).collect(),
            made: None,
            request,
            end: None,
        };
        let number = self.ring.lock().add(call);
        Running { trace: self.clone(), number, is_question, started: Instant::now(), has_ended: false }
    }

    /// What is kept now, as the agent of this node tells it.
    pub fn told(&self, node: &str) -> Told {
        let calls = self.ring.lock().calls.values().cloned().collect();
        Told { node: node.to_owned(), since: MicroTime(self.since), calls }
    }
}

impl Ring {
    fn add(&mut self, call: Call) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += size(&call);
        let of_it = self.of_each.entry(Subject::of(&call)).or_default();
        let oldest = of_it.first().copied().filter(|_| of_it.len() >= PER_VOLUME);
        of_it.insert(number);
        self.calls.insert(number, call);
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        self.fit();
        number
    }

    fn end(&mut self, number: u64, end: End, made: Option<&str>, is_question: bool) {
        let went_well = is_question && end.code.as_deref() == Some("Ok");
        // Others may have pushed it out.
        let Some(call) = self.calls.get_mut(&number) else { return };
        self.bytes -= size(call);
        call.made = made.filter(|id| id.len() <= LONGEST).map(str::to_owned);
        call.end = Some(end);
        self.bytes += size(call);
        if went_well {
            let call = call.clone();
            let is_repeated = |kept: &Call| {
                (&kept.rpc, &kept.of) == (&call.rpc, &call.of)
                    && kept.end.as_ref().is_some_and(|end| end.code.as_deref() == Some("Ok"))
            };
            let others =
                self.of_each.get(&Subject::of(&call)).into_iter().flatten().filter(|n| **n != number);
            let is_one = |n: &&u64| self.calls.get(n).is_some_and(is_repeated);
            let repeated: Vec<u64> = others.filter(is_one).copied().collect();
            for number in repeated {
                self.remove(number);
            }
        }
        self.fit();
    }

    fn fit(&mut self) {
        while self.calls.len() > MOST || self.bytes > BYTES {
            let Some(oldest) = self.calls.keys().next().copied() else { return };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(call) = self.calls.remove(&number) else { return };
        self.bytes -= size(&call);
        if let Entry::Occupied(mut of_it) = self.of_each.entry(Subject::of(&call)) {
            of_it.get_mut().remove(&number);
            if of_it.get().is_empty() {
                of_it.remove();
            }
        }
    }
}

/// The bytes that a call takes.
fn size(call: &Call) -> usize {
    let Call { rpc, driver, of, made, request, end, .. } = call;
    let names = of.iter().chain(made).map(|id| id.len() + mem::size_of::<String>()).sum::<usize>();
    let end = end
        .as_ref()
        .map_or(0, |end| end.answer.len() + end.message.len() + end.code.as_ref().map_or(0, String::len));
    mem::size_of::<Call>() + rpc.len() + driver.len() + names + request.len() + end
}

impl Running {
    /// The call has ended, with the code, what was said of a failure, and the answer, both redacted; it has made what has this
    /// id.
    pub fn end(mut self, code: String, message: String, answer: String, made: Option<&str>) {
        let end = End { milliseconds: self.milliseconds(), code: Some(code), message, answer };
        self.trace.ring.lock().end(self.number, end, made, self.is_question);
        self.has_ended = true;
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            let (message, answer) = (String::new(), String::new());
            let end = End { milliseconds: self.milliseconds(), code: None, message, answer };
            self.trace.ring.lock().end(self.number, end, None, self.is_question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(trace: &Arc<Trace>, is_question: bool, of: &str, request: String) -> Running {
        let rpc = if is_question { "NodeGetVolumeStats" } else { "NodeStageVolume" };
        trace.begin(Begun { rpc, is_question, driver: "d", of: &[of], request })
    }

    fn end(running: Running, code: &str) {
        running.end(code.into(), String::new(), String::new(), None);
    }

    fn kept(trace: &Trace) -> Vec<(String, Option<String>)> {
        let outcome = |call: Call| call.end.map(|end| end.outcome().to_owned());
        trace.told("n").calls.into_iter().map(|call| (call.request.clone(), outcome(call))).collect()
    }

    #[test]
    fn of_one_volume_and_of_all_only_so_many_are_kept() {
        let trace = Arc::new(Trace::default());
        end(begin(&trace, false, "other", "first".into()), "Ok");
        for number in 0..=PER_VOLUME {
            end(begin(&trace, false, "a", number.to_string()), "Ok");
        }
        let all = kept(&trace);
        assert_eq!((all.len(), all[0].0.as_str(), all[1].0.as_str()), (PER_VOLUME + 1, "first", "1"));
        for number in 0..MOST {
            end(begin(&trace, false, &format!("vol-{number}"), String::new()), "Ok");
        }
        assert!(trace.told("n").calls.len() == MOST && trace.told("n").calls[0].of == ["vol-0"]);
    }

    #[test]
    fn they_take_only_so_many_bytes() {
        let trace = Arc::new(Trace::default());
        for number in 0..1000 {
            end(begin(&trace, false, &format!("vol-{number}"), "r".repeat(8192)), "Ok");
        }
        let ring = trace.ring.lock();
        let counted: usize = ring.calls.values().map(size).sum();
        assert!(ring.bytes == counted && counted <= BYTES && ring.calls.len() > 400, "{counted}");
        assert_eq!(ring.calls.keys().next_back(), Some(&999));
    }

    proptest::proptest! {
        #[test]
        fn what_is_known_of_each_volume_is_what_is_kept(
            calls in proptest::collection::vec((0..3_u8, proptest::bool::ANY, proptest::bool::ANY), 0..300),
        ) {
            let trace = Arc::new(Trace::default());
            let mut running = Vec::new();
            for (of, is_question, ends) in calls {
                running.push(begin(&trace, is_question, &of.to_string(), String::new()));
                if ends {
                    end(running.swap_remove(0), "Ok");
                }
            }
            let ring = trace.ring.lock();
            let mut of_each: HashMap<Subject, BTreeSet<u64>> = HashMap::new();
            for (number, call) in &ring.calls {
                of_each.entry(Subject::of(call)).or_default().insert(*number);
            }
            proptest::prop_assert_eq!(&ring.of_each, &of_each);
            proptest::prop_assert!(of_each.values().all(|numbers| numbers.len() <= PER_VOLUME));
            proptest::prop_assert_eq!(ring.bytes, ring.calls.values().map(size).sum::<usize>());
            drop(ring);
        }
    }

    #[test]
    fn what_runs_is_told_and_what_is_given_up_too() {
        let trace = Arc::new(Trace::default());
        let (first, second) = (begin(&trace, false, "a", "1".into()), begin(&trace, false, "a", "2".into()));
        drop(second);
        assert_eq!(kept(&trace), [("1".into(), None), ("2".into(), Some("given up by the agent".into()))]);
        first.end("Internal".into(), "no".into(), String::new(), None);
        assert_eq!(kept(&trace)[0].1.as_deref(), Some("Internal"));
    }

    #[test]
    fn of_a_question_that_is_repeated_the_last_answer_is_kept() {
        let trace = Arc::new(Trace::default());
        for (request, code) in [("1", "Ok"), ("2", "Internal"), ("3", "Ok"), ("4", "Ok")] {
            end(begin(&trace, true, "a", request.into()), code);
        }
        end(begin(&trace, true, "b", "5".into()), "Ok");
        let requests: Vec<_> = kept(&trace).into_iter().map(|(request, _)| request).collect();
        assert_eq!(requests, ["2", "4", "5"]);
    }

    #[test]
    fn an_end_that_comes_too_late_changes_nothing() {
        let trace = Arc::new(Trace::default());
        let early = begin(&trace, false, "a", "early".into());
        for number in 0..PER_VOLUME {
            end(begin(&trace, false, "a", number.to_string()), "Ok");
        }
        end(early, "Ok");
        assert!(kept(&trace).len() == PER_VOLUME && kept(&trace)[0].0 == "0");
        let ring = trace.ring.lock();
        assert_eq!(ring.bytes, ring.calls.values().map(size).sum::<usize>());
    }
}
