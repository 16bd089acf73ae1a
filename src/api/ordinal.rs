//! Which Volume a Pod means that names one itself. All Pods of a StatefulSet say the same, so they may say `data[ordinal]`:
//! then each means the Volume `data-<its ordinal>`.
//!
//! The agent asks here before it makes the Pod's claim, and the controller before it grants that, so both mean the same one.
//! What counts is the Pod's name: it never changes, no other Pod of the namespace has it, and kubelet tells it. The label that
//! says the ordinal too can be written by whoever may change Pods, and kubelet does not tell it: it can only contradict.

use super::conditions::shortened;
use super::names::is_object_name;

/// What stands for the ordinal, at the end of what a Pod says.
pub const ORDINAL: &str = "[ordinal]";
/// The label in which Kubernetes says the ordinal of a StatefulSet's Pod.
pub const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// So much is repeated of what a Pod says, in bytes: nobody has looked yet how long it is.
const REPEATED: usize = 300;

/// A Pod that names a Volume.
#[derive(Clone, Copy, Debug)]
pub struct NamingPod<'a> {
    /// Name of the Pod.
    pub name: &'a str,
    /// Its label [`POD_INDEX`]; None if it has none, or is not known.
    pub index: Option<&'a str>,
}

/// Why no Volume is meant, in words that follow the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVolumeMeant {
    /// The Pod's name does not end as those of a StatefulSet's Pods do.
    #[error(
        "is {said:?}, and the name of Pod {pod} has no ordinal, a number behind a '-' at its end: let a StatefulSet make the Pod, \
         or name one Volume, without {ORDINAL}"
    )]
    NoOrdinal {
        /// What the Pod says.
        said: String,
        /// Name of the Pod.
        pod: String,
    },
    /// The Pod's label says another ordinal than its name.
    #[error(
        "is {said:?}, and the label {POD_INDEX} of Pod {pod} is {index:?}, which is not the number at the end of its name: take the \
         label off"
    )]
    OtherIndex {
        /// What the Pod says.
        said: String,
        /// Name of the Pod.
        pod: String,
        /// Value of the label.
        index: String,
    },
    /// No object can have the name.
    #[error(
        "is {said:?}, and {name:?} is not the name of any Volume: it takes at most 253 lower case letters, digits, '-' and '.', \
         with a letter or a digit at both ends, and behind them {ORDINAL} in place of '-' and the Pod's ordinal"
    )]
    NotAName {
        /// What the Pod says.
        said: String,
        /// What that means for this Pod.
        name: String,
    },
}

/// Name of the Volume that a Pod means which says this.
///
/// # Errors
/// No Volume can be meant.
pub fn volume_meant(said: &str, pod: NamingPod<'_>) -> Result<String, NoVolumeMeant> {
    let repeated = || shortened(said, REPEATED).to_owned();
    let name = match said.strip_suffix(ORDINAL) {
        None => said.to_owned(),
        Some(begin) => {
            let pod_name = || pod.name.to_owned();
            let Some(ordinal) = ordinal_of(pod.name) else {
                return Err(NoVolumeMeant::NoOrdinal { said: repeated(), pod: pod_name() });
            };
            if let Some(index) = pod.index.filter(|index| *index != ordinal) {
                let index = index.to_owned();
                return Err(NoVolumeMeant::OtherIndex { said: repeated(), pod: pod_name(), index });
            }
            format!("{begin}-{ordinal}")
        }
    };
    // It becomes a part of the path of a request.
    if is_object_name(&name) {
        return Ok(name);
    }
    Err(NoVolumeMeant::NotAName { said: repeated(), name: shortened(&name, REPEATED).to_owned() })
}

