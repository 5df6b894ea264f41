package boot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestModulesAreLoadedInTheOrderOfTheFile(t *testing.T) {
	if got := parseOrder("virtio.ko\n\n virtio_ring.ko \n"); !slices.Equal(got, []string{"virtio.ko", "virtio_ring.ko"}) {
		t.Fatal(got)
	}
}

func TestAPortIsFoundByTheNameThatItGetsLater(t *testing.T) {
	class := t.TempDir()
	if err := os.Mkdir(filepath.Join(class, "vport0p1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := findPort(class, "coppice.ctl"); got != "" {
		t.Fatal(got)
	}
	if err := os.WriteFile(filepath.Join(class, "vport0p1/name"), []byte("coppice.ctl\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := awaitPort(class, "coppice.ctl", time.Second); got != "vport0p1" || err != nil {
		t.Fatal(got, err)
	}
	if _, err := awaitPort(class, "coppice.data", time.Millisecond); err == nil {
		t.Fatal("a port that does not exist was found")
	}
}

func TestTheAgentRefusesToRunOnAMachineThatIsNotItsOwn(t *testing.T) {
	if _, err := Run(); err == nil {
		t.Fatal("the agent booted a running machine")
	}
}
