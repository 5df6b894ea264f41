package chain_test

import (
	"context"
	"testing"

	"coppice/blocks/internal/chain"
	"coppice/blocks/testing/memory"
)

func TestARevertedDiskKeepsItsSize(t *testing.T) {
	ctx, disks := context.Background(), chain.New(memory.New())
	at := chain.Holding{Org: "o", Disk: "d", Runner: "r"}
	if _, err := disks.Create(ctx, at.Org, at.Disk, 1<<20); err != nil {
		t.Fatal(err)
	}
	taken, err := disks.Take(ctx, at.Org, at.Disk, at.Runner, 0)
	if err != nil {
		t.Fatal(err)
	}
	at.Epoch = taken.Epoch
	snapshot, err := disks.Snapshot(ctx, at, "s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disks.Grow(ctx, at, 2<<20); err != nil {
		t.Fatal(err)
	}
	reverted, err := disks.Revert(ctx, at, snapshot.Number)
	if err != nil || reverted.SizeBytes != 2<<20 || reverted.Root != snapshot.Root {
		t.Errorf("%+v, %v", reverted, err)
	}
}
