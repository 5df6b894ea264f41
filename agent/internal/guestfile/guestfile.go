// Package guestfile opens files whose names and contents the guest controls. A FIFO, a device or an endless file in the
// place of a regular one must neither block the agent nor fill its memory.
package guestfile

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// File is an open regular file. Its reads do not wait for content that the kernel may have later: the file may be
// /proc/kmsg, whose reads then fail with EAGAIN.
type File struct {
	file *os.File
	raw  syscall.RawConn
}

// OpenRegular opens path for reading if it is a regular file. It also returns the file's state when it was opened.
func OpenRegular(path string) (*File, os.FileInfo, error) {
	// Opening a device may already have an effect, so check first. The opened file may be another one, so check again.
	before, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := requireRegular(path, before); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = requireRegular(path, info)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &File{file: file, raw: raw}, info, nil
}

// Read implements io.Reader. Its errors are errnos or io.EOF. os.File would block the goroutine where this fails with
// EAGAIN.
func (f *File) Read(buffer []byte) (int, error) {
	var n int
	var failure error
	err := f.raw.Read(func(fd uintptr) bool {
		n, failure = unix.Read(int(fd), buffer)
		for failure == unix.EINTR {
			n, failure = unix.Read(int(fd), buffer)
		}
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case failure != nil:
		return 0, failure
	case n == 0 && len(buffer) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Seek implements io.Seeker.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.file.Seek(offset, whence) }

// Name returns the path as it was opened.
func (f *File) Name() string { return f.file.Name() }

// Close implements io.Closer.
func (f *File) Close() error { return f.file.Close() }

// FileSystem returns the magic number of the file system that holds the file.
func (f *File) FileSystem() (int64, error) {
	var stat unix.Statfs_t
	var failure error
	if err := f.raw.Control(func(fd uintptr) { failure = unix.Fstatfs(int(fd), &stat) }); err != nil {
		return 0, err
	}
	return stat.Type, failure
}

// ReadBounded returns the content of a regular file, or an error if it is longer than limit bytes.
func ReadBounded(path string, limit int64) ([]byte, error) {
	file, _, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fault.New(fault.FileError, "%s is longer than %d bytes", path, limit)
	}
	return content, errors.Join(err, file.Close())
}

func requireRegular(path string, info os.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fault.Invalid("%s is a %s, not a regular file", path, kindOf(info.Mode()))
}

func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "directory"
	case mode&os.ModeNamedPipe != 0:
		return "pipe"
	case mode&os.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}
