package workspace

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/fault"
)

// write begins to change the disk, and returns a channel that is closed when the kernel has let it.
func (f *fixture) write(name string) <-chan struct{} {
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := os.WriteFile(f.path(name), []byte("x"), 0o600); err != nil {
			f.t.Error(err)
		}
	}()
	return written
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func await(t *testing.T, what string, channel <-chan struct{}) {
	t.Helper()
	agenttest.Eventually(t, what, func() bool { return isClosed(channel) })
}

func (f *fixture) freeze(limit time.Duration, sessionEnd <-chan struct{}) {
	f.t.Helper()
	if frozen, err := f.workspace.Freeze(limit, sessionEnd); err != nil || !frozen {
		f.t.Fatal(frozen, err)
	}
}

// isFrozen asks the kernel, which refuses a second freeze.
func (f *fixture) isFrozen() bool {
	f.t.Helper()
	fd, err := unix.Open(f.path(""), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.IoctlSetInt(fd, ioctlFreeze, 0); err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	if err := unix.IoctlSetInt(fd, ioctlThaw, 0); err != nil {
		f.t.Fatal(err)
	}
	return false
}

func TestAFrozenDiskIsNotChangedUntilTheThaw(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	f.freeze(agenttest.Limit, nil)
	written := f.write("file")
	if !f.isFrozen() || isClosed(written) {
		t.Fatal("it is not frozen")
	}
	if _, err := f.workspace.Freeze(time.Second, nil); fault.From(err).Code != fault.InvalidState {
		t.Error("a second freeze: ", err)
	}
	if err := f.workspace.Grow(Disk{SizeBytes: testBytes}); fault.From(err).Code != fault.InvalidState {
		t.Error("growth while it is frozen: ", err)
	}
	if err := f.workspace.Unmount(time.Second, false); fault.From(err).Code != fault.InvalidState {
		t.Error("unmounted while it is frozen: ", err)
	}
	if done, err := f.workspace.Sync(agenttest.Limit); err != nil || !done {
		t.Error("sync while it is frozen: ", done, err)
	}
	if lasted, err := f.workspace.Thaw(agenttest.Limit); err != nil || !lasted {
		t.Error(lasted, err)
	}
	await(t, "the write continues", written)
	if lasted, err := f.workspace.Thaw(agenttest.Limit); err != nil || lasted {
		t.Error("thawed twice: ", lasted, err)
	}
	f.freeze(agenttest.Limit, nil)
	if lasted, err := f.workspace.Thaw(agenttest.Limit); err != nil || !lasted {
		t.Error("the next freeze: ", lasted, err)
	}
}

func TestAFreezeEndsAtItsDeadlineAndTheThawTellsSo(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	frozen := false
	for limit := 50 * time.Millisecond; !frozen; limit *= 2 {
		agenttest.Eventually(t, "the last freeze is over", func() bool { return !f.workspace.isHeld() })
		var err error
		if frozen, err = f.workspace.Freeze(limit, nil); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the write continues", f.write("file"))
	if lasted, err := f.workspace.Thaw(agenttest.Limit); err != nil || lasted {
		t.Error(lasted, err)
	}
}

func TestAFreezeEndsWithTheSession(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	sessionEnd := make(chan struct{})
	f.freeze(agenttest.Limit, sessionEnd)
	written := f.write("file")
	if !f.isFrozen() {
		t.Fatal("it is not frozen")
	}
	close(sessionEnd)
	await(t, "the write continues", written)
}

func TestTheThawTellsIfRootInTheGuestHasThawed(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	f.freeze(agenttest.Limit, nil)
	run(t, "fsfreeze", "--unfreeze", f.path(""))
	if lasted, err := f.workspace.Thaw(agenttest.Limit); err != nil || lasted {
		t.Error(lasted, err)
	}
	run(t, "fsfreeze", "--freeze", f.path(""))
	_, err := f.workspace.Freeze(agenttest.Limit, nil)
	if fault.From(err).Code != fault.InvalidState {
		t.Error(err)
	}
	run(t, "fsfreeze", "--unfreeze", f.path(""))
	agenttest.Eventually(t, "the failed freeze is over", func() bool { return !f.workspace.isHeld() })
}

func TestAFreezeThatTakesTooLongIsUndone(t *testing.T) {
	f := newFixture(t, formatted(t))
	f.mount()
	frozen, err := f.workspace.Freeze(0, nil)
	if err != nil {
		t.Fatal(frozen, err)
	}
	agenttest.Eventually(t, "it is thawed", func() bool { return !f.workspace.isHeld() })
	await(t, "the write continues", f.write("file"))
}

func TestWithoutADiskNothingIsFrozenOrWrittenOut(t *testing.T) {
	place := New(t.TempDir())
	if _, err := place.Freeze(time.Second, nil); fault.From(err).Code != fault.InvalidState {
		t.Error(err)
	}
	if _, err := place.Sync(time.Second); fault.From(err).Code != fault.InvalidState {
		t.Error(err)
	}
	if lasted, err := place.Thaw(time.Second); lasted || err != nil {
		t.Error(lasted, err)
	}
}
