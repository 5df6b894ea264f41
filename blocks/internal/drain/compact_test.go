package drain_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

func newHeldDisk(t *testing.T, size int64) (*memory.Store, *chain.Disks, *blockmap.Source, chain.Holding) {
	t.Helper()
	store := memory.New()
	disks := chain.New(store)
	return store, disks, blockmap.NewSource(store, nil), hold(t, disks, size)
}

func findSparse(t *testing.T, disks *chain.Disks, source *blockmap.Source) []segment.Hash {
	t.Helper()
	found, err := disks.SparseSegments(context.Background(), source, "o", "d")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCompactionFreesSegmentsThatAreMostlyUnused overwrites most of a disk.
func TestCompactionFreesSegmentsThatAreMostlyUnused(t *testing.T) {
	const size = 40 * mib
	ctx, random := context.Background(), rand.New(rand.NewPCG(3, 3))
	store, disks, source, at := newHeldDisk(t, size)
	model := text(random, size)
	drainChanges(t, disks, source, at, size, []blockmap.Change{change(0, model)})
	sparse := func() []segment.Hash { return findSparse(t, disks, source) }
	if found := sparse(); len(found) > 0 {
		t.Errorf("full segments: %v", found)
	}
	var changes []blockmap.Change
	for offset := 0; offset+mib <= size; offset += mib {
		part := text(random, mib-128<<10)
		copy(model[offset:], part)
		changes = append(changes, change(int64(offset), part))
	}
	drainChanges(t, disks, source, at, size, changes)
	collect := func() int64 {
		collector := &chain.Collector{Disks: chain.New(store), Source: blockmap.NewSource(store, nil), UploadTime: time.Hour}
		for range 4 {
			if _, err := collector.Collect(ctx, "o"); err != nil {
				t.Fatal(err)
			}
		}
		total := int64(0)
		for info := range store.List(ctx, "blocks/o/segments/", "") {
			total += info.Size
		}
		return total
	}
	before := collect()
	found := sparse()
	result, err := drain.Compact(ctx, disks, source, at, found)
	if err != nil || result.IsRepeated || result.Version.Kind != "compact" {
		t.Fatalf("%+v, %v", result, err)
	}
	if result.Stats.ChangedBytes > 6*mib {
		t.Errorf("%d bytes were moved", result.Stats.ChangedBytes)
	}
	// The holder reads the newest version now.
	drainChanges(t, disks, source, at, size, nil)
	after := collect()
	if before < 70*mib || after > 42*mib {
		t.Errorf("%d bytes of segments, before %d", after, before)
	}
	expect(t, disks, model)
	if again := sparse(); len(again) > 0 {
		t.Errorf("again: %v", again)
	}
	if again, err := drain.Compact(ctx, disks, source, at, found); err != nil || !again.IsRepeated {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestWhatAnotherVersionKeepsIsNotMoved: it would be stored twice, and nothing would become free.
func TestWhatAnotherVersionKeepsIsNotMoved(t *testing.T) {
	const size = 20 * mib
	ctx, random := context.Background(), rand.New(rand.NewPCG(3, 3))
	_, disks, source, at := newHeldDisk(t, size)
	drainChanges(t, disks, source, at, size, []blockmap.Change{change(0, text(random, size))})
	snapshot, err := disks.Snapshot(ctx, at, "s")
	if err != nil {
		t.Fatal(err)
	}
	drainChanges(t, disks, source, at, size, []blockmap.Change{change(0, text(random, 15*mib))})
	sparse := func() int { return len(findSparse(t, disks, source)) }
	if count := sparse(); count > 0 {
		t.Errorf("%d segments of a snapshot", count)
	}
	if _, err := disks.Fork(ctx, "o", "d", snapshot.Number, "fork"); err != nil {
		t.Fatal(err)
	}
	if err := disks.RemoveSnapshot(ctx, "o", "d", snapshot.Number); err != nil {
		t.Fatal(err)
	}
	if count := sparse(); count > 0 {
		t.Errorf("%d segments of a fork", count)
	}
	if err := disks.Delete(ctx, "o", "fork"); err != nil {
		t.Fatal(err)
	}
	if sparse() == 0 {
		t.Error("a segment that nothing else keeps is not found")
	}
}

func TestCompactionOfAHolderThatLostTheDiskChangesNothing(t *testing.T) {
	const size = 20 * mib
	ctx, random := context.Background(), rand.New(rand.NewPCG(3, 3))
	store, disks, source, at := newHeldDisk(t, size)
	model := text(random, size)
	drainChanges(t, disks, source, at, size, []blockmap.Change{change(0, model)})
	part := text(random, 15*mib)
	copy(model, part)
	drainChanges(t, disks, source, at, size, []blockmap.Change{change(0, part)})
	sparse := findSparse(t, disks, source)
	if len(sparse) == 0 {
		t.Fatal("nothing to compact")
	}
	store.Before = func(operation, key string) error {
		if operation == "put" && strings.HasPrefix(key, "blocks/") {
			store.Before = nil
			_, err := chain.New(store).Take(ctx, "o", "d", "other", 0)
			return err
		}
		return nil
	}
	if result, err := drain.Compact(ctx, disks, source, at, sparse); err == nil {
		t.Errorf("%+v", result)
	}
	expect(t, disks, model)
	if keys := store.Keys("disks/o/d/"); len(keys) != 5 {
		t.Errorf("manifests: %v", keys)
	}
	if _, err := store.Get(ctx, "disks/o/d/0000000006", objects.Range{}); err == nil {
		t.Error("a version too many")
	}
}
