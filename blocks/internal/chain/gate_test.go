package chain_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
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

// gate is the store as the process sees it that is stopped.
type gate struct {
	objects.Store
	world *world

	mutex sync.Mutex
	count int
	stops map[int]func()
	// crashesAt is the beginning of the keys at whose creation the process crashes.
	crashesAt string
	// onList is called before a list.
	onList func(prefix string)
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
	if g.crashesAt != "" && strings.HasPrefix(key, g.crashesAt) {
		return false, errCrashed
	}
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
	if g.onList != nil {
		g.onList(prefix)
	}
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
