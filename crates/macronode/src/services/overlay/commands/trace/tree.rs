//! The way of a message as a tree of lines.

use super::super::short;
use super::AskedNode;
use crate::commands::text::{counted, one_line};

/// The way of a message through these nodes, beginning where it was published.
pub fn show(msg_id: &str, nodes: &[AskedNode]) -> String {
    let Some(trace) = nodes.iter().find_map(|node| node.trace.as_ref()) else {
        return format!("{msg_id}: no node that was asked holds it\n{}", outside(nodes));
    };
    let mut text = format!(
        "{msg_id}  lane {}, seq {} of {} in epoch {}\n",
        one_line(&trace.lane),
        trace.seq,
        short(&trace.origin),
        trace.epoch
    );
    let mut tree = Tree { nodes, is_shown: vec![false; nodes.len()] };
    // A node whose parent was not asked begins a tree of its own.
    for index in 0..nodes.len() {
        if tree.parent(index).is_none() {
            tree.append(index, "", "", &mut text);
        }
    }
    // Nodes that name each other as parents have no beginning; they are shown nevertheless.
    for index in 0..nodes.len() {
        tree.append(index, "", "", &mut text);
    }
    text + &outside(nodes)
}

/// Nodes that have no part in the tree, and why.
fn outside(nodes: &[AskedNode]) -> String {
    let line = |node: &AskedNode| match (&node.trace, &node.failure) {
        (Some(_), _) => None,
        (None, Some(failure)) => Some(format!("{}: {failure}\n", node.name)),
        (None, None) => Some(format!("{} {}: its ring does not hold the message\n", node.name, short(&node.node_id))),
    };
    nodes.iter().filter_map(line).collect()
}

struct Tree<'a> {
    nodes: &'a [AskedNode],
    is_shown: Vec<bool>,
}

impl Tree<'_> {
    /// The node that a node got the message from, if it was asked too.
    fn parent(&self, index: usize) -> Option<usize> {
        let from = self.nodes[index].trace.as_ref()?.from.as_ref()?;
        self.nodes.iter().position(|node| node.node_id == *from && node.trace.is_some())
    }

    /// Appends a node and everything beneath it, each node once.
    fn append(&mut self, index: usize, branch: &str, indent: &str, text: &mut String) {
        let node = &self.nodes[index];
        let Some(trace) = &node.trace else { return };
        if std::mem::replace(&mut self.is_shown[index], true) {
            return;
        }
        let origin = match &trace.from {
            None => "published here".to_owned(),
            Some(from) => format!("from {}, {}", short(from), counted(trace.hops, "hop")),
        };
        let (eager, lazy) = (trace.eager.len(), trace.lazy.len());
        *text += &format!("{branch}{} {}  {origin}; pushed to {eager}, told {lazy}\n", node.name, short(&node.node_id));
        let children: Vec<usize> =
            (0..self.nodes.len()).filter(|child| *child != index && self.parent(*child) == Some(index)).collect();
        for (number, child) in children.iter().enumerate() {
            let is_last = number + 1 == children.len();
            let (mark, below) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.append(*child, &format!("{indent}{mark}"), &format!("{indent}{below}"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NodeTrace;
    use super::*;

    fn node(name: &str, from: Option<&str>, hops: u64) -> AskedNode {
        let id = |name: &str| format!("{name}-and-more-of-its-id");
        let trace = NodeTrace {
            lane: "chat".to_owned(),
            origin: id("n1"),
            epoch: 5,
            seq: 3,
            hops,
            from: from.map(id),
            eager: vec![id("x")],
            lazy: Vec::new(),
        };
        AskedNode { name: name.to_owned(), node_id: id(name), trace: Some(trace), failure: None }
    }

    #[test]
    fn a_message_is_followed_from_where_it_was_published() {
        let missing = AskedNode { name: "n5".to_owned(), node_id: "n5".to_owned(), ..AskedNode::default() };
        let dead = AskedNode { name: "n6".to_owned(), failure: Some("gone".to_owned()), ..AskedNode::default() };
        let nodes = [
            node("n4", Some("n2"), 2),
            node("n2", Some("n1"), 1),
            node("n1", None, 0),
            node("n3", Some("n1"), 1),
            missing,
            dead,
        ];
        let expected = "ab  lane chat, seq 3 of n1-and-m in epoch 5\n\
            n1 n1-and-m  published here; pushed to 1, told 0\n\
            ├─ n2 n2-and-m  from n1-and-m, 1 hop; pushed to 1, told 0\n\
            │  └─ n4 n4-and-m  from n2-and-m, 2 hops; pushed to 1, told 0\n\
            └─ n3 n3-and-m  from n1-and-m, 1 hop; pushed to 1, told 0\n\
            n5 n5: its ring does not hold the message\n\
            n6: gone\n";
        assert_eq!(show("ab", &nodes), expected);
    }

    #[test]
    fn parts_whose_parent_was_not_asked_and_circles_are_shown_as_well() {
        let text = show("ab", &[node("n7", Some("n9"), 3)]);
        assert!(text.ends_with("n7 n7-and-m  from n9-and-m, 3 hops; pushed to 1, told 0\n"), "{text}");
        let text = show("ab", &[node("n7", Some("n8"), 3), node("n8", Some("n7"), 3)]);
        assert_eq!(text.lines().count(), 3, "each once: {text}");
        assert!(show("ab", &[AskedNode::default()]).starts_with("ab: no node that was asked holds it\n"));
    }
}
