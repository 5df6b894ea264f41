package proctable

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheTableHasThisProcess(t *testing.T) {
	table, err := List("/proc")
	if err != nil {
		t.Fatal(err)
	}
	session, err := unix.Getsid(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		if p.Pid != os.Getpid() {
			continue
		}
		if p.Parent != os.Getppid() || p.Group != unix.Getpgrp() || p.Session != session || p.StartTicks == 0 {
			t.Fatalf("%+v", p)
		}
		return
	}
	t.Fatal("the table does not have this process")
}

func TestANameMayContainAnything(t *testing.T) {
	line := "7 (a) R 9 (b\n) S 1 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1"
	if p, err := parse([]byte(line)); err != nil || p != (Process{Pid: 7, Parent: 1, Group: 7, Session: 5, StartTicks: 12345}) {
		t.Fatal(p, err)
	}
	for _, broken := range []string{"", "7", "7 (a", ")(", "7 (a) S 1 2", "x (a) S 1 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345"} {
		if p, err := parse([]byte(broken)); err == nil {
			t.Errorf("%q became %+v", broken, p)
		}
	}
}
