//! Finds the name that was probably meant.

/// The candidate nearest to `name`, if any is near enough to be a slip of the fingers.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (name.len() / 3).max(2);
    let measured = candidates.into_iter().map(|candidate| (distance(name, candidate), candidate));
    measured.filter(|(steps, _)| *steps <= allowed).min_by_key(|(steps, _)| *steps).map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
pub fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for row in 1..=from.len() {
        let mut this = vec![row];
        for column in 1..=to.len() {
            let differs = usize::from(from[row - 1] != to[column - 1]);
            let mut steps = (last[column - 1] + differs).min(last[column] + 1).min(this[column - 1] + 1);
            let swapped = row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
            if swapped {
                steps = steps.min(before_last[column - 2] + 1);
            }
            this.push(steps);
        }
        before_last = std::mem::replace(&mut last, this);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, steps) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "abd", 1),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("straße", "strasse", 2),
        ] {
            assert_eq!(distance(from, to), steps, "{from} {to}");
            assert_eq!(distance(to, from), steps, "{to} {from}");
        }
    }

    #[test]
    fn only_a_near_name_is_offered() {
        let names = ["http.request_deadline", "io.read_timeout", "amnesia"];
        assert_eq!(nearest("http.request_deadlne", names), Some("http.request_deadline"));
        assert_eq!(nearest("amnseia", names), Some("amnesia"));
        assert_eq!(nearest("colour", names), None);
    }
}
