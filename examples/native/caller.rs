// Read images of digits from a file and print the class of each, in Rust.
//
//     rustc -O --edition 2021 caller.rs -L . -l static=digits && ./caller images.f32
//
// In a package, the crate `cc` or `println!("cargo:rustc-link-lib=static=digits")` in
// build.rs links the library, and `bindgen` can write the declarations.

use std::ffi::{c_char, c_void, CStr};

const PIXELS: usize = 64;
const CLASSES: usize = 10;

extern "C" {
    fn digits_workspace_size(max_batch: i64) -> usize;
    fn digits_init(workspace: *mut c_void, weights: *const c_void, max_batch: i64) -> i32;
    fn digits_run(
        workspace: *mut c_void,
        n: i64,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
    ) -> i32;
    fn digits_message(workspace: *const c_void, status: i32) -> *const c_char;
}

/// A model with a workspace whose address does not change.
struct Digits {
    workspace: Box<[u64]>,
}

impl Digits {
    fn new() -> Result<Self, String> {
        let words = unsafe { digits_workspace_size(0) }.div_ceil(8);
        let mut model = Digits { workspace: vec![0; words].into_boxed_slice() };
        let status = unsafe { digits_init(model.pointer(), std::ptr::null(), 0) };
        model.check(status).map(|()| model)
    }

    fn pointer(&mut self) -> *mut c_void {
        self.workspace.as_mut_ptr().cast()
    }

    fn run(&mut self, images: &[f32]) -> Result<Vec<f32>, String> {
        let count = images.len() / PIXELS;
        let mut scores = vec![0.0; count * CLASSES];
        let inputs = [images.as_ptr().cast()];
        let outputs = [scores.as_mut_ptr().cast()];
        let status = unsafe {
            digits_run(self.pointer(), count as i64, inputs.as_ptr(), outputs.as_ptr())
        };
        self.check(status).map(|()| scores)
    }

    fn check(&mut self, status: i32) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let text = unsafe { CStr::from_ptr(digits_message(self.pointer(), status)) };
        Err(text.to_string_lossy().into_owned())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or("images.f32".into());
    let bytes = std::fs::read(path)?;
    let images: Vec<f32> = bytes
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
        .collect();
    let mut model = Digits::new()?;
    for row in model.run(&images)?.chunks_exact(CLASSES) {
        let best = (0..CLASSES).max_by(|&i, &j| row[i].total_cmp(&row[j])).unwrap();
        println!("{best}");
    }
    Ok(())
}
