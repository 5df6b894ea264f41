package shell

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/frame"

	"golang.org/x/sys/unix"
)

func pidOf(t *testing.T, path string) (pid int) {
	t.Helper()
	agenttest.Eventually(t, "the command has started", func() bool {
		content, err := os.ReadFile(path)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err == nil
	})
	return pid
}

func TestAClientThatLeavesEndsTheForegroundAndNotTheBackground(t *testing.T) {
	s := open(t, false)
	directory := t.TempDir()
	s.expect(fmt.Sprintf("sleep 3000 & echo $! >%s/before; echo $$ >%s/shell", directory, directory), "")
	s.Send(frame.Run, fmt.Sprintf("sleep 1000 & echo $! >%s/during; sh -c 'echo $$ >%s/front; exec sleep 2000' | cat",
		directory, directory))
	foreground := pidOf(t, directory+"/front")
	s.Leave()
	agenttest.Eventually(t, "the foreground is gone", func() bool { return gone(foreground) })
	shell := pidOf(t, directory+"/shell")
	agenttest.Eventually(t, "the shell is gone", func() bool { return gone(shell) })
	for _, name := range []string{"/before", "/during"} {
		pid := pidOf(t, directory+name)
		if gone(pid) {
			t.Errorf("%s is gone", name)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func TestAClientThatLeavesEndsEverythingOfAShellWithoutJobControl(t *testing.T) {
	s := open(t, true)
	directory := t.TempDir()
	s.Send(frame.Run, fmt.Sprintf("sleep 1000 & echo $! >%s/during; sh -c 'echo $$ >%s/front; exec sleep 2000'", directory, directory))
	foreground, background := pidOf(t, directory+"/front"), pidOf(t, directory+"/during")
	s.Leave()
	agenttest.Eventually(t, "both are gone", func() bool { return gone(foreground) && gone(background) })
}

func TestAClientThatLeavesAnIdleShellLeavesItsJobs(t *testing.T) {
	s := open(t, false)
	directory := t.TempDir()
	s.expect(fmt.Sprintf("sleep 3000 & echo $! >%s/job; echo $$ >%s/shell", directory, directory), "")
	job, shell := pidOf(t, directory+"/job"), pidOf(t, directory+"/shell")
	s.Leave()
	agenttest.Eventually(t, "the shell is gone", func() bool { return gone(shell) })
	if gone(job) {
		t.Error("the job is gone")
	}
	_ = unix.Kill(job, unix.SIGKILL)
}

func TestTheEndOfTheSessionLetsTheCommandEnd(t *testing.T) {
	eachShell(t, func(t *testing.T, s *testSession) {
		directory := t.TempDir()
		s.Send(frame.Run, fmt.Sprintf("echo $$ >%s/shell; sleep 0.3; head -c 5000000 /dev/zero; echo $$ >%s/done", directory, directory))
		pidOf(t, directory+"/shell")
		s.MoveHost()
		shell := pidOf(t, directory+"/done")
		agenttest.Eventually(t, "the shell has ended by itself", func() bool { return gone(shell) })
	})
}

func TestAClientThatDoesNotReadStopsTheCommand(t *testing.T) {
	s := open(t, false)
	directory := t.TempDir()
	s.Send(frame.Run, fmt.Sprintf("echo $$ >%s/shell; head -c 100000000 /dev/zero; echo >%s/done", directory, directory))
	shell := pidOf(t, directory+"/shell")
	s.Leave()
	agenttest.Eventually(t, "the shell is gone", func() bool { return gone(shell) })
	if _, err := os.Stat(directory + "/done"); err == nil {
		t.Fatal("everything was written although the client did not read")
	}
}
