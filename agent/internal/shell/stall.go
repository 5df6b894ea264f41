package shell

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A shell is ended when it is found stalled stallLimit times in a row, stallInterval apart.
const (
	stallInterval = 500 * time.Millisecond
	stallLimit    = 3
)

// isStalled reports whether bash waits for more of its script, although all was written and the report is part of it: it
// has taken the report for the rest of a command, and would wait for ever. bash 5.2 does so some commands after a "$("
// without an end, which damages its heap (a read and a write in front of the line that is parsed).
//
// bash reads a pipe byte by byte. So while it runs a command, what follows is in the pipe. sh is not looked at: it reads
// blocks, and its pipe is empty as well while "read" waits for something else at descriptor 0.
func (s *session) isStalled() bool {
	if !s.dialect.bash || !isEmpty(s.script) || !isEmpty(s.status) {
		return false
	}
	call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", s.child.Pid()))
	if err != nil || !strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 ", unix.SYS_READ)) {
		return false
	}
	input, err := os.Stat(fmt.Sprintf("/proc/%d/fd/0", s.child.Pid()))
	if err != nil {
		return false
	}
	script, err := s.script.Stat()
	return err == nil && os.SameFile(input, script)
}

// isEmpty reports whether a pipe, of which this is either end, holds nothing.
func isEmpty(pipe *os.File) bool {
	connection, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	held, failure := 0, error(nil)
	err = connection.Control(func(descriptor uintptr) { held, failure = unix.IoctlGetInt(int(descriptor), unix.TIOCINQ) })
	if err != nil || failure != nil {
		slog.Debug("pipe of a shell cannot be asked", "error", failure)
		return false
	}
	return held == 0
}
