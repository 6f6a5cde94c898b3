//! What is on the screen, at sizes people have.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::view::tests::samples;
use super::*;

fn shown(width: u16, height: u16, view: &View, trouble: Option<&str>, chosen: &mut Chosen) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
    terminal.draw(|frame| draw(frame, view, trouble, chosen)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn view() -> View {
    let (before, now) = samples();
    View::of("127.0.0.1:8080", &now, Some(&before))
}

#[test]
fn a_small_terminal_shows_all_parts() {
    let lines = shown(80, 24, &view(), None, &mut Chosen::default());
    let expected = "
 macronode 127.0.0.1:8080  ready
 fsynced  log 64.0 MiB of 16.0 GiB, 1 segment, 100 syncs/s, 1000 records/s

 shard    ready  leased delayed waiters  queue
 0           40       2       3       1  ■■■■···· 50/100
 1            0       0       0       0

 queue                         high   busy  fill
 work_tx[0]                      90      0  ■■■■···· 50/100
 telemetry                        9      0  ········ 0/100
 work                             4      0  ········ 0/100


 topic             ready  leased delayed    in/s   out/s   ack/s    dead  oldest
 a                    40       0       0     200     100      50       4     90s
 c                    40       0       0       -       -       -       4     90s
 b                     0       0       0       -       -       -       0       -






 q quit  s sort  p pause  up/down scroll  ? help                topics 1-3 of 3";
    let expected: Vec<&str> = expected.lines().skip(1).collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_wide_terminal_puts_queues_beside_shards() {
    let lines = shown(140, 40, &view(), None, &mut Chosen::default());
    assert!(lines[3].contains("shard") && lines[3].contains("queue") && lines[3].contains("fill"), "{lines:#?}");
    assert!(lines[11].starts_with(" topic") && lines[10].is_empty(), "{lines:#?}");
}

#[test]
fn a_narrow_terminal_leaves_out_whole_columns() {
    let lines = shown(60, 24, &view(), None, &mut Chosen::default());
    let head = lines.iter().find(|line| line.starts_with(" topic")).expect("the topics");
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["topic", "ready", "leased", "delayed", "in/s", "out/s", "ack/s"]
    );
}

#[test]
fn scrolling_sorting_and_pausing_are_seen() {
    let mut chosen = Chosen { offset: 1, sort: Sort::Name, is_paused: true, ..Chosen::default() };
    let lines = shown(80, 24, &view(), None, &mut chosen);
    assert!(lines[14].starts_with(" b ") && lines[15].starts_with(" c "), "{lines:#?}");
    assert!(lines[23].contains("PAUSED"), "{lines:#?}");
    chosen.offset = 99;
    shown(80, 24, &view(), None, &mut chosen);
    assert_eq!(chosen.offset, 2, "scrolling ends at the last topic");
    chosen.is_help = true;
    assert!(shown(80, 24, &view(), None, &mut chosen).iter().any(|line| line.contains("this help")));
}

#[test]
fn trouble_takes_the_place_of_the_state() {
    let lines = shown(80, 24, &view(), Some("MN0017 no node answers"), &mut Chosen::default());
    assert!(lines[0].contains("MN0017 no node answers") && !lines[0].contains("ready"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (20, 6), (40, 10), (300, 8), (80, 24)] {
        let mut chosen = Chosen { is_help: true, ..Chosen::default() };
        shown(width, height, &view(), None, &mut chosen);
        shown(width, height, &View::default(), Some("x"), &mut chosen);
    }
}
