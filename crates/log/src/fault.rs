//! Points under the lock of the commit path at which a test plants a panic; nothing outside of tests.

/// Makes `point`, at which a test plants a panic on its own thread, and for tests `plant` and `take_out`. Each crate
/// makes its own: its tests meet no points of another.
#[doc(hidden)]
#[macro_export]
macro_rules! fault_points {
    () => {
        #[cfg(not(test))]
        #[inline(always)]
        pub fn point() {}

        #[cfg(test)]
        pub use planted::{plant, point, take_out};

        #[cfg(test)]
        mod planted {
            use std::cell::Cell;

            thread_local! {
                static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
            }

            /// The point after this many more panics, on this thread.
            pub fn plant(points: u32) {
                LEFT.set(Some(points));
            }

            /// Plants no panic any more; whether there was one that nobody reached.
            pub fn take_out() -> bool {
                LEFT.take().is_some()
            }

            pub fn point() {
                match LEFT.get() {
                    Some(0) => {
                        LEFT.set(None);
                        panic!("a planted panic");
                    }
                    left => LEFT.set(left.map(|left| left - 1)),
                }
            }
        }
    };
}

fault_points!();
