package workspace

import (
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
)

func TestASyncEndsWhileProgramsWriteAtFullSpeed(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	for _, name := range []string{"a", "b"} {
		script := `echo; while :; do dd if=/dev/zero of="$0" bs=64k count=200 conv=notrunc 2>/dev/null; done`
		f.start("/", "/bin/sh", "-c", script, f.path(name))
	}
	for range 3 {
		if done, err := f.workspace.Sync(agenttest.Limit); err != nil || !done {
			t.Fatal(done, err)
		}
	}
	if err := f.workspace.Unmount(agenttest.Limit, false); err != nil {
		t.Error(err)
	}
}

func TestASyncWaitsForTheOneInProgress(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	f.workspace.syncing <- struct{}{}
	if done, err := f.workspace.Sync(10 * time.Millisecond); err != nil || done {
		t.Error(done, err)
	}
	<-f.workspace.syncing
	if done, err := f.workspace.Sync(agenttest.Limit); err != nil || !done {
		t.Error(done, err)
	}
}
