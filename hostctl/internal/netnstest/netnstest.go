// Package netnstest gives a test a network namespace of its own.
package netnstest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Enter moves the test's goroutine, and programs that it starts, into a new network namespace with a loopback interface
// that is up. The thread is not reused. A test that is not root's is skipped, and says so.
func Enter(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("a network namespace:", err)
	}
	Run(t, "ip", "", "link", "set", "lo", "up")
}

// Run runs a program with the given standard input.
func Run(t *testing.T, program, input string, arguments ...string) {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Stdin = strings.NewReader(input)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, arguments, err, output)
	}
}
