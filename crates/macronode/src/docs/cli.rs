//! docs/cli.md: every command with its usage and options, from the definition that parses them.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// Text of docs/cli.md.
pub fn cli() -> String {
    page(crate::cli::parser())
}

fn page(mut root: Command) -> String {
    // Usage lines name the whole path of a command only after this.
    root.build();
    let mut page = format!("# The command line\n\n{}\n", super::NOTE);
    page.push_str("The same in a terminal: `--help` after any command.\n\n");
    section(&mut page, &root, &[]);
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

/// A command and those below it, depth first, in the order in which the help lists them.
fn section(page: &mut String, command: &Command, parents: &[&str]) {
    let path = [parents, &[command.get_name()]].concat();
    let _ = writeln!(page, "## {}\n", path.join(" "));
    if let Some(about) = command.get_long_about().or_else(|| command.get_about()) {
        let _ = writeln!(page, "{}\n", about.to_string().trim());
    }
    let usage = command.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    let _ = writeln!(page, "```text\n{}\n```\n", usage.join("\n").trim());
    table(page, "command", below(command).map(|below| (below.get_name().to_owned(), about_in_a_line(below))));
    table(page, "argument or option", arguments(command).map(|argument| (argument.to_string(), help(argument))));
    if let Some(more) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        let _ = writeln!(page, "```text\n{}\n```\n", more.to_string().trim());
    }
    below(command).for_each(|below| section(page, below, &path));
}

fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_everywhere = |argument: &Arg| ["help", "version"].contains(&argument.get_id().as_str());
    command.get_arguments().filter(move |argument| !is_everywhere(argument) && !argument.is_hide_set())
}

fn about_in_a_line(command: &Command) -> String {
    command.get_about().map(|about| in_a_line(&about.to_string())).unwrap_or_default()
}

/// Help of an argument, with its default and possible values.
fn help(argument: &Arg) -> String {
    let said = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = in_a_line(&said);
    for alias in argument.get_visible_aliases().unwrap_or_default() {
        let _ = write!(help, " [also: --{alias}]");
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if argument.get_action().takes_values() {
        if !defaults.is_empty() {
            let _ = write!(help, " [default: {}]", defaults.join(", "));
        }
        let words: Vec<String> =
            argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if !words.is_empty() {
            let _ = write!(help, " [possible values: {}]", words.join(", "));
        }
    }
    help
}

fn in_a_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(page: &mut String, what: &str, rows: impl Iterator<Item = (String, String)>) {
    let escaped = |text: &str| text.replace('|', "\\|");
    let rows: Vec<Vec<String>> =
        rows.map(|(name, help)| vec![format!("`{}`", escaped(&name)), escaped(&help)]).collect();
    if !rows.is_empty() {
        super::table(page, &[what, "what it does"], rows);
        page.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_commands_is_a_page() {
        let say = Command::new("say")
            .about("Say a word.")
            .arg(Arg::new("word").required(true).help("The word | the name"))
            .arg(
                Arg::new("how")
                    .long("how")
                    .value_parser(["loud", "low"])
                    .default_value("low")
                    .help("How\nto")
                    .visible_alias("as"),
            )
            .arg(Arg::new("secret").long("secret").hide(true));
        let root = Command::new("x").about("A tool.").after_help("Examples").subcommand(say);
        let page = page(root);
        for expected in [
            "## x\n\nA tool.\n\n```text\nx [COMMAND]\n```\n",
            "| `say` | Say a word. |",
            "```text\nExamples\n```",
            "## x say\n\nSay a word.\n\n```text\nx say [OPTIONS] <word>\n```\n",
            "| `<word>` | The word \\| the name |",
            "| `--how <how>` | How to [also: --as] [default: low] [possible values: loud, low] |",
        ] {
            assert!(page.contains(expected), "{expected}\nin\n{page}");
        }
        assert!(!page.contains("secret") && !page.contains("Print help") && page.ends_with("|\n"), "{page}");
    }
}
