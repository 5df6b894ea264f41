package drain_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/testing/memory"
)

// fillBlock drains one block of random bytes.
func fillBlock(t *testing.T, disks *chain.Disks, source *blockmap.Source, disk string, block int64) {
	t.Helper()
	ctx := context.Background()
	taken, err := disks.Take(ctx, "o", disk, "r", 0)
	if err != nil {
		t.Fatal(err)
	}
	at := chain.Holding{Org: "o", Disk: disk, Runner: "r", Epoch: taken.Epoch}
	fill := func(ctx context.Context, builder *blockmap.Builder) error {
		read := func(content []byte, _ int64) error {
			for i := range content {
				content[i] = byte(rand.Int())
			}
			return nil
		}
		return builder.Apply(ctx, blockmap.Change{Offset: block << 16, Length: 1 << 16, Read: read})
	}
	if _, err := drain.Apply(ctx, disks, source, drain.Job{Holding: at}, 1<<20, fill); err != nil {
		t.Fatal(err)
	}
	if _, err := disks.Release(ctx, at); err != nil {
		t.Fatal(err)
	}
}

func TestAFrameIsChargedOnceToTheParentBeforeItsForks(t *testing.T) {
	ctx := context.Background()
	store := memory.New()
	disks, source := chain.New(store), blockmap.NewSource(store, nil)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	blocks := func(disk string) int64 {
		t.Helper()
		stored, err := disks.StoredBytes(ctx, source, "o", disk)
		must(nil, err)
		return (stored + 1<<15) >> 16
	}
	must(disks.Create(ctx, "o", "z", 1<<20))
	fillBlock(t, disks, source, "z", 0)
	fillBlock(t, disks, source, "z", 1)
	kept, err := disks.Snapshot(ctx, chain.Holding{Org: "o", Disk: "z"}, "s")
	must(kept, err)
	for _, fork := range []string{"b", "a"} {
		must(disks.Fork(ctx, "o", "z", kept.Number, fork))
	}
	fillBlock(t, disks, source, "b", 2)
	if z, a, b := blocks("z"), blocks("a"), blocks("b"); z != 2 || a != 0 || b != 1 {
		t.Errorf("charged %d, %d and %d blocks", z, a, b)
	}
	// The parent no longer has block 0, and neither has its snapshot.
	fillBlock(t, disks, source, "z", 0)
	must(nil, disks.RemoveSnapshot(ctx, "o", "z", kept.Number))
	if z, a, b := blocks("z"), blocks("a"), blocks("b"); z != 2 || a != 1 || b != 1 {
		t.Errorf("afterwards, charged %d, %d and %d blocks", z, a, b)
	}
}
