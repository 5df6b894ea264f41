package chain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

// These tests stop one process before each operation of the store, let others do something meanwhile, and let it go on:
// at one operation, and at each pair of operations. The simulation meets such moments by chance only.

// gate is the store as the process sees it that is stopped.
type gate struct {
	objects.Store
	world *world

	mutex sync.Mutex
	count int
	stops map[int]func()
}

func (g *gate) pass() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	stop := g.stops[g.count]
	g.count++
	if stop != nil {
		stop()
	}
}

func (g *gate) Put(ctx context.Context, key string, content []byte) error {
	g.pass()
	return g.Store.Put(ctx, key, content)
}

func (g *gate) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	g.pass()
	return g.world.create(ctx, key, content)
}

func (g *gate) Get(ctx context.Context, key string, part objects.Range) ([]byte, error) {
	g.pass()
	return g.Store.Get(ctx, key, part)
}

func (g *gate) Delete(ctx context.Context, key string) error {
	g.pass()
	return g.Store.Delete(ctx, key)
}

func (g *gate) List(ctx context.Context, prefix, after string) iter.Seq2[objects.Info, error] {
	g.pass()
	return g.Store.List(ctx, prefix, after)
}

// scene is a world with one disk "d": a first drain (version 3), a snapshot of it (4), and a second drain (5).
type scene struct {
	*world
	ctx    context.Context
	actor  *actor
	holder chain.Holding
}

func newScene(t *testing.T) *scene {
	s := emptyScene(newWorld(t))
	s.must(s.actor.disks.Create(s.ctx, "o", "d", simulatedBytes))
	s.holder = chain.Holding{Org: "o", Disk: "d", Runner: "r1", Epoch: 1}
	s.take("r1")
	s.drain()
	s.must(s.actor.disks.Snapshot(s.ctx, s.holder, "s"))
	s.drain()
	return s
}

func emptyScene(w *world) *scene {
	s := &scene{world: w, ctx: context.Background(), actor: &actor{world: w, random: rand.New(rand.NewPCG(1, 1))}}
	s.actor.disks = chain.New(&gate{Store: w.store, world: w})
	return s
}

// clone is a scene that has come as far.
func (s *scene) clone() *scene {
	w := newWorld(s.t)
	for _, key := range s.store.Keys("") {
		content, _ := s.store.Get(s.ctx, key, objects.Range{})
		_ = w.store.Put(s.ctx, key, content)
	}
	w.content, w.base, w.heads, w.made = maps.Clone(s.content), maps.Clone(s.base), maps.Clone(s.heads), maps.Clone(s.made)
	for disk, roots := range s.roots {
		w.roots[disk] = maps.Clone(roots)
	}
	cloned := emptyScene(w)
	cloned.holder = s.holder
	return cloned
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: memory.New(), base: map[string]string{}, heads: map[string]chain.Version{}, made: map[string]bool{},
		roots:   map[string]map[string]bool{},
		content: map[string][]byte{segment.Hash{}.String(): make([]byte, simulatedBytes)}}
}

func (s *scene) must(_ any, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) take(runner string) {
	s.t.Helper()
	taken, err := s.actor.disks.Take(s.ctx, "o", "d", runner, 0)
	s.must(taken, err)
	s.holder.Runner, s.holder.Epoch = runner, taken.Epoch
}

func (s *scene) drain() {
	s.t.Helper()
	s.must(nil, s.actor.drain(s.ctx, s.holder))
}

func (s *scene) removeSnapshot() {
	_ = s.actor.disks.RemoveSnapshot(s.ctx, "o", "d", 4)
}

// collect runs passes; negative ones give up all uploads.
func (s *scene) collect(passes int) {
	s.t.Helper()
	uploadTime := time.Hour
	if passes < 0 {
		passes, uploadTime = -passes, -time.Hour
	}
	for range passes {
		// As a process of its own, which knows nothing.
		disks := chain.New(&gate{Store: s.store, world: s.world})
		_, err := (&chain.Collector{Disks: disks, Source: blockmap.NewSource(s.store, nil), UploadTime: uploadTime}).Collect(s.ctx, "o")
		s.must(nil, err)
	}
}

