// Package guestfile opens files whose names and contents are the guest's. A FIFO, a device or an endless file in
// the place of a regular one must neither block the agent nor fill its memory.
package guestfile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// OpenRegular opens path for reading if it is a regular file, and returns what it was when opened.
func OpenRegular(path string) (*os.File, os.FileInfo, error) {
	// Opening a device may already do something, so look first; what was opened may be another file, so look again.
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
		return nil, nil, closeAfter(file, err)
	}
	return file, info, nil
}

// ReadBounded returns the content of a regular file of at most limit bytes.
func ReadBounded(path string, limit int64) ([]byte, error) {
	file, _, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return content, closeAfter(file, err)
}

func closeAfter(file *os.File, err error) error {
	if closeErr := file.Close(); err == nil {
		return closeErr
	}
	return err
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
