package chain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

// These tests stop one process before each operation of the store, or before each pair of operations. Others do something
// meanwhile; then the process continues. The simulation meets such moments by chance only.

// interleave runs act once for each pair of its operations, with first and second before them, until act has no more.
func interleave(t *testing.T, act func(s *scene, disks *chain.Disks) error, first, second func(s *scene)) {
	t.Helper()
	begin := newScene(t)
	for i := 0; ; i++ {
		isReached := false
		for j := i; ; j += pairStep() {
			s := begin.clone()
			at := &gate{Store: s.store, world: s.world, stops: map[int]func(){}}
			at.stops[i] = func() {
				isReached = true
				first(s)
				if i == j {
					second(s)
				}
			}
			isLast := true
			if i != j {
				at.stops[j] = func() {
					isLast = false
					second(s)
				}
			} else {
				isLast = false
			}
			err := act(s, chain.New(at))
			for _, allowed := range []error{chain.ErrConflict, chain.ErrStale, chain.ErrHeld, chain.ErrExists, chain.ErrNoDisk,
				chain.ErrNoData, chain.ErrHasForks, objects.ErrNotFound} {
				if errors.Is(err, allowed) {
					err = nil
				}
			}
			if err != nil {
				t.Errorf("stopped at %d and %d: %v", i, j, err)
			}
			s.verify()
			if t.Failed() {
				t.Fatalf("stopped at %d and %d", i, j)
			}
			if isLast || !isReached {
				break
			}
		}
		if !isReached {
			return
		}
	}
}

// pairStep is 1 in the long form of the tests. The usual form has each first moment, and some second ones.
func pairStep() int {
	if os.Getenv("COPPICE_TEST_SIZE") == "long" {
		return 1
	}
	return 6
}

// meanwhiles are pairs of what others do, by name.
func meanwhiles(change func(s *scene)) map[string][2]func(s *scene) {
	result := map[string][2]func(s *scene){}
	for _, before := range []int{1, 2} {
		for _, after := range []int{2, -3} {
			result[fmt.Sprint(before, after)] = [2]func(s *scene){
				func(s *scene) { change(s); s.collect(before) }, func(s *scene) { s.collect(after) }}
			result[fmt.Sprint("late", before, after)] = [2]func(s *scene){
				func(s *scene) { s.collect(before) }, func(s *scene) { change(s); s.collect(after) }}
		}
	}
	return result
}

func TestNoMomentOfAProcessIsUnsafe(t *testing.T) {
	drop := func(s *scene) { s.removeSnapshot() }
	drain := func(s *scene) { s.drain() }
	other := func(s *scene) {
		s.take("r2")
		s.drain()
		s.drain()
	}
	for name, test := range map[string]struct {
		act    func(s *scene, disks *chain.Disks) error
		change func(s *scene)
	}{
		"fork of a snapshot that is removed": {forkOf(4), drop},
		"fork of a version that is dropped":  {forkOf(5), drain},
		"fork of a disk that is deleted": {forkOf(5), func(s *scene) {
			_, _ = s.actor.disks.Release(s.ctx, s.holder)
			_ = s.actor.disks.Delete(s.ctx, "o", "d")
		}},
		"revert to a snapshot that is removed": {func(s *scene, disks *chain.Disks) error {
			_, err := disks.Revert(s.ctx, s.holder, 4)
			return err
		}, drop},
		"drain of a holder that lost the disk": {func(s *scene, disks *chain.Disks) error {
			stale := &actor{world: s.world, random: rand.New(rand.NewPCG(2, 2)), disks: disks}
			return stale.drain(s.ctx, chain.Holding{Org: "o", Disk: "d", Runner: "r1", Epoch: 1})
		}, other},
		"snapshot of a holder that lost the disk": {func(s *scene, disks *chain.Disks) error {
			_, err := disks.Snapshot(s.ctx, chain.Holding{Org: "o", Disk: "d", Runner: "r1", Epoch: 1}, "t")
			return err
		}, other},
		"pass while a disk is drained": {collect, drain},
		"pass after one that met an upload": {func(s *scene, disks *chain.Disks) error {
			s.actor.beforeCommit = func() { s.collect(1) }
			s.drain()
			s.actor.beforeCommit = nil
			return onePass(s, disks)
		}, func(s *scene) {
			s.drain()
			s.collect(1)
		}},
		"pass while a snapshot is removed and reverted to": {collect, func(s *scene) {
			_, _ = s.actor.disks.Revert(s.ctx, s.holder, 4)
			s.removeSnapshot()
		}},
		"pass while the only user of data changes": {collect, func(s *scene) {
			_, _ = s.actor.disks.Fork(s.ctx, "o", "d", 4, "f")
			s.removeSnapshot()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for pair, each := range meanwhiles(test.change) {
				t.Run(pair, func(t *testing.T) { interleave(t, test.act, each[0], each[1]) })
			}
		})
	}
}

func TestANumberIsNeverUsedAgain(t *testing.T) {
	s := newScene(t)
	s.removeSnapshot()
	_, _ = s.actor.disks.Release(s.ctx, s.holder)
	s.must(nil, s.actor.disks.Delete(s.ctx, "o", "d"))
	s.collect(6)
	if keys := s.store.Keys(""); strings.Count(strings.Join(keys, " "), "blocks/") > 0 || len(s.store.Keys("disks/o/d/")) != 1 {
		t.Errorf("left: %v", keys)
	}
	if _, err := chain.New(s.store).Create(s.ctx, "o", "d", simulatedBytes); !errors.Is(err, chain.ErrExists) {
		t.Errorf("a deleted disk is made anew: %v", err)
	}
}

// TestALeafThatComesBackIsANewObject has a collector that is about to delete a leaf, when the same content is written again.
func TestALeafThatComesBackIsANewObject(t *testing.T) {
	ctx, store := context.Background(), memory.New()
	source := blockmap.NewSource(store, nil)
	write := func(base segment.Hash, change blockmap.Change) segment.Hash {
		version, err := blockmap.OpenVersion(ctx, source, "o", base, simulatedBytes)
		if err != nil {
			t.Fatal(err)
		}
		builder := blockmap.NewBuilder(ctx, version, segment.NewID())
		defer builder.Close()
		if err := builder.Apply(ctx, change); err != nil {
			t.Fatal(err)
		}
		root, _, err := builder.Finish(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return root
	}
	data := func(offset int64) blockmap.Change {
		return blockmap.Change{Offset: offset, Length: segment.PageBytes, Read: func(part []byte, at int64) error {
			copy(part, bytes.Repeat([]byte("x"), len(part)))
			return nil
		}}
	}
	first := write(segment.Hash{}, data(0))
	second := write(first, data(segment.BlockBytes))
	before := store.Keys("blocks/o/")
	third := write(second, blockmap.Change{Offset: segment.BlockBytes, Length: segment.PageBytes, IsZero: true})
	if after := store.Keys("blocks/o/"); len(after) != len(before)+2 || third == first {
		t.Errorf("%d objects after %d: a leaf and a root must be new", len(after), len(before))
	}
}
