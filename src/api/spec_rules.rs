//! Two CEL rules for all that a kind asks of its spec.
//!
//! The API server evaluates each rule at the root of an object with every write, also with one of a status or of a finalizer, and
//! takes some ten microseconds for it: to follow `self.spec.x` it looks at all fields beside `x`. So what the kinds say
//! rule by rule is joined here: one rule for a new object, and one for a change, which first compares the specs. Where they are
//! alike nothing else is evaluated (ADR 53).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};

/// Joins the rules at the root of an object that are about its spec. Those about its status stay as they are.
pub(super) fn join(root: &mut JSONSchemaProps) {
    let Some(all) = root.x_kubernetes_validations.take() else { return };
    let (about_spec, others) = all.into_iter().partition::<Vec<_>, _>(is_about_spec);
    if about_spec.len() == 1 {
        // One alone is no dearer than what would come before it.
        root.x_kubernetes_validations = Some(about_spec.into_iter().chain(others).collect());
        return;
    }
    let changed = joined("self.spec == oldSelf.spec", about_spec.iter().filter(|rule| !is_of_new(rule)));
    let new = joined(IS_CHANGED, about_spec.iter().filter(|rule| !compares(rule)));
    let new = new.map(|rule| ValidationRule { optional_old_self: Some(true), ..rule });
    root.x_kubernetes_validations = Some(changed.into_iter().chain(new).chain(others).collect());
}

fn is_about_spec(rule: &ValidationRule) -> bool {
    rule.field_path.as_deref().is_some_and(|path| path == ".spec" || path.starts_with(".spec."))
}

/// Whether the rule is only about an object that is new: it asks whether there is an older one.
fn is_of_new(rule: &ValidationRule) -> bool {
    rule.optional_old_self == Some(true)
}

/// Whether the rule is only about a change: it compares with the older object.
fn compares(rule: &ValidationRule) -> bool {
    !is_of_new(rule) && rule.rule.contains("oldSelf")
}

/// A rule that holds where `unless` does or all of these, and of those that do not says what each says.
///
/// Its message is put together without lists of strings: the API server takes them to be of any length, and refuses what it
/// would cost to join them. Nor may it ask whether there is an older object, which the API server knows in a rule alone.
fn joined<'a>(unless: &str, rules: impl Iterator<Item = &'a ValidationRule>) -> Option<ValidationRule> {
    let (mut all, mut said) = (Vec::new(), Vec::new());
    for rule in rules {
        let holds = rule.rule.strip_prefix(IS_CHANGED).and_then(|rest| rest.strip_prefix(" || "));
        let holds = format!("({})", holds.unwrap_or(&rule.rule));
        let message = quoted(&format!("{}{BETWEEN}", rule.message.as_deref().unwrap_or_default()));
        said.push(format!("({holds} ? '' : {message})"));
        all.push(holds);
    }
    (!all.is_empty()).then(|| ValidationRule {
        rule: format!("{unless} || ({})", all.join(" && ")),
        message: Some("spec is none that this kind can have".to_owned()),
        message_expression: Some(format!(
            "[{}].map(said, said.substring(0, said.size() - {}))[0]",
            said.join(" + "),
            BETWEEN.len()
        )),
        field_path: Some(".spec".to_owned()),
        ..ValidationRule::default()
    })
}

/// What a rule about new objects alone begins with, before the or.
const IS_CHANGED: &str = "oldSelf.hasValue()";

/// What stands between the messages of two rules.
const BETWEEN: &str = "; ";

/// The text as CEL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(rule: &str, message: &str, path: &str) -> ValidationRule {
        ValidationRule {
            rule: rule.to_owned(),
            message: Some(message.to_owned()),
            field_path: Some(path.to_owned()),
            ..ValidationRule::default()
        }
    }

    fn joined_of(rules: &[ValidationRule]) -> Vec<ValidationRule> {
        let mut root =
            JSONSchemaProps { x_kubernetes_validations: Some(rules.into()), ..JSONSchemaProps::default() };
        join(&mut root);
        root.x_kubernetes_validations.unwrap()
    }

    #[test]
    fn rules_about_the_spec_are_two_and_those_about_the_status_stay() {
        let needed = rule("has(self.spec.a)", "a is missing", ".spec");
        let state = rule("self.status == oldSelf.status", "stays", ".status.state");
        let kept = rule("self.spec.b == oldSelf.spec.b", "the driver's b stays", ".spec.b");
        let foreign = ValidationRule {
            optional_old_self: Some(true),
            ..rule("oldSelf.hasValue() || !has(self.spec.c)", "c is not yours", ".spec.c")
        };
        let all = joined_of(&[needed, state.clone(), kept, foreign]);
        let changed = ValidationRule {
            rule: "self.spec == oldSelf.spec || ((has(self.spec.a)) && (self.spec.b == oldSelf.spec.b))".to_owned(),
            message: Some("spec is none that this kind can have".to_owned()),
            message_expression: Some(
                "[((has(self.spec.a)) ? '' : 'a is missing; ') + ((self.spec.b == oldSelf.spec.b) ? '' : 'the driver\\'s b \
                 stays; ')].map(said, said.substring(0, said.size() - 2))[0]"
                    .to_owned(),
            ),
            field_path: Some(".spec".to_owned()),
            ..ValidationRule::default()
        };
        let new = ValidationRule {
            rule: "oldSelf.hasValue() || ((has(self.spec.a)) && (!has(self.spec.c)))".to_owned(),
            message: Some("spec is none that this kind can have".to_owned()),
            message_expression: Some(
                "[((has(self.spec.a)) ? '' : 'a is missing; ') + ((!has(self.spec.c)) ? '' : \
                 'c is not yours; ')].map(said, said.substring(0, said.size() - 2))[0]"
                    .to_owned(),
            ),
            field_path: Some(".spec".to_owned()),
            optional_old_self: Some(true),
            ..ValidationRule::default()
        };
        assert_eq!(all, [changed, new, state]);
    }

    #[test]
    fn a_rule_alone_stays_as_it_is() {
        let lost = rule("!has(oldSelf.spec.lost)", "never withdrawn", ".spec.lost");
        assert_eq!(joined_of(std::slice::from_ref(&lost)), [lost]);
    }

    #[test]
    fn without_rules_about_a_spec_none_is_made() {
        let state = rule("self.status == oldSelf.status", "stays", ".status.state");
        assert_eq!(joined_of(std::slice::from_ref(&state)), [state]);
    }
}
