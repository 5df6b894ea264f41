package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
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

const (
	simulatedPages = 40
	simulatedBytes = simulatedPages * segment.PageBytes
	simulatedDisks = 5
)

var errCrashed = errors.New("the process crashed")

// process is the store as one process sees it, until the process crashes before or after some operation.
type process struct {
	objects.Store
	world *world
	delay time.Duration
	// odds is one in how many turns the process crashes.
	odds int

	mutex  sync.Mutex
	random *rand.Rand
	isDead bool
}

// turn gives way to other processes, and decides whether this one crashes now.
func (p *process) turn() error {
	p.mutex.Lock()
	p.isDead = p.isDead || p.random.IntN(p.odds) == 0
	isDead, yields, sleeps := p.isDead, p.random.IntN(8), p.random.IntN(12) == 0
	p.mutex.Unlock()
	for range yields {
		runtime.Gosched()
	}
	if sleeps {
		time.Sleep(p.delay)
	}
	if isDead {
		return errCrashed
	}
	return nil
}

func (p *process) Put(ctx context.Context, key string, content []byte) error {
	if err := p.turn(); err != nil {
		return err
	}
	return errors.Join(p.Store.Put(ctx, key, content), p.turn())
}

func (p *process) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	if err := p.turn(); err != nil {
		return false, err
	}
	isWritten, err := p.world.create(ctx, key, content)
	return isWritten, errors.Join(err, p.turn())
}

func (p *process) Get(ctx context.Context, key string, part objects.Range) ([]byte, error) {
	if err := p.turn(); err != nil {
		return nil, err
	}
	return p.Store.Get(ctx, key, part)
}

func (p *process) Delete(ctx context.Context, key string) error {
	if err := p.turn(); err != nil {
		return err
	}
	return errors.Join(p.Store.Delete(ctx, key), p.turn())
}

func (p *process) List(ctx context.Context, prefix, after string) iter.Seq2[objects.Info, error] {
	if err := p.turn(); err != nil {
		return func(yield func(objects.Info, error) bool) { yield(objects.Info{}, err) }
	}
	return p.Store.List(ctx, prefix, after)
}

// world knows what each root must show, and watches the creation of manifests.
type world struct {
	t     *testing.T
	store *memory.Store

	mutex   sync.Mutex
	content map[string][]byte // by root
	base    map[string]string // root that a root was built from
	heads   map[string]chain.Version
	made    map[string]bool // manifests that became the head
	deleted int             // objects that collectors deleted while others worked
}

func (w *world) create(ctx context.Context, key string, content []byte) (bool, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	isWritten, err := w.store.PutIfAbsent(ctx, key, content)
	if !isWritten || err != nil || !strings.HasPrefix(key, "disks/") {
		return isWritten, err
	}
	parts := strings.Split(key, "/")
	version := chain.Version{}
	_, _ = fmt.Sscanf(parts[3], "%d", &version.Number)
	if err := json.Unmarshal(content, &version.Manifest); err != nil {
		w.t.Errorf("%s: %v", key, err)
	}
	head := w.heads[parts[2]]
	if version.Number <= head.Number {
		return true, nil // a stale writer found a number that the collector freed
	}
	w.made[key] = true
	w.heads[parts[2]] = version
	switch {
	case version.Number != head.Number+1:
		w.t.Errorf("%s follows version %d", key, head.Number)
	case version.Kind == "drain" && (version.Epoch != head.Epoch || version.Runner != head.Runner):
		w.t.Errorf("%s: two holders' writes mix", key)
	case version.Kind == "drain" && w.base[version.Root] != head.Root:
		w.t.Errorf("%s was built from another root than that of its predecessor", key)
	case version.Kind != "drain" && head.Number > 0 && version.Root != head.Root:
		w.t.Errorf("%s (%s) changes the root", key, version.Kind)
	case version.KeepFrom < head.KeepFrom:
		w.t.Errorf("%s keeps less than its predecessor", key)
	}
	return true, nil
}

