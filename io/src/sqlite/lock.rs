//! The lock of a database: one process at a time. It lies on a file beside the database, is held for the process's
//! life, and is freed by the operating system with the process, however that ends (design, section 8).

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The lock, for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not taken.
#[derive(Debug)]
pub enum Refused {
    /// Another process holds it, with this id where it says so.
    Held {
        pid: Option<u32>,
    },
    Io(io::Error),
}

/// `<database>.lock`
pub fn path_of(database: &Path) -> PathBuf {
    let mut name: OsString = database.into();
    name.push(".lock");
    name.into()
}

/// Takes the lock of a database, without waiting.
pub fn take(database: &Path) -> Result<Lock, Refused> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path_of(database))
        .map_err(Refused::Io)?;
    match file.try_lock() {
        Ok(()) => {
            // For people, and for the message to the next one who tries; the lock itself is the system's.
            let noted =
                file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
            noted.map_err(Refused::Io)?;
            Ok(Lock { _file: file })
        }
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            Err(Refused::Held { pid })
        }
        Err(TryLockError::Error(error)) => Err(Refused::Io(error)),
    }
}
