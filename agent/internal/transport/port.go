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

// Port is a virtio-serial port. While the host's end is closed, read returns 0 at once and poll always reports POLLHUP,
// so neither can be used to wait. But each change wakes the port's wait queue, and Go's poller registers files
// edge-triggered. So a reader that treats 0 as "not yet" and returns to the poller sleeps until something changes, and
// an idle agent does not wake at all.
type Port struct {
	file *os.File
	raw  syscall.RawConn
}

// OpenPort opens a port's device. The kernel allows one opener, and discards what arrives before.
func OpenPort(path string) (*Port, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return NewPort(os.NewFile(uintptr(fd), path))
}

// NewPort returns a Port for a non-blocking file.
func NewPort(file *os.File) (*Port, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Port{file: file, raw: raw}, nil
}

// presence is what a reader knows of the host's end. The kernel learns that the host has connected separately from the
// host's bytes. So a reader may get a first chunk, and then "closed", before the kernel knows of the connection. Only
// "nothing to read yet" proves that the kernel knows, and only then "closed" means the end.
type presence struct{ seen bool }

// read waits for bytes. With a presence, it returns io.EOF when a host that was connected has gone. Without one, it
// never does.
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

// discardUntilSilent discards input until none has come for the given time.
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

// interrupt makes all reads and writes fail, current and later ones, until clearDeadline.
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
