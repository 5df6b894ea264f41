package tap

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// enter gives the test a network namespace of its own, and a file at the descriptor that it returns.
func enter(t *testing.T) int {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return int(file.Fd())
}

func makeTap(t *testing.T, name string) {
	t.Helper()
	output, err := exec.Command("ip", "tuntap", "add", "dev", name, "mode", "tap", "vnet_hdr").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestPutsTheTapAtTheDescriptor(t *testing.T) {
	descriptor := enter(t)
	makeTap(t, "cop0t1")
	if err := Open("cop0t1", descriptor); err != nil {
		t.Fatal(err)
	}
	request, _ := unix.NewIfreq("")
	if err := unix.IoctlIfreq(descriptor, unix.TUNGETIFF, request); err != nil || request.Name() != "cop0t1" {
		t.Errorf("%q %v", request.Name(), err)
	}
}

func TestRefusesATapThatIsGoneOrHeld(t *testing.T) {
	descriptor := enter(t)
	if err := Open("cop0t1", descriptor); err == nil || !strings.Contains(err.Error(), "it is gone") {
		t.Error(err)
	}
	makeTap(t, "cop0t2")
	if err := Open("cop0t2", descriptor); err != nil {
		t.Fatal(err)
	}
	other, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	if err := Open("cop0t2", other); err == nil || !strings.Contains(err.Error(), "another process holds it") {
		t.Error(err)
	}
	if err := Open("a name that is too long", other); err == nil {
		t.Error("a name that no interface can have was accepted")
	}
}
