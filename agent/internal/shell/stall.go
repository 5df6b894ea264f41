package shell

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The agent ends a shell that is stalled stallLimit times in a row, stallInterval apart.
const (
	stallInterval = 500 * time.Millisecond
	stallLimit    = 3
)

// isStalled reports whether bash waits for more of its script although all of it, including the report, was written:
// bash has read the report as the rest of a command and would wait forever. bash 5.2 does so some commands after an
// unterminated "$(", which damages its heap (a read and a write in front of the line that is parsed).
//
// bash reads a pipe byte by byte, so while it runs a command, the rest of the script is still in the pipe. sh is not
// checked: it reads blocks, and its pipe is also empty while "read" waits for something else at descriptor 0.
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

// isEmpty reports whether a pipe holds no bytes. Either end may be given.
func isEmpty(pipe *os.File) bool {
	connection, err := pipe.SyscallConn()
	if err != nil {
		return false
	}
	held, failure := 0, error(nil)
	err = connection.Control(func(descriptor uintptr) { held, failure = unix.IoctlGetInt(int(descriptor), unix.TIOCINQ) })
	if err != nil || failure != nil {
		slog.Debug("cannot query the pipe of a shell", "error", failure)
		return false
	}
	return held == 0
}
