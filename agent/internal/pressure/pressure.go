// Package pressure kills a program when the guest's memory is exhausted. Left alone, the kernel evicts the pages that
// all programs run from and reads them again, for minutes. It counts that as progress, so it kills no program.
package pressure

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// stallTrigger fires if, within one second, all runnable programs waited for memory for 0.4 s
	// (Documentation/accounting/psi.rst; both in microseconds). The kernel overwrites the last character with its own
	// terminator.
	stallTrigger = "full 400000 1000000\n"
	// scarceFraction: memory is scarce if less than 1/16 of it is available. Writing pages back to files makes programs
	// wait too, but is not a memory shortage: killing does not help while the kernel counts this fraction as available.
	scarceFraction = 16
	// meminfoBytes is enough for the first lines of /proc/meminfo.
	meminfoBytes = 512
)

// Watch watches for memory stalls. It holds its files open because programs of the guest may unmount /proc.
type Watch struct {
	stalls, meminfo, sysrq *os.File
}

// Open returns an error if the kernel does not report memory stalls.
func Open() (*Watch, error) {
	stalls, err := os.OpenFile("/proc/pressure/memory", os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if _, err := stalls.WriteString(stallTrigger); err != nil {
		return nil, errors.Join(err, stalls.Close())
	}
	meminfo, err := os.Open("/proc/meminfo")
	if err != nil {
		return nil, errors.Join(err, stalls.Close())
	}
	sysrq, err := os.OpenFile("/proc/sysrq-trigger", os.O_WRONLY, 0)
	if err != nil {
		return nil, errors.Join(err, meminfo.Close(), stalls.Close())
	}
	return &Watch{stalls: stalls, meminfo: meminfo, sysrq: sysrq}, nil
}

// Run blocks until the kernel stops reporting stalls or an operation fails, and returns the reason.
func (w *Watch) Run() error {
	// Fd removes the file from the runtime's poller, which does not know POLLPRI.
	events := []unix.PollFd{{Fd: int32(w.stalls.Fd()), Events: unix.POLLPRI}}
	for {
		if _, err := unix.Poll(events, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		switch {
		case events[0].Revents&unix.POLLERR != 0:
			return errors.New("the trigger of /proc/pressure/memory is gone")
		case events[0].Revents&unix.POLLPRI != 0:
			if err := w.relieve(); err != nil {
				return err
			}
		}
	}
}

// relieve makes the kernel choose and kill a program if memory is scarce, as the kernel does when it finds no free page
// at all. Unlike that case, the kernel does not panic if it may kill no program: see proc_sysrq, "f"
// (Documentation/admin-guide/sysrq.rst).
func (w *Watch) relieve() error {
	text := make([]byte, meminfoBytes)
	n, err := w.meminfo.ReadAt(text, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if isScarce, err := isScarce(string(text[:n])); err != nil || !isScarce {
		return err
	}
	_, err = w.sysrq.WriteString("f")
	return err
}
