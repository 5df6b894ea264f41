package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/testing/memory"
)

const testBytes = 70*mib + 4096

// makeOverlay writes random changes to a new overlay and to the raw model.
func makeOverlay(t *testing.T, random *rand.Rand, model string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	commands := []string{"-d", "unmap"}
	for range 25 {
		length := 512 * (1 + random.Int64N(300))
		if random.IntN(3) == 0 {
			length = 4096 * (1 + random.Int64N(500))
		}
		offset := 512 * random.Int64N((testBytes-length)/512)
		kind := []string{fmt.Sprintf("write -P %d", 1+random.IntN(255)), "write -z -u", "write -z"}[random.IntN(3)]
		commands = append(commands, "-c", fmt.Sprintf("%s %d %d", kind, offset, length))
	}
	// The overlay is made over the model, as it is over an export, and then put on its own.
	base := model + ".before"
	for _, command := range [][]string{
		{"cp", "--sparse=always", model, base},
		{"qemu-img", "create", "-q", "-f", "qcow2", "-o", "cluster_size=128k,extended_l2=on", "-b", base, "-F", "raw", path},
		append([]string{"qemu-io", "-f", "qcow2", path}, commands...),
		append([]string{"qemu-io", "-f", "raw", model}, commands...),
		{"qemu-img", "rebase", "-u", "-f", "qcow2", "-b", "", path},
	} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, output)
		}
	}
	overlay, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = overlay.Close() })
	return overlay
}

func newModel(t *testing.T) string {
	model := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(model, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(model, testBytes); err != nil {
		t.Fatal(err)
	}
	return model
}

func check(t *testing.T, disks *chain.Disks, model string) {
	t.Helper()
	ctx := context.Background()
	head, err := disks.Head(ctx, "o", "d")
	if err != nil {
		t.Fatal(err)
	}
	root, err := head.RootHash()
	if err != nil {
		t.Fatal(err)
	}
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(disks.Store, nil), "o", root, testBytes)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, testBytes)
	if err := version.ReadAt(ctx, content, 0); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(model)
	if err != nil || !bytes.Equal(content, want) {
		t.Fatalf("version %d differs, %v", head.Number, err)
	}
}

func TestDrainedOverlaysAddUpToTheDisk(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(1, 3)), newModel(t)
	disks := chain.New(memory.New())
	source := blockmap.NewSource(disks.Store, nil)
	at := hold(t, disks, testBytes)
	for i := range 6 {
		overlay := makeOverlay(t, random, model)
		_, err := drain.Run(ctx, disks, source, drain.Job{Holding: at, Source: fmt.Sprint(i)}, overlay)
		if err != nil {
			t.Fatal(err)
		}
		check(t, disks, model)
	}
}

// TestADrainMayCrashAnywhere ends a drain before and after each of its operations, and then repeats it.
func TestADrainMayCrashAnywhere(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(2, 3)), newModel(t)
	overlay := makeOverlay(t, random, model)
	errCrash := errors.New("crash")
	for crash := 1; ; crash++ {
		for _, isAfter := range []bool{false, true} {
			store := memory.New()
			disks := chain.New(store)
			at := hold(t, disks, testBytes)
			var count atomic.Int64
			hook := func(string, string) error {
				if count.Add(1) >= int64(crash) {
					return errCrash
				}
				return nil
			}
			if isAfter {
				store.After = hook
			} else {
				store.Before = hook
			}
			job := drain.Job{Holding: at, Source: "overlay"}
			_, err := drain.Run(ctx, disks, blockmap.NewSource(store, nil), job, overlay)
			store.Before, store.After = nil, nil
			if err == nil {
				return
			}
			disks = chain.New(store)
			result, err := drain.Run(ctx, disks, blockmap.NewSource(store, nil), job, overlay)
			if err != nil || result.Version.Number != 3 {
				t.Fatalf("crash at %d: version %d, %v", crash, result.Version.Number, err)
			}
			check(t, disks, model)
		}
	}
}
