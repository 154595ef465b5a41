//! `plimsoll push`: hands policy to a running proxy and says what became of it.

use plimsoll_policy::Source;
use serde_json::Value;

use crate::admin::ProxyAddress;
use crate::admin::shapes::{Diagnostic, PushAnswer};
use crate::cli::PushArgs;
use crate::paint::{Paint, Tone};
use crate::{Failure, Verdict};

/// The verb.
///
/// # Errors
/// When a file cannot be read or the proxy cannot be asked.
pub async fn run(args: &PushArgs) -> Result<Verdict, Failure> {
    let bundle = Bundle { files: plimsoll_policy::load(&args.files)? };
    let admin = crate::admin_of(&args.proxy);
    let answer = admin.push(&bundle.name(), bundle.yaml()).await?;
    let outcome: PushAnswer = admin.read(&answer.json)?;
    let mut json = answer.json;
    bundle.locate_all(&mut json);
    crate::print(args.output.output, &json, |paint| Ok(render(&outcome, &bundle, admin.address(), paint)))?;
    Ok(if outcome.accepted { Verdict::Yes } else { Verdict::No })
}

fn render(outcome: &PushAnswer, bundle: &Bundle, proxy: &ProxyAddress, paint: Paint) -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(outcome.errors.iter().map(|d| bundle.show(d)));
    lines.extend(outcome.warnings.iter().map(|d| bundle.show(d)));
    if outcome.accepted {
        let generation = &outcome.generation;
        lines.push(format!("{} by {proxy}: generation {generation} is in force", paint.apply(Tone::Good, "taken")));
        for circuit in &outcome.open_circuits {
            lines.push(format!("{} the breaker of {circuit} is open at this moment", paint.apply(Tone::Warn, "note:")));
        }
    } else {
        lines.push(format!(
            "{} by {proxy}: {}; generation {} stays in force",
            paint.apply(Tone::Bad, "refused"),
            crate::figures::plural(outcome.errors.len() as u64, "error"),
            outcome.generation
        ));
    }
    lines.join("\n") + "\n"
}

/// The files of one push. The proxy takes one body, so they are joined; its messages are told by file again.
#[derive(Debug)]
struct Bundle {
    files: Vec<Source>,
}

/// Between two files; its single line is what [`Bundle::locate`] counts.
const SEPARATOR: &str = "---\n";

impl Bundle {
    /// What the proxy is to call it.
    fn name(&self) -> String {
        let names: Vec<_> = self.files.iter().map(|file| file.name.as_str()).collect();
        names.join("+")
    }

    fn yaml(&self) -> String {
        let texts: Vec<_> = self.files.iter().map(|file| ended(&file.text)).collect();
        texts.join(SEPARATOR)
    }

    /// The file and line that a line of the joined body came from.
    fn locate(&self, line: u64) -> Option<(&str, u64)> {
        let mut first = 1;
        for file in &self.files {
            let lines = ended(&file.text).lines().count() as u64;
            if line < first + lines {
                return Some((&file.name, line.saturating_sub(first) + 1));
            }
            first += lines + 1;
        }
        None
    }

    /// A message as `lint` prints it, every position in it told in the file's own lines.
    fn show(&self, diagnostic: &Diagnostic) -> String {
        let text = match diagnostic.text.trim_end() {
            "" => &diagnostic.message,
            text => text,
        };
        let mut shown = self.with_positions(text);
        if let Some((_, line)) = self.locate(diagnostic.line) {
            let joined = diagnostic.line.to_string();
            // As wide as before, so that the excerpt stays in line.
            let width = joined.len();
            shown = shown.replacen(&format!("\n{joined} |"), &format!("\n{line:>width$} |"), 1);
        }
        shown + "\n"
    }

    /// `text` with `a.yaml+b.yaml:12` as, say, `b.yaml:4`.
    fn with_positions(&self, text: &str) -> String {
        let joined = format!("{}:", self.name());
        let mut parts = text.split(&joined);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (line, rest) = part.split_at(digits);
            match line.parse().ok().and_then(|line| self.locate(line)) {
                Some((name, line)) => out.push_str(&format!("{name}:{line}{rest}")),
                None => out.push_str(&format!("{joined}{part}")),
            }
        }
        out
    }

    /// The same for `-o json`: `file` and `line` become those of the file.
    fn locate_all(&self, answer: &mut Value) {
        for list in ["errors", "warnings"] {
            for diagnostic in answer[list].as_array_mut().into_iter().flatten() {
                let found = diagnostic["line"].as_u64().and_then(|line| self.locate(line));
                if let Some((name, line)) = found {
                    diagnostic["file"] = name.into();
                    diagnostic["line"] = line.into();
                }
            }
        }
    }
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests;
