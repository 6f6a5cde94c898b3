//! Server-sent events, taken apart as their bytes come.

/// Bytes of one frame that are kept unless the caller says otherwise.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// One event of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Id of the event; the next stream continues behind it.
    pub id: String,
    /// The name of the event; empty for one without.
    pub event: String,
    /// Data lines of the event, joined.
    pub data: String,
}

/// Bytes that are not yet a whole frame.
#[derive(Debug)]
pub struct FrameReader {
    waiting: Vec<u8>,
    /// Bytes of `waiting` in which no frame ends, so that a long frame is looked through once.
    searched: usize,
    frame_bytes_max: usize,
}

impl Default for FrameReader {
    fn default() -> Self {
        FrameReader::up_to(FRAME_BYTES_MAX)
    }
}

impl FrameReader {
    /// A reader of frames of at most this many bytes.
    pub fn up_to(frame_bytes_max: usize) -> Self {
        FrameReader { waiting: Vec::new(), searched: 0, frame_bytes_max }
    }

    /// Takes bytes in and gives the frames that are whole now; none if the stream is not one of a node.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Vec<Frame>> {
        self.waiting.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(end) = self.waiting[self.searched..].windows(2).position(|pair| pair == b"\n\n") {
            let rest = self.waiting.split_off(self.searched + end + 2);
            let whole = std::mem::replace(&mut self.waiting, rest);
            self.searched = 0;
            frames.push(Frame::of(&String::from_utf8_lossy(&whole)));
        }
        // The last byte may be the first of the two that end a frame.
        self.searched = self.waiting.len().saturating_sub(1);
        (self.waiting.len() <= self.frame_bytes_max).then_some(frames)
    }
}

impl Frame {
    fn of(text: &str) -> Frame {
        let mut frame = Frame::default();
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => value.clone_into(&mut frame.id),
                "event" => value.clone_into(&mut frame.event),
                "data" => frame.data.push_str(value),
                // A comment, or the time to wait before coming back.
                _ => {}
            }
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: &str, event: &str, data: &str) -> Frame {
        Frame { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn frames_are_the_same_however_their_bytes_come() {
        let text = b"retry: 1000\nid: a-0\nevent: opened\ndata: {}\n\n: beat\nid: a-3\n\nid: a-4\nevent: died\ndata: {\"x\":1}\n\nid: a";
        let expected = [frame("a-0", "opened", "{}"), frame("a-3", "", ""), frame("a-4", "died", "{\"x\":1}")];
        for size in [1, 2, 7, text.len()] {
            let mut reader = FrameReader::default();
            let read = text.chunks(size).flat_map(|bytes| reader.read(bytes).expect("frames"));
            assert_eq!(read.collect::<Vec<_>>(), expected, "{size} bytes at once");
        }
    }

    #[test]
    fn a_frame_without_end_is_given_up() {
        let mut reader = FrameReader::default();
        assert_eq!(reader.read(&vec![b'x'; FRAME_BYTES_MAX]), Some(Vec::new()));
        assert_eq!(reader.read(b"x"), None);
    }
}
