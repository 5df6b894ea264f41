package workload

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const limit = 10 * time.Second

// newGroup makes the group in the test's own hierarchy. It returns nil if the user may not make one: then only what
// needs no group can be tested.
func newGroup(t *testing.T) *Group {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		fields := strings.Fields(line)
		if !strings.Contains(line, " - cgroup2 ") || len(fields) < 5 {
			continue
		}
		hierarchy, err := os.MkdirTemp(fields[4], "coppice-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(hierarchy) })
		return openAt(t, hierarchy)
	}
	return nil
}

func openAt(t *testing.T, hierarchy string) *Group {
	t.Helper()
	addGroup(t, filepath.Join(hierarchy, name))
	root, err := os.Open(hierarchy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return &Group{hierarchy: hierarchy, root: root}
}

func addGroup(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
}

// beat starts a program in a group that writes without end. It returns a function that reports whether the program
// still writes.
func beat(t *testing.T, group string) (isBeating func() bool) {
	t.Helper()
	directory, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	output := filepath.Join(t.TempDir(), "output")
	command := exec.Command("/bin/sh", "-c", "while :; do echo >> "+output+"; sleep 0.001; done")
	command.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(directory.Fd())}
	if err := errors.Join(command.Start(), directory.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The loop's sleep must also leave the group before the group can be removed.
		_ = os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0)
		_ = command.Process.Kill()
		_ = command.Wait()
		for end := time.Now().Add(limit); time.Now().Before(end) && contentOf(t, group, "cgroup.procs") != ""; {
			time.Sleep(time.Millisecond)
		}
	})
	size := func() int64 {
		info, err := os.Stat(output)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	return func() bool {
		before := size()
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if size() != before {
				return true
			}
		}
		return false
	}
}

func contentOf(t *testing.T, group, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(group, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func freeze(t *testing.T, group *Group) (frozen bool) {
	t.Helper()
	if err := group.Freeze(); err != nil {
		t.Fatal(err)
	}
	return group.AwaitFrozen(time.Now().Add(limit))
}

func TestWithoutAGroupNothingIsEverFrozen(t *testing.T) {
	var none *Group
	if err := errors.Join(none.Freeze(), none.Thaw()); err != nil {
		t.Fatal(err)
	}
	if none.AwaitFrozen(time.Now().Add(limit)) {
		t.Error("a group that does not exist is frozen")
	}
}

func TestFrozenIsWhatTheKernelSaysOfTheWholeGroup(t *testing.T) {
	for events, want := range map[string]bool{
		"populated 1\nfrozen 1\n": true, "populated 1\nfrozen 0\n": false, "frozen 1\n": true, "": false, "frozen 10\n": false,
	} {
		if isFrozen(events) != want {
			t.Errorf("%q", events)
		}
	}
}

func TestAllGroupsStandStillAndGoOn(t *testing.T) {
	group := newGroup(t)
	if group == nil {
		t.Log("this user may not create control groups; the guest's tests freeze real ones")
		return
	}
	nested, beside := filepath.Join(group.path(), "nested"), filepath.Join(group.hierarchy, "container")
	addGroup(t, nested)
	addGroup(t, beside)
	beating := map[string]func() bool{"nested": beat(t, nested), "beside": beat(t, beside), "workload": beat(t, group.path())}
	for range 2 {
		for name, isBeating := range beating {
			if !isBeating() {
				t.Fatalf("%s does not run", name)
			}
		}
		for range 2 {
			if !freeze(t, group) {
				t.Fatal("not frozen")
			}
		}
		for name, isBeating := range beating {
			if isBeating() {
				t.Errorf("%s runs though frozen", name)
			}
		}
		if err := errors.Join(group.Thaw(), group.Thaw()); err != nil {
			t.Fatal(err)
		}
	}
	for name, isBeating := range beating {
		if !isBeating() {
			t.Errorf("%s does not continue", name)
		}
	}
}

func TestAGroupThatTheGuestHasFrozenStaysFrozen(t *testing.T) {
	group := newGroup(t)
	if group == nil {
		t.Log("this user may not create control groups; the guest's tests freeze real ones")
		return
	}
	paused := filepath.Join(group.hierarchy, "paused")
	addGroup(t, paused)
	if err := write(filepath.Join(paused, "cgroup.freeze"), "1"); err != nil {
		t.Fatal(err)
	}
	if !freeze(t, group) {
		t.Fatal("not frozen")
	}
	if err := group.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got := contentOf(t, paused, "cgroup.freeze"); got != "1\n" {
		t.Errorf("the guest's group was thawed: %q", got)
	}
	if got := contentOf(t, group.path(), "cgroup.freeze"); got != "0\n" {
		t.Errorf("the workload was not thawed: %q", got)
	}
}

func TestAGroupThatTheGuestHasRemovedIsNotFrozen(t *testing.T) {
	group := newGroup(t)
	if group == nil {
		t.Log("this user may not create control groups; the guest's tests freeze real ones")
		return
	}
	if err := os.Remove(group.path()); err != nil {
		t.Fatal(err)
	}
	if freeze(t, group) {
		t.Error("a group that is gone is frozen")
	}
	if err := os.Mkdir(group.path(), 0o755); err != nil {
		t.Fatal(err)
	}
	if !freeze(t, group) {
		t.Error("a group that was created again is not frozen")
	}
	if err := os.Remove(group.path()); err != nil {
		t.Fatal(err)
	}
	if group.AwaitFrozen(time.Now().Add(limit)) {
		t.Error("a removed group is frozen")
	}
	if err := group.Thaw(); err != nil {
		t.Error(err)
	}
}

func TestALinkInTheHierarchyIsNotFollowed(t *testing.T) {
	directory, outside := t.TempDir(), t.TempDir()
	group := openAt(t, directory)
	if err := errors.Join(
		os.Remove(group.path()), os.WriteFile(outside+"/cgroup.freeze", []byte("keep"), 0o600), os.Symlink(outside, group.path()),
	); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(group.path()) })
	if err := group.Freeze(); err == nil {
		t.Error("a link was followed")
	}
	if got := contentOf(t, outside, "cgroup.freeze"); got != "keep" {
		t.Errorf("the link's target was written: %q", got)
	}
}
