//! `plimsoll lint`: checks policy before anything runs it. The policy crate judges; this prints.

use plimsoll_policy::{Diagnostic, Diagnostics, Kind, PolicySet, Severity, Source};
use serde_json::{Value, json};

use crate::cli::{LintArgs, Output};
use crate::figures::plural;
use crate::paint::{Paint, Tone};
use crate::{Failure, Verdict};

/// The verb.
///
/// # Errors
/// When a file cannot be read.
pub fn run(args: &LintArgs) -> Result<Verdict, Failure> {
    if args.schema {
        return crate::print(Output::Json, &schema(), |_| Ok(String::new()));
    }
    if args.defaults {
        let text = |_| Ok(plimsoll_policy::defaults_text());
        return crate::print(args.output.output, &defaults(), text);
    }
    let findings = Findings::of(&plimsoll_policy::load(&args.files)?);
    crate::print(args.output.output, &json!(findings.list), |paint| Ok(findings.render(paint)))?;
    Ok(if findings.policies.is_some() { Verdict::Yes } else { Verdict::No })
}

/// One schema for any document, so that an editor needs one line of set-up.
fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Plimsoll policy",
        "oneOf": Kind::ALL.map(plimsoll_policy::schema),
    })
}

fn defaults() -> Value {
    let rows = |kind: Kind| {
        let row = |row: plimsoll_policy::Row| json!({"field": row.field, "default": row.default, "description": row.description});
        let rows: Vec<_> = plimsoll_policy::defaults(kind).into_iter().map(row).collect();
        (kind.as_str().to_owned(), Value::from(rows))
    };
    Value::Object(Kind::ALL.into_iter().map(rows).collect())
}

/// What was found in the files.
#[derive(Debug)]
struct Findings {
    list: Vec<Diagnostic>,
    omitted_errors: usize,
    omitted_warnings: usize,
    /// How many policies there are; `None` when they are refused.
    policies: Option<usize>,
}

impl Findings {
    fn of(sources: &[Source]) -> Findings {
        match plimsoll_policy::parse(sources) {
            Ok(PolicySet { dependencies, workloads, warnings, omitted_warnings }) => Findings {
                list: warnings,
                omitted_errors: 0,
                omitted_warnings,
                policies: Some(dependencies.len() + workloads.len()),
            },
            Err(Diagnostics { list, omitted_errors, omitted_warnings }) => {
                Findings { list, omitted_errors, omitted_warnings, policies: None }
            }
        }
    }

    fn render(&self, paint: Paint) -> String {
        let mut text: String = self.list.iter().map(|d| coloured(d, paint) + "\n\n").collect();
        match self.omitted_errors + self.omitted_warnings {
            0 => {}
            more => text.push_str(&format!("... and {more} more\n\n")),
        }
        text + &self.conclusion(paint) + "\n"
    }

    fn conclusion(&self, paint: Paint) -> String {
        let number = |severity, omitted: usize| {
            let listed = self.list.iter().filter(|d| d.severity == severity).count();
            (listed + omitted) as u64
        };
        let warnings = match number(Severity::Warning, self.omitted_warnings) {
            0 => String::new(),
            n => format!(", {}", plural(n, "warning")),
        };
        match self.policies {
            Some(n) => {
                let good = paint.apply(Tone::Good, "ok");
                let policies = match n {
                    1 => "1 policy".to_owned(),
                    n => format!("{n} policies"),
                };
                format!("{good}: {policies}{warnings}")
            }
            None => {
                let bad = paint.apply(Tone::Bad, "refused");
                let errors = plural(number(Severity::Error, self.omitted_errors), "error");
                format!("{bad}: {errors}{warnings}")
            }
        }
    }
}

/// A message with its first word in colour.
fn coloured(diagnostic: &Diagnostic, paint: Paint) -> String {
    let tone = match diagnostic.severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Warn,
    };
    let text = diagnostic.to_string();
    match text.strip_prefix(diagnostic.severity.as_str()) {
        Some(rest) => paint.apply(tone, diagnostic.severity.as_str()) + rest,
        None => text,
    }
}

#[cfg(test)]
mod tests;
