//! What is on the screen, at sizes people have, whatever the panes show.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::watch::tests::view;
use super::*;

fn shown(width: u16, height: u16, view: &TopView, chosen: &mut Chosen) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, view, chosen)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn press(chosen: &mut Chosen, code: KeyCode, view: &TopView) -> bool {
    chosen.obey(KeyEvent::new(code, KeyModifiers::NONE), view)
}

/// How many lines begin like this.
fn lines_of(lines: &[String], start: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn a_node_without_panes_shows_its_queues() {
    let lines = shown(80, 8, &view(&[]), &mut Chosen::default());
    let expected = "
 macronode here  ready

 queue                         high   busy  fill
 work_tx[0]                      90      0  ■■■■···· 50/100
 telemetry                        9      0  ········ 0/100
 work                             4      0  ········ 0/100

 q quit  p pause  ? help";
    assert_eq!(lines, expected.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn one_pane_stands_above_the_queues_and_needs_no_name() {
    let lines = shown(80, 24, &view(&["alpha"]), &mut Chosen::default());
    assert_eq!((lines[2].as_str(), lines[11].as_str(), lines[12].as_str()), ("alpha 0", "alpha 9", ""));
    assert!(lines[13].starts_with(" queue"), "{lines:#?}");
    assert!(lines[23].starts_with(" q quit  p pause  ? help  x nothing "), "{lines:#?}");
    assert!(lines[23].ends_with("rows 1-10 of 10"), "{lines:#?}");
    let lines = shown(80, 15, &view(&["alpha"]), &mut Chosen::default());
    assert_eq!(lines_of(&lines, " work_tx") + lines_of(&lines, " telemetry"), 2, "queues keep their lines: {lines:#?}");
}

#[test]
fn a_wide_terminal_puts_the_queues_beside_the_panes() {
    let lines = shown(140, 40, &view(&["alpha"]), &mut Chosen::default());
    assert!(lines[2].starts_with("alpha 0 ") && lines[2].ends_with("fill"), "{lines:#?}");
}

#[test]
fn several_panes_are_all_seen_where_there_is_room() {
    let view = view(&["alpha", "beta"]);
    let lines = shown(80, 40, &view, &mut Chosen::default());
    assert_eq!(lines[1], "  1 alpha   2 beta");
    assert_eq!((lines_of(&lines, "alpha"), lines_of(&lines, "beta")), (10, 10), "{lines:#?}");
    assert!(lines[39].contains("Tab pane"), "{lines:#?}");
}

#[test]
fn where_the_room_is_short_keys_choose_the_pane() {
    let view = view(&["alpha", "beta", "gamma"]);
    let mut chosen = Chosen::default();
    for (code, service) in [
        (KeyCode::Null, "alpha"),
        (KeyCode::Tab, "beta"),
        (KeyCode::Tab, "gamma"),
        (KeyCode::Tab, "alpha"),
        (KeyCode::BackTab, "gamma"),
        (KeyCode::Char('2'), "beta"),
        (KeyCode::Char('9'), "beta"),
    ] {
        assert!(press(&mut chosen, code, &view));
        let lines = shown(80, 24, &view, &mut chosen);
        let seen = ["alpha", "beta", "gamma"].map(|service| lines_of(&lines, service));
        assert_eq!(seen, ["alpha", "beta", "gamma"].map(|name| if name == service { 10 } else { 0 }), "{code:?}");
    }
}

#[test]
fn each_pane_scrolls_by_itself() {
    let view = view(&["alpha", "beta"]);
    let mut chosen = Chosen::default();
    for code in [KeyCode::Down, KeyCode::Down, KeyCode::Tab, KeyCode::Down] {
        assert!(press(&mut chosen, code, &view));
    }
    let lines = shown(80, 40, &view, &mut chosen);
    assert_eq!((lines_of(&lines, "alpha"), lines_of(&lines, "beta")), (8, 9), "{lines:#?}");
    assert!(lines[39].ends_with("rows 2-10 of 10"), "{lines:#?}");
}

#[test]
fn common_keys_do_what_the_help_says() {
    let view = view(&["alpha", "beta"]);
    let mut chosen = Chosen::default();
    assert!(press(&mut chosen, KeyCode::Char('p'), &view) && chosen.is_paused);
    assert!(shown(80, 24, &view, &mut chosen)[23].contains("PAUSED"));
    assert!(press(&mut chosen, KeyCode::Char('?'), &view));
    let lines = shown(80, 24, &view, &mut chosen);
    for part in ["this help", "Tab, 1 to 9", "nothing at all"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    assert!(press(&mut chosen, KeyCode::Esc, &view) && !chosen.is_help, "the first Esc closes the help");
    assert!(!press(&mut chosen, KeyCode::Esc, &view));
    assert!(!press(&mut chosen, KeyCode::Char('q'), &view));
    assert!(!chosen.obey(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), &view));
}

#[test]
fn trouble_is_seen_where_it_is() {
    let mut troubled = view(&["alpha"]);
    troubled.panes[0].trouble = Some("MN0018 refused".to_owned());
    let lines = shown(80, 24, &troubled, &mut Chosen::default());
    assert!(lines[0].ends_with("ready"), "{lines:#?}");
    assert_eq!((lines[2].as_str(), lines_of(&lines, "alpha")), (" alpha: MN0018 refused", 10));
    troubled.trouble = Some("MN0017 no node answers".to_owned());
    let lines = shown(80, 24, &troubled, &mut Chosen::default());
    assert!(lines[0].contains("MN0017 no node answers") && !lines[0].contains("ready"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    let mut troubled = view(&["alpha", "beta"]);
    troubled.panes[1].trouble = Some("x".to_owned());
    troubled.panes[1].view = None;
    for (width, height) in [(1, 1), (10, 3), (20, 6), (40, 10), (300, 8), (80, 24)] {
        for view in [&troubled, &view(&["alpha"]), &TopView::default()] {
            shown(width, height, view, &mut Chosen { is_help: true, ..Chosen::default() });
        }
    }
}
