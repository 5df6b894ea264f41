package chain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

// TestEveryFlippedBitOfAManifestIsReported flips bits of the head, which says who holds the disk and what is kept.
func TestEveryFlippedBitOfAManifestIsReported(t *testing.T) {
	ctx, store := context.Background(), memory.New()
	disks := chain.New(store)
	if _, err := disks.Create(ctx, "o", "d", 1<<20); err != nil {
		t.Fatal(err)
	}
	taken, err := disks.Take(ctx, "o", "d", "r", 0)
	if err != nil {
		t.Fatal(err)
	}
	key := "disks/o/d/0000000002"
	body, _ := store.Get(ctx, key, objects.Range{})
	collector := &chain.Collector{Disks: chain.New(store), Source: blockmap.NewSource(store, nil)}
	for i := range body {
		store.Damage(key, i)
		if _, err := chain.New(store).Head(ctx, "o", "d"); !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := disks.Snapshot(ctx, chain.Holding{Org: "o", Disk: "d", Runner: "r", Epoch: taken.Epoch}, "s"); !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := collector.Collect(ctx, "o"); !errors.Is(err, segment.ErrCorrupt) {
			t.Fatalf("byte %d: the collector: %v", i, err)
		}
		store.Damage(key, i)
	}
	// A manifest of another place is as wrong.
	_ = store.Put(ctx, "disks/o/d/0000000003", body)
	if _, err := chain.New(store).Head(ctx, "o", "d"); !errors.Is(err, segment.ErrCorrupt) {
		t.Error(err)
	}
}

func TestARunnerThatTakesItsOwnDiskAgainKeepsWhatItsVMsRead(t *testing.T) {
	ctx := context.Background()
	disks := chain.New(memory.New())
	if _, err := disks.Create(ctx, "o", "d", 1<<20); err != nil {
		t.Fatal(err)
	}
	take := func(runner string) chain.Taken {
		taken, err := disks.Take(ctx, "o", "d", runner, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	first := take("r")
	if again := take("r"); again.KeepFrom != first.KeepFrom || again.Epoch != first.Epoch+1 {
		t.Errorf("%+v", again)
	}
	if other := take("other"); other.KeepFrom != 3 {
		t.Errorf("%+v", other)
	}
}

// TestALeaseIsWaitedOutOnTheOwnClock has a holder that renews, and then does not.
func TestALeaseIsWaitedOutOnTheOwnClock(t *testing.T) {
	ctx := context.Background()
	disks := chain.New(memory.New())
	if _, err := disks.Create(ctx, "o", "d", 1<<20); err != nil {
		t.Fatal(err)
	}
	const lease = 300 * time.Millisecond
	if _, err := disks.Take(ctx, "o", "d", "r", lease); err != nil {
		t.Fatal(err)
	}
	renewing, stop := context.WithCancel(ctx)
	go func() {
		for renewing.Err() == nil {
			_ = disks.Renew(ctx, "r")
			time.Sleep(lease / 10)
		}
	}()
	if _, err := disks.Take(ctx, "o", "d", "other", lease); !errors.Is(err, chain.ErrHeld) {
		t.Errorf("a disk whose holder renews: %v", err)
	}
	stop()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		begin := time.Now()
		if _, err = disks.Take(ctx, "o", "d", "other", lease); err == nil {
			if time.Since(begin) < lease {
				t.Errorf("taken after %v", time.Since(begin))
			}
			return
		}
		if !errors.Is(err, chain.ErrHeld) || !strings.Contains(err.Error(), "by r") {
			t.Fatal(err)
		}
	}
	t.Error(err)
}
