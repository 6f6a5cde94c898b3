//! A reload is judged by what will be in force together.
