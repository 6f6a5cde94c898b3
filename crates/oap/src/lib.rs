//! OAP/1 without I/O: frames, streams, HELLO, control frames and bounded compression. The protocol is docs/oap-1.md.
