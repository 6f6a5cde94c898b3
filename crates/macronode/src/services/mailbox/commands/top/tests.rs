//! What is seen of the mailbox, at sizes people have.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::view::tests::view;
use super::*;

fn shown(width: u16, height: u16, view: &MailboxView, state: &mut PaneState) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| view.draw(frame, frame.area(), state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn all_parts_fit_into_the_height_that_is_wanted() {
    let view = view();
    let lines = shown(80, view.height_wanted(), &view, &mut PaneState::default());
    let expected = "
 fsynced  log 64.0 MiB of 16.0 GiB, 1 segment, 100 syncs/s, 1000 records/s

 shard    ready  leased delayed waiters  queue
 0           40       2       3       1  ■■■■···· 50/100
 1            0       0       0       0

 topic             ready  leased delayed    in/s   out/s   ack/s    dead  oldest
 a                    40       0       0     200     100      50       4     90s
 c                    40       0       0       -       -       -       4     90s
 b                     0       0       0       -       -       -       0       -";
    assert_eq!(lines, expected.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn a_narrow_terminal_leaves_out_whole_columns() {
    let lines = shown(60, 24, &view(), &mut PaneState::default());
    let head = lines.iter().find(|line| line.starts_with(" topic")).expect("the topics");
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["topic", "ready", "leased", "delayed", "in/s", "out/s", "ack/s"]
    );
}

#[test]
fn keys_sort_and_scroll_the_topics() {
    let view = view();
    let mut state = PaneState::default();
    view.obey(KeyCode::Down, &mut state);
    assert_eq!((state.offset, view.position(&PaneState { page: 9, ..state })), (1, "topics 2-3 of 3".to_owned()));
    for _ in 1..Sort::ALL.len() {
        view.obey(KeyCode::Char('s'), &mut state);
    }
    assert_eq!((Sort::at(state.sort), state.offset), (Sort::Name, 0), "another order begins at the top");
    view.obey(KeyCode::Down, &mut state);
    let lines = shown(80, 24, &view, &mut state);
    assert!(lines[7].starts_with(" b ") && lines[8].starts_with(" c "), "{lines:#?}");
    state.offset = 99;
    shown(80, 24, &view, &mut state);
    assert_eq!(state.offset, 2, "scrolling ends at the last topic");
}

#[test]
fn the_fields_of_the_document_keep_their_names() {
    let fields = view().json();
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["durability", "log", "shards", "topics", "topics_total"]);
    assert_eq!(fields["topics"][0]["in_per_second"], 200.0);
    assert_eq!(view().headline(), "fsynced, 3 topics");
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (20, 6), (40, 10), (300, 8)] {
        shown(width, height, &view(), &mut PaneState::default());
        shown(width, height, &MailboxView::default(), &mut PaneState::default());
    }
}