// newProcess starts a process that is slow or fast: an upload may last for several passes, and a pass for many uploads.
func (w *world) newProcess(random *rand.Rand, odds int) *process {
	delay := []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[random.IntN(4)]
	own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	return &process{Store: w.store, world: w, random: own, delay: delay, odds: odds}
}

// actor is a runner that works on random disks and starts again after each crash.
type actor struct {
	*world
	random *rand.Rand
	name   string
	disks  *chain.Disks
	held   map[string]chain.Holding

	operation int
}

func (a *actor) run(ctx context.Context, operations int) {
	var at *process
	for a.operation = range operations {
		if at == nil || at.isDead {
			at = a.newProcess(a.random, 150)
			a.disks = chain.New(at)
		}
		disk := a.drawDisk()
		err := a.act(ctx, disk)
		for _, allowed := range []error{errCrashed, chain.ErrConflict, chain.ErrStale, chain.ErrHeld, chain.ErrExists,
			chain.ErrNoDisk, chain.ErrNoData, chain.ErrHasForks} {
			if errors.Is(err, allowed) {
				err = nil
			}
		}
		if err != nil {
			a.t.Errorf("%s on %s: %v", a.name, disk, err)
		}
	}
}

// drawDisk moves on to new disks: a deleted one never comes back.
func (a *actor) drawDisk() string {
	return fmt.Sprintf("d%d", a.operation/25+a.random.IntN(simulatedDisks))
}

func (a *actor) act(ctx context.Context, disk string) error {
	holding, isHeld := a.held[disk]
	if !isHeld {
		holding = chain.Holding{Org: "o", Disk: disk}
	}
	switch a.random.IntN(12) {
	case 0:
		_, err := a.disks.Create(ctx, "o", disk, simulatedBytes)
		return err
	case 1, 2:
		version, err := a.disks.Take(ctx, "o", disk, a.name, 0)
		if err == nil {
			a.held[disk] = chain.Holding{Org: "o", Disk: disk, Runner: a.name, Epoch: version.Epoch}
		}
		return err
	case 3:
		version, err := a.disks.Snapshot(ctx, holding, "s")
		if err == nil && a.random.IntN(2) == 0 {
			err = a.disks.RemoveSnapshot(ctx, "o", disk, version.Number)
		}
		return err
	case 4:
		_, err := a.disks.Release(ctx, holding)
		return err
	case 5, 6:
		head, err := a.disks.Head(ctx, "o", disk)
		if err != nil {
			return err
		}
		_, err = a.disks.Fork(ctx, "o", disk, max(1, head.Number-a.random.Int64N(3)), a.drawDisk())
		return err
	case 7:
		if a.random.IntN(3) > 0 {
			return nil
		}
		return a.disks.Delete(ctx, "o", disk)
	default:
		return a.drain(ctx, holding)
	}
}

func (a *actor) drain(ctx context.Context, holding chain.Holding) error {
	if holding.Runner == "" {
		return nil
	}
	upload, err := a.disks.BeginUpload(ctx, holding)
	if err != nil {
		return err
	}
	base, err := upload.Base.RootHash()
	if err != nil {
		return err
	}
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(a.disks.Store, nil), "o", base, simulatedBytes)
	if err != nil {
		return err
	}
	builder := blockmap.NewBuilder(ctx, version, upload.ID)
	defer builder.Close()
	a.mutex.Lock()
	content := bytes.Clone(a.content[base.String()])
	a.mutex.Unlock()
	if err := a.change(ctx, builder, content); err != nil {
		return err
	}
	root, _, err := builder.Finish(ctx)
	if err != nil {
		return err
	}
	a.mutex.Lock()
	a.content[root.String()], a.base[root.String()] = content, base.String()
	a.mutex.Unlock()
	made, err := upload.Commit(ctx, root, "", 0)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if err == nil && !a.made[fmt.Sprintf("disks/o/%s/%010d", holding.Disk, made.Number)] {
		a.t.Errorf("version %d of %s was acknowledged but never the head", made.Number, holding.Disk)
	}
	return err
}

