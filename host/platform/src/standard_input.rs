//! What is behind standard input.

/// Whether standard input is a file, a pipe or a socket, and not a terminal or a device such as `/dev/null`.
#[cfg(unix)]
pub fn is_file_or_pipe() -> bool {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileTypeExt as _;

    let input = std::io::stdin();
    // A process may be started without standard input.
    let metadata =
        input.as_fd().try_clone_to_owned().and_then(|fd| std::fs::File::from(fd).metadata());
    metadata.is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_file() || kind.is_fifo() || kind.is_socket()
    })
}

/// Whether standard input is a file, a pipe or a socket, and not a terminal. A read of `NUL` ends at once.
#[cfg(not(unix))]
pub fn is_file_or_pipe() -> bool {
    use std::io::IsTerminal as _;

    !std::io::stdin().is_terminal()
}
