use clap::CommandFactory;

use super::*;

/// The long help of a verb, or of the whole program, at a fixed width.
fn help(verb: Option<&str>) -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let command = match verb {
        Some(verb) => command.find_subcommand_mut(verb).unwrap(),
        None => &mut command,
    };
    command.render_long_help().to_string()
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn help_of_the_program() {
    insta::assert_snapshot!(help(None));
}

#[test]
fn help_of_each_verb() {
    for verb in ["demo", "lint", "push", "status", "circuits", "endpoints", "explain", "completions"] {
        insta::assert_snapshot!(verb, help(Some(verb)));
    }
}

#[test]
fn every_visible_verb_has_examples() {
    let command = Cli::command();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(examples.contains("Examples:\n  plimsoll "), "{}", verb.get_name());
    }
}