func (a *actor) change(ctx context.Context, builder *blockmap.Builder, content []byte) error {
	first := a.random.IntN(simulatedPages - 1)
	for page := first; page < simulatedPages; page += 1 + a.random.IntN(20) {
		part := content[page*segment.PageBytes : (page+1)*segment.PageBytes]
		for i := range part {
			part[i] = byte(a.random.Uint32())
		}
		err := builder.Apply(ctx, blockmap.Change{Offset: int64(page * segment.PageBytes), Length: segment.PageBytes,
			Read: func(to []byte, at int64) error { copy(to, part[at:]); return nil }})
		if err != nil {
			return err
		}
	}
	return nil
}

// collect runs passes of a delayed collector, which takes some uploads for abandoned.
func (w *world) collect(ctx context.Context, random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		at := w.newProcess(random, 3000)
		collector := &chain.Collector{Disks: chain.New(at), Source: blockmap.NewSource(at, nil)}
		if random.IntN(3) > 0 {
			collector.UploadTime = time.Hour
		}
		result, err := collector.Collect(ctx, "o")
		w.mutex.Lock()
		w.deleted += result.DeletedObjects
		w.mutex.Unlock()
		if err != nil && !errors.Is(err, errCrashed) && !errors.Is(err, chain.ErrConflict) && !errors.Is(err, objects.ErrNotFound) {
			w.t.Errorf("the collector: %v", err)
		}
	}
}

// check reads all versions that are kept.
func (w *world) check(ctx context.Context) (checked int) {
	disks, source := chain.New(w.store), blockmap.NewSource(w.store, nil)
	for disk, head := range w.heads {
		for number := int64(1); number <= head.Number; number++ {
			version, err := disks.Find(ctx, "o", disk, number)
			key := fmt.Sprintf("disks/o/%s/%010d", disk, number)
			if errors.Is(err, chain.ErrNoData) || errors.Is(err, chain.ErrNoDisk) || !w.made[key] {
				continue
			}
			content := make([]byte, simulatedBytes)
			root, parseErr := version.RootHash()
			opened, openErr := blockmap.OpenVersion(ctx, source, "o", root, simulatedBytes)
			if openErr == nil {
				openErr = opened.ReadAt(ctx, content, 0)
			}
			if err := errors.Join(err, parseErr, openErr); err != nil || !bytes.Equal(content, w.content[version.Root]) {
				w.t.Errorf("%s (%s): wrong content, %v", key, version.Kind, err)
			}
			checked++
		}
	}
	return checked
}

func TestNothingLiveIsCollectedAndNoWritesMix(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	ctx, random := context.Background(), rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, store: memory.New(), base: map[string]string{}, heads: map[string]chain.Version{}, made: map[string]bool{},
		content: map[string][]byte{segment.Hash{}.String(): make([]byte, simulatedBytes)}}
	stop := make(chan struct{})
	var runners, collectors sync.WaitGroup
	for i := range 3 {
		own := rand.New(rand.NewPCG(seed, uint64(100+i)))
		runners.Add(1)
		go func() {
			defer runners.Done()
			(&actor{world: w, random: own, name: fmt.Sprintf("r%d", i), held: map[string]chain.Holding{}}).run(ctx, 400)
		}()
	}
	for range 2 {
		own := rand.New(rand.NewPCG(random.Uint64(), 1))
		collectors.Add(1)
		go func() {
			defer collectors.Done()
			w.collect(ctx, own, stop)
		}()
	}
	runners.Wait()
	close(stop)
	collectors.Wait()
	checked := w.check(ctx)
	collector := &chain.Collector{Disks: chain.New(w.store), Source: blockmap.NewSource(w.store, nil), UploadTime: -time.Hour}
	var result chain.Collected
	for range 5 {
		var err error
		if result, err = collector.Collect(ctx, "o"); err != nil {
			t.Fatal(err)
		}
	}
	if result.Unused > 0 {
		t.Errorf("%d unused objects stay", result.Unused)
	}
	w.check(ctx)
	t.Logf("%d versions checked, %d manifests, %d objects, %d deleted", checked, len(w.made), result.Objects, w.deleted)
	if checked == 0 || w.deleted == 0 {
		t.Error("the simulation proves nothing")
	}
}
