//! What a rule has to say about one place of the tree, and how a list of such sayings ends a command.

use std::fmt;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line number from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do instead.
    pub message: String,
}

impl Finding {
    /// A finding at a line, counted from 1.
    pub fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, message: message.into() }
    }

    /// A finding about a file as a whole.
    pub fn whole(path: &str, message: impl Into<String>) -> Self {
        Finding::at(path, 0, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Prints every finding; an error when there is one.
pub fn report(chore: &str, mut findings: Vec<Finding>) -> anyhow::Result<()> {
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{chore}: ok");
            Ok(())
        }
        count => anyhow::bail!("{chore}: {count} finding{}", if count == 1 { "" } else { "s" }),
    }
}