/// The ordinal in the name of a StatefulSet's Pod, as the StatefulSet's controller writes it: an int32, and no zero before it.
/// Else two Pods could mean one Volume.
fn ordinal_of(pod: &str) -> Option<&str> {
    let (set, ordinal) = pod.rsplit_once('-')?;
    let number: i32 = ordinal.parse().ok()?;
    (!set.is_empty() && number.to_string() == ordinal).then_some(ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(said: &str, pod: &str) -> Result<String, NoVolumeMeant> {
        volume_meant(said, NamingPod { name: pod, index: None })
    }

    fn refused(said: &str, pod: &str) -> String {
        meant(said, pod).unwrap_err().to_string()
    }

    #[test]
    fn each_pod_of_a_set_means_the_volume_of_its_ordinal() {
        for (said, pod, volume) in [
            ("data", "web-0", "data"),
            ("data", "lone", "data"),
            ("data-0", "web-1", "data-0"),
            ("data[ordinal]", "web-0", "data-0"),
            ("data[ordinal]", "web-10", "data-10"),
            ("data[ordinal]", "my-web-2-7", "data-7"),
            ("web.data[ordinal]", "web-3", "web.data-3"),
            ("data[ordinal]", "web-2147483647", "data-2147483647"),
        ] {
            assert_eq!(meant(said, pod).as_deref(), Ok(volume), "{said} of {pod}");
        }
    }

    #[test]
    fn a_name_that_no_stateful_set_gives_has_no_ordinal() {
        for pod in [
            "lone",
            "",
            "7",
            "-7",
            "web-",
            "web-0-",
            "web7",
            "web-7b",
            "web-x7",
            "web.7",
            "web-0x7",
            // Web-7 has the Volume already.
            "web-07",
            "web-00",
            "web-+7",
            "web-２",
            // More than any ordinal is.
            "web-2147483648",
            "web-99999999999999999999999999",
            "web-7d4b9c5f8-x2v9q",
        ] {
            let why = refused("data[ordinal]", pod);
            assert!(why.starts_with("is \"data[ordinal]\", and the name of Pod"), "{pod}: {why}");
            assert!(why.contains(&format!("Pod {pod} has no ordinal")), "{pod}: {why}");
        }
    }

    /// Nobody who changes a label is given another volume by it, nor one that a StatefulSet did not mean.
    #[test]
    fn a_label_can_only_contradict() {
        let labelled =
            |said: &str, index| volume_meant(said, NamingPod { name: "web-2", index: Some(index) });
        assert_eq!(labelled("data[ordinal]", "2").as_deref(), Ok("data-2"));
        for index in ["3", "02", "", "web"] {
            let why = labelled("data[ordinal]", index).unwrap_err().to_string();
            assert!(why.contains(&format!("{POD_INDEX} of Pod web-2 is {index:?}")), "{why}");
        }
        assert_eq!(labelled("data", "3").as_deref(), Ok("data"), "it means no ordinal");
        let alone = volume_meant("data[ordinal]", NamingPod { name: "web", index: Some("2") });
        assert!(matches!(alone, Err(NoVolumeMeant::NoOrdinal { .. })), "{alone:?}");
    }

    #[test]
    fn what_no_volume_can_be_named_is_said_so() {
        for (said, name) in [
            ("data[index]", "data[index]"),
            ("data[0]", "data[0]"),
            ("[ordinal]data", "[ordinal]data"),
            ("data[ordinal]-x", "data[ordinal]-x"),
            ("data[ordinal][ordinal]", "data[ordinal]-2"),
            ("data[Ordinal]", "data[Ordinal]"),
            ("data[ordinal", "data[ordinal"),
            ("[ordinal]", "-2"),
            ("data.[ordinal]", "data.-2"),
            ("Data[ordinal]", "Data-2"),
            // What would lead a request elsewhere.
            ("../secrets/key", "../secrets/key"),
            ("../secrets/key[ordinal]", "../secrets/key-2"),
            ("data?watch=true", "data?watch=true"),
            ("data/status", "data/status"),
        ] {
            let why = refused(said, "web-2");
            let expected = format!("is {said:?}, and {name:?} is not the name of any Volume");
            assert!(why.starts_with(&expected), "{why}");
        }
    }

    #[test]
    fn a_name_that_becomes_too_long_is_none() {
        let begin = "d".repeat(251);
        assert_eq!(meant(&format!("{begin}[ordinal]"), "web-9"), Ok(format!("{begin}-9")));
        let why = refused(&format!("{begin}[ordinal]"), "web-10");
        assert!(why.contains(&format!("\"{begin}-10\" is not the name")), "{why}");
        let why = refused(&"é".repeat(100_000), "web-10");
        assert!(why.len() < 1000, "{} bytes are repeated", why.len());
    }
}
