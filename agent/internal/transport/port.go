package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Port is a virtio-serial port. While the host's end is closed its read returns 0 at once and poll says POLLHUP for
// ever, so neither can be used to wait. But each change wakes the port's wait queue, and Go's poller registers files
// edge-triggered: a reader that takes 0 for "not yet" and goes back to the poller sleeps until something changes,
// and an idle agent does not wake at all.
type Port struct {
	file *os.File
	raw  syscall.RawConn
}

// OpenPort opens a port's device. The kernel allows one opener, and throws away what arrives before.
func OpenPort(path string) (*Port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return NewPort(os.NewFile(uintptr(fd), path))
}

// NewPort makes a Port of a non-blocking file.
func NewPort(file *os.File) (*Port, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Port{file: file, raw: raw}, nil
}

// presence is what a reader knows of the host's end. The news that the host has connected travels apart from its
// bytes: a first chunk may be read, and "closed" be answered after it, before the kernel has heard of the connection.
// Only "nothing to read yet" proves that it has, and only then "closed" means the end.
type presence struct{ seen bool }

// read waits for bytes. With a presence it returns io.EOF when a host that was there has gone; without, it never does.
func (p *Port) read(buffer []byte, host *presence) (int, error) {
	n := 0
	var readErr error
	err := p.raw.Read(func(fd uintptr) bool {
		n, readErr = readOnce(int(fd), buffer)
		if errors.Is(readErr, unix.EAGAIN) {
			if host != nil {
				host.seen = true
			}
			return false
		}
		return n != 0 || readErr != nil || (host != nil && host.seen)
	})
	switch {
	case err != nil:
		return 0, err
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func readOnce(fd int, buffer []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buffer)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}

// discardUntilSilent throws away input until none has come for the given time.
func (p *Port) discardUntilSilent(silence, limit time.Duration) error {
	defer p.clearDeadline()
	buffer := make([]byte, 4096)
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		if err := p.file.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		_, err := p.read(buffer, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("port %s was not silent for %v within %v", p.file.Name(), silence, limit)
}

func (p *Port) writeWithin(data []byte, limit time.Duration) error {
	defer p.clearDeadline()
	if err := p.file.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := p.file.Write(data)
	return err
}

// interrupt fails all reads and writes, now and later, until clearDeadline.
func (p *Port) interrupt() {
	p.setDeadline(time.Unix(1, 0))
}

func (p *Port) clearDeadline() {
	p.setDeadline(time.Time{})
}

// setDeadline cannot fail on a file that the poller knows and that is never closed.
func (p *Port) setDeadline(at time.Time) {
	if err := p.file.SetDeadline(at); err != nil {
		panic(fmt.Sprintf("port %s has no deadlines: %v", p.file.Name(), err))
	}
}
