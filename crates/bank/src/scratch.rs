//! A folder that is gone when it is no longer needed.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};

/// A folder of our own among the temporary files, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes one that nobody else can look into.
    pub(crate) fn new() -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let parent = std::env::temp_dir();
        loop {
            let path = parent.join(format!("cenote-{:016x}", fastrand::u64(..)));
            match builder.create(&path) {
                Ok(()) => return Ok(Scratch { path, keep: false }),
                // Made by somebody else: another name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it there.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // There is nobody to tell; the system clears its temporary files as well.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_all_that_is_in_it_unless_it_is_kept() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());

        let mut kept = Scratch::new().unwrap();
        kept.keep();
        let path = kept.path().to_owned();
        drop(kept);
        assert!(path.exists());
        fs::remove_dir(path).unwrap();
    }
}