// verify reads all that must be kept, now and after more passes, and that nothing else is kept.
func (s *scene) verify() {
	s.check(s.ctx)
	s.collect(-4)
	s.check(s.ctx)
	result, err := (&chain.Collector{Disks: chain.New(s.store), Source: blockmap.NewSource(s.store, nil)}).Collect(s.ctx, "o")
	if err != nil || result.Unused > 0 || result.Missing > 0 {
		s.t.Errorf("at the end: %+v, %v", result, err)
	}
	for disk := range s.heads {
		snapshots, err := chain.New(s.store).Snapshots(s.ctx, "o", disk)
		if err != nil && !errors.Is(err, chain.ErrNoDisk) {
			s.t.Error(err)
		}
		for _, snapshot := range snapshots {
			if !s.made[fmt.Sprintf("disks/o/%s/%010d", disk, snapshot.Number)] {
				s.t.Errorf("%s keeps version %d, which was never its head", disk, snapshot.Number)
			}
		}
	}
}

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
	return 4
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

func forkOf(version int64) func(s *scene, disks *chain.Disks) error {
	return func(s *scene, disks *chain.Disks) error {
		_, err := disks.Fork(s.ctx, "o", "d", version, "f")
		return err
	}
}

// collect is a pass over a disk whose older versions are dead and partly collected.
func collect(s *scene, disks *chain.Disks) error {
	s.removeSnapshot()
	s.collect(1)
	return onePass(s, disks)
}

func onePass(s *scene, disks *chain.Disks) error {
	_, err := (&chain.Collector{Disks: disks, Source: blockmap.NewSource(disks.Store, nil), UploadTime: time.Hour}).Collect(s.ctx, "o")
	return err
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

// TestNoMomentOfAPassAndAForkIsUnsafe stops a pass, then a fork or a revert, and meanwhile removes what that copies.
func TestNoMomentOfAPassAndAForkIsUnsafe(t *testing.T) {
	for name, act := range map[string]func(s *scene, disks *chain.Disks) error{
		"fork": forkOf(4),
		"revert": func(s *scene, disks *chain.Disks) error {
			_, err := disks.Revert(s.ctx, s.holder, 4)
			return err
		},
	} {
		for _, passes := range []int{1, 2} {
			t.Run(fmt.Sprint(name, passes), func(t *testing.T) {
				begin := newScene(t)
				begin.collect(1)
				for stopOfPass := 0; stopPair(t, begin, act, stopOfPass, passes); stopOfPass++ {
				}
			})
		}
	}
}

// stopPair returns false if the pass has no such operation.
func stopPair(t *testing.T, begin *scene, act func(s *scene, disks *chain.Disks) error, stopOfPass, passes int) (isReached bool) {
	for i := 0; ; i++ {
		s := begin.clone()
		reached, resume, ended := make(chan bool, 2), make(chan struct{}), make(chan struct{})
		pass := &gate{Store: s.store, world: s.world, stops: map[int]func(){stopOfPass: func() { reached <- true; <-resume }}}
		go func() {
			defer close(ended)
			_ = onePass(s, chain.New(pass)) // may find that another was faster
			reached <- false
		}()
		isReached = <-reached
		isActing := false
		finish := func() {
			s.removeSnapshot()
			close(resume)
			<-ended
			s.collect(passes)
		}
		_ = act(s, chain.New(&gate{Store: s.store, world: s.world, stops: map[int]func(){i: func() {
			isActing = true
			finish()
		}}}))
		if !isActing {
			finish()
		}
		s.verify()
		if t.Failed() {
			t.Fatalf("the pass stopped at %d, the other at %d", stopOfPass, i)
		}
		if !isActing || i > 100 || !isReached {
			return isReached
		}
	}
}
