package workspace

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// Sync writes out what programs had written when it was called, and reports whether that was done within the limit. It
// ends although programs continue to write: the kernel writes out only what is dirty at the start. A sync that is not
// done continues, and a later one waits for it.
func (w *Workspace) Sync(limit time.Duration) (done bool, err error) {
	top, err := w.borrow()
	if err != nil {
		return false, err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case w.syncing <- struct{}{}:
	case <-timer.C:
		return false, top.Close()
	}
	ended := make(chan error, 1)
	go func() {
		ended <- errors.Join(unix.Syncfs(int(top.Fd())), top.Close())
		<-w.syncing
	}()
	select {
	case err := <-ended:
		if err != nil {
			return false, fault.FromFile("cannot write the disk at /workspace out", err)
		}
		return true, nil
	case <-timer.C:
		return false, nil
	}
}

// duplicate returns another descriptor of an open file.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
