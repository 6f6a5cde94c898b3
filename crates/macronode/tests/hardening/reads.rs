//! A message is set aside only when its bytes are wrong.
