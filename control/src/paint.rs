//! Colour, and the one decision whether to use it.

use std::io::IsTerminal;

/// What a piece of text says about the state of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to point out.
    Plain,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Broken or refused.
    Bad,
    /// Context; may be skipped when reading.
    Dim,
    /// A heading, or the figure that matters.
    Strong,
}

/// Wraps text in colour, or leaves it alone.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// Text without any escape sequence.
    #[cfg(test)]
    pub const PLAIN: Paint = Paint { colour: false };

    /// Colour only for a person at a terminal who has not asked for none
    /// (<https://no-color.org>: set and not empty).
    pub fn for_stream(stream: &impl IsTerminal) -> Paint {
        let unset_or_empty = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Paint { colour: stream.is_terminal() && unset_or_empty("NO_COLOR") && !dumb }
    }

    /// `text` in the colour of `tone`.
    pub fn apply(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.colour => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "1;31",
            Tone::Dim => "2",
            Tone::Strong => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paint_adds_nothing() {
        assert_eq!(Paint::PLAIN.apply(Tone::Bad, "open"), "open");
    }

    #[test]
    fn colour_ends_where_the_text_ends() {
        let paint = Paint { colour: true };
        assert_eq!(paint.apply(Tone::Good, "closed"), "\x1b[32mclosed\x1b[0m");
        assert_eq!(paint.apply(Tone::Plain, "closed"), "closed");
    }
}
