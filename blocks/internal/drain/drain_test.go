package drain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/testing/fakes3"
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

// TestOverlaysThatACrashLeftAreDrainedInOrder drains two overlays, and both again, as a runner does that died before it
// removed them.
func TestOverlaysThatACrashLeftAreDrainedInOrder(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(4, 3)), newModel(t)
	disks := chain.New(memory.New())
	source := blockmap.NewSource(disks.Store, nil)
	at := hold(t, disks, testBytes)
	overlays := []*os.File{makeOverlay(t, random, model), makeOverlay(t, random, model)}
	drainAll := func(from int) (repeated int) {
		for i, overlay := range overlays[from:] {
			result, err := drain.Run(ctx, disks, source, drain.Job{Holding: at, Source: fmt.Sprint(from + i)}, overlay)
			if err != nil {
				t.Fatal(err)
			}
			if result.IsRepeated {
				repeated++
			}
		}
		check(t, disks, model)
		return repeated
	}
	drainAll(0)
	taken, err := disks.Take(ctx, "o", "d", "r", 0)
	if err != nil || !taken.IsRecovered {
		t.Fatal(taken, err)
	}
	at.Epoch = taken.Epoch
	if drainAll(0) != 0 {
		t.Error("an overlay was skipped, although an older one was drained after it")
	}
	if drainAll(1) != 1 {
		t.Error("the last overlay was drained once more")
	}
}

// TestADrainOfADyingServerDoesNotFollowLaterOnes lets the server of the next runner process drain the same overlay and a
// later one while the drain of the former server is about to end.
func TestADrainOfADyingServerDoesNotFollowLaterOnes(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(6, 3)), newModel(t)
	store := memory.New()
	disks := chain.New(store)
	at := hold(t, disks, testBytes)
	overlays := []*os.File{makeOverlay(t, random, model), makeOverlay(t, random, model)}
	drainOne := func(number int) (drain.Result, error) {
		job := drain.Job{Holding: at, Source: fmt.Sprint(number)}
		return drain.Run(ctx, disks, blockmap.NewSource(store, nil), job, overlays[number])
	}
	for later := range overlays {
		var isNext bool
		store.Before = func(operation, key string) error {
			if operation != "create" || !strings.HasPrefix(key, "disks/") || isNext {
				return nil
			}
			isNext = true
			for number := range later + 1 {
				if _, err := drainOne(number); err != nil {
					t.Error(err)
				}
			}
			return nil
		}
		result, err := drainOne(0)
		store.Before = nil
		if later == 0 && (err != nil || !result.IsRepeated) || later > 0 && !errors.Is(err, chain.ErrConflict) {
			t.Errorf("after overlay %d: %+v, %v", later, result, err)
		}
		if later == 0 {
			// Another write, or the next round would find the overlay drained.
			if _, err := drainOne(1); err != nil {
				t.Fatal(err)
			}
		}
		check(t, disks, model)
	}
}

func TestAnOverlayFromBeforeTheDiskGrewIsDrained(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(6, 3)), newModel(t)
	disks := chain.New(memory.New())
	at := hold(t, disks, testBytes)
	overlay := makeOverlay(t, random, model)
	grown, err := disks.Grow(ctx, at, testBytes+mib)
	if err != nil {
		t.Fatal(err)
	}
	result, err := drain.Run(ctx, disks, blockmap.NewSource(disks.Store, nil), drain.Job{Holding: at}, overlay)
	if err != nil || result.Version.SizeBytes != grown.SizeBytes {
		t.Fatal(result, err)
	}
	check(t, disks, model)
}

// TestADrainSurvivesAStoreThatFailsHalfOfTheTime also loses answers to requests that the store carried out.
func TestADrainSurvivesAStoreThatFailsHalfOfTheTime(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test-key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(7, 3)), newModel(t)
	server := fakes3.Start()
	defer server.Close()
	var count atomic.Int64
	server.Rule = func(r *http.Request) fakes3.Fault {
		switch n := count.Add(1); {
		case n%2 == 0:
			return fakes3.Busy
		case n%7 == 0:
			return fakes3.LoseAnswer
		case n%5 == 0 && r.Method == http.MethodGet:
			return fakes3.BreakBody
		}
		return fakes3.None
	}
	store, err := objects.Open(ctx, server.Setting("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	health := &objects.Health{}
	disks := chain.New(objects.Watch(store, health))
	at := hold(t, disks, testBytes)
	for i := range 2 {
		overlay := makeOverlay(t, random, model)
		source := blockmap.NewSource(disks.Store, nil)
		if _, err := drain.Run(ctx, disks, source, drain.Job{Holding: at, Source: fmt.Sprint(i)}, overlay); err != nil {
			t.Fatal(err)
		}
	}
	check(t, disks, model)
	if last := health.Last(); last.Error == "" || last.Success.IsZero() {
		t.Errorf("%+v", last)
	}
}

func TestAFullStoreFailsTheDrainAndChangesNothing(t *testing.T) {
	ctx, random, model := context.Background(), rand.New(rand.NewPCG(8, 3)), newModel(t)
	store := memory.New()
	disks := chain.New(store)
	at := hold(t, disks, testBytes)
	overlay := makeOverlay(t, random, model)
	store.Before = func(operation, key string) error {
		if operation == "put" && strings.HasPrefix(key, "blocks/") {
			return fmt.Errorf("putting %s: %w", key, objects.ErrFull)
		}
		return nil
	}
	job := drain.Job{Holding: at, Source: "1"}
	if _, err := drain.Run(ctx, disks, blockmap.NewSource(store, nil), job, overlay); !errors.Is(err, objects.ErrFull) {
		t.Fatal(err)
	}
	if keys := store.Keys("uploads/"); len(keys) > 0 {
		t.Errorf("announcements stay: %v", keys)
	}
	store.Before = nil
	if _, err := drain.Run(ctx, disks, blockmap.NewSource(store, nil), job, overlay); err != nil {
		t.Fatal(err)
	}
	check(t, disks, model)
}
