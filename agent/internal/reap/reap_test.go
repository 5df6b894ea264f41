package reap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const testLimit = 20 * time.Second

var reaper = New()

// TestMain makes the test process adopt orphans as PID 1 does.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	go reaper.Run()
	os.Exit(m.Run())
}

func start(t *testing.T, command string) *Child {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	child, err := reaper.Start("/bin/sh", []string{"sh", "-c", command}, &syscall.ProcAttr{
		Env:   []string{"PATH=/usr/bin:/bin"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return child
}

func await(t *testing.T, child *Child) syscall.WaitStatus {
	t.Helper()
	select {
	case <-child.Ended():
		return child.Status()
	case <-time.After(testLimit):
		t.Fatal("the child did not end")
		return 0
	}
}

func TestEachChildGetsItsOwnStatusWhileOrphansAreReaped(t *testing.T) {
	var wait sync.WaitGroup
	for code := range 64 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			child := start(t, fmt.Sprintf("(sh -c 'exit 99' &) ; exit %d", code))
			if status := await(t, child); status.ExitStatus() != code {
				t.Errorf("exit %d became %v", code, status)
			}
		}()
	}
	wait.Wait()
	eventually(t, "no zombie is left", func() bool { return len(zombies(t)) == 0 })
}

func TestAnOrphanThatOutlivesItsParentIsReaped(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	await(t, start(t, fmt.Sprintf("(sleep 0.2 & echo $! > %s)", marker)))
	text, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan is gone", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) })
}

func TestSignalGroupReachesChildrenOfTheShell(t *testing.T) {
	child := start(t, "sleep 1000 & sleep 1000")
	if err := child.SignalGroup(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := await(t, child); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatal(status)
	}
	eventually(t, "the group is gone", func() bool { return errors.Is(unix.Kill(-child.pid, 0), unix.ESRCH) })
}

func TestSignalGroupAfterTheEndTouchesNobody(t *testing.T) {
	child := start(t, "true")
	await(t, child)
	if err := child.SignalGroup(syscall.SIGKILL); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	if _, err := reaper.Start("/nonexistent", []string{"x"}, &syscall.ProcAttr{}); !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	eventually(t, "no zombie is left", func() bool { return len(zombies(t)) == 0 })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(testLimit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still false after %v: %s", testLimit, what)
		}
	}
}

func zombies(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
		if fields[0] == "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, path)
		}
	}
	return found
}
