// Package pressure ends what fills the guest's memory. The kernel by itself pushes out the pages that all programs run
// from, and reads them again, for minutes: it is making progress, so it ends nobody.
package pressure

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// Of one second, four tenths in which no program got on, as all that wanted to waited for memory
	// (Documentation/accounting/psi.rst; both in microseconds). The kernel puts its own end over the last character.
	stallTrigger = "full 400000 1000000\n"
	// Pages of files that are being written make programs wait too, but they are no want of memory: killing helps
	// nobody while the kernel counts this part of it as available.
	scarceFraction = 16
	// Of meminfo, what holds its first lines.
	meminfoBytes = 512
)

// Watch holds open what it needs, as programs of the guest may unmount /proc.
type Watch struct {
	stalls, meminfo, sysrq *os.File
}

// Open fails on a kernel that does not tell of stalls.
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

// Run returns when the kernel tells of stalls no more.
func (w *Watch) Run() error {
	// Fd takes the file from the runtime's poller, which does not know POLLPRI.
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

// relieve lets the kernel choose and end a program, as it does when it finds no page at all. Unlike then, it does not
// panic when it may end none: proc_sysrq, "f" (Documentation/admin-guide/sysrq.rst).
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
