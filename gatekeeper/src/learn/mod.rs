//! Learning.

use crate::sys::notify::Call;

pub struct Lesson;

impl Lesson {
    pub fn hear(&mut self, _call: &Call) {}
}
