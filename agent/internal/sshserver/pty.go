package sshserver

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxCells = 1000
	// drainPatience is the time for output that is left in a terminal after its program has ended.
	drainPatience = 200 * time.Millisecond
	// maxDrainBytes bounds it: other programs on the terminal may continue to write.
	maxDrainBytes = 128 << 10
	copyBytes     = 32 << 10
)

// pty is a pseudo-terminal. devpts gives the slave to the user of this process.
type pty struct {
	master *os.File
	raw    syscall.RawConn
	slave  *os.File
	closed sync.Once
}

func openPTY(cols, rows uint32) (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	p := &pty{master: master}
	if p.slave, err = openSlave(fd); err != nil {
		return nil, errors.Join(err, master.Close())
	}
	if p.raw, err = master.SyscallConn(); err == nil {
		err = errors.Join(setUTF8(int(p.slave.Fd())), p.resize(cols, rows))
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// openSlave asks the master for its other end, whatever the guest has put in /dev/pts.
func openSlave(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(slave, "terminal"), nil
}

// setUTF8 lets the kernel's line editor erase whole characters.
func setUTF8(fd int) error {
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	modes.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(fd, unix.TCSETS, modes)
}

// resize sets the window size. Clients without a window send zeros.
func (p *pty) resize(cols, rows uint32) error {
	window := &unix.Winsize{Col: clampSide(cols, 80), Row: clampSide(rows, 24)}
	var err error
	return errors.Join(p.raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, window)
	}), err)
}

func clampSide(side uint32, unknown uint16) uint16 {
	if side == 0 {
		return unknown
	}
	return uint16(min(side, maxCells))
}

// copyTo copies output until no program has the terminal open, or until a short time after expectEnd.
func (p *pty) copyTo(client io.Writer) {
	buffer := make([]byte, copyBytes)
	for {
		n, err := p.master.Read(buffer)
		if n > 0 {
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(client, buffer)
			return
		}
		if err != nil {
			return
		}
	}
}

// expectEnd is called when the program has ended. Until then the slave is kept open for a program that closes its own
// descriptors and opens /dev/tty later.
func (p *pty) expectEnd() {
	_ = p.slave.Close()
	_ = p.master.SetReadDeadline(time.Now().Add(drainPatience))
}

// drain sends what the terminal has now: a slow client may have used up the time.
func (p *pty) drain(client io.Writer, buffer []byte) {
	for total := 0; total < maxDrainBytes; {
		n := 0
		if err := p.raw.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buffer) }); err != nil || n <= 0 {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
		total += n
	}
}

// close hangs up the programs that are on the terminal.
func (p *pty) close() {
	p.closed.Do(func() {
		_ = p.master.Close()
		_ = p.slave.Close()
	})
}
