package terminal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/account"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/process"
)

// size is the size of a window in characters.
type size struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

const maxCells = 1000

func (s size) validate() error {
	if s.Cols < 1 || s.Cols > maxCells || s.Rows < 1 || s.Rows > maxCells {
		return fault.Invalid("cols, rows: %d x %d is not a valid terminal size; each must be from 1 to %d", s.Cols, s.Rows, maxCells)
	}
	return nil
}

// pty holds both ends of a pseudo-terminal. The slave is kept open so that the terminal stays alive for a program that
// closes its own descriptors and opens /dev/tty later.
type pty struct {
	master *os.File
	raw    syscall.RawConn
	slave  *os.File
}

// ttyGroup is the id of the group tty in every distribution's /etc/group, and the gid of the agent's devpts.
const (
	ttyGroup = 5
	ttyMode  = 0o620
)

func openPTY(owner account.Identity, window size) (*pty, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, explainOpen(err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err := openSlave(fd)
	if err != nil {
		return nil, errors.Join(explainOpen(err), master.Close())
	}
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, master.Close(), slave.Close())
	}
	p := &pty{master: master, raw: raw, slave: slave}
	if err := p.prepare(owner, window); err != nil {
		p.close()
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return p, nil
}

// openSlave never opens /dev/pts/N, because the guest could have put anything there. If the guest replaced /dev/ptmx
// and the file is not a master, the first ioctl fails.
func openSlave(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	flags := uintptr(unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC)
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "terminal"), nil
}

// explainOpen explains why a terminal cannot be opened: the kernel has no more of them, or the guest has unmounted or
// replaced /dev/ptmx or /dev/pts.
func explainOpen(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fault.New(fault.Capacity, "the sandbox has as many terminals as its kernel allows; close some")
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return process.ExplainOpen("terminal", err)
	}
	return fault.New(fault.InvalidState, "cannot open a terminal with the sandbox's /dev/ptmx; "+
		"it or /dev/pts has been replaced or unmounted: %v", err)
}

func (p *pty) prepare(owner account.Identity, window size) error {
	if err := p.slave.Chown(int(owner.UID), ttyGroup); err != nil {
		return err
	}
	if err := p.slave.Chmod(ttyMode); err != nil {
		return err
	}
	fd := int(p.slave.Fd())
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	// With IUTF8, the kernel's line editor erases whole characters.
	modes.Iflag |= unix.IUTF8
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, modes); err != nil {
		return err
	}
	return p.resize(window)
}

// resize sets the window size. The kernel sends SIGWINCH to the foreground process group if the size changes.
func (p *pty) resize(window size) error {
	return p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: window.Cols, Row: window.Rows})
	})
}

// foreground returns the foreground process group, or 0 if there is none.
func (p *pty) foreground() int {
	group := 0
	err := p.control(func(fd int) error {
		var err error
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	// Negated for kill(2), 0 and 1 would address other processes than this group's.
	if err != nil || group <= 1 {
		return 0
	}
	return group
}

func (p *pty) control(do func(fd int) error) error {
	var err error
	return errors.Join(p.raw.Control(func(fd uintptr) { err = do(int(fd)) }), err)
}

// write passes input to the kernel. It fails if the kernel accepts nothing for the given time.
func (p *pty) write(data []byte, patience time.Duration) error {
	for len(data) > 0 {
		if err := p.master.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := p.master.Write(data)
		data = data[n:]
		if err != nil && (n == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return err
		}
	}
	return nil
}

// close hangs up the programs that are still on the terminal.
func (p *pty) close() {
	process.CloseLogged(p.master)
	process.CloseLogged(p.slave)
}
