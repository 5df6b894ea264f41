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
	made    map[string]bool            // manifests that became the head
	roots   map[string]map[string]bool // roots that each disk had
	deleted int                        // objects that collectors deleted while others worked
	// compacted counts versions with data in other segments than before.
	compacted int
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
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if err := json.Unmarshal(line, &version.Manifest); err != nil {
		w.t.Errorf("%s: %v", key, err)
	}
	head := w.heads[parts[2]]
	if version.Number <= head.Number {
		return true, nil // a stale writer found a number that the collector freed
	}
	w.made[key] = true
	if w.roots[parts[2]] == nil {
		w.roots[parts[2]] = map[string]bool{}
	}
	w.roots[parts[2]][version.Root] = true
	w.heads[parts[2]] = version
	isUpload := version.Kind == "drain" || version.Kind == "compact"
	switch {
	case version.Number != head.Number+1:
		w.t.Errorf("%s follows version %d", key, head.Number)
	case isUpload && (version.Epoch != head.Epoch || version.Runner != head.Runner):
		w.t.Errorf("%s: two holders' writes mix", key)
	case isUpload && w.base[version.Root] != head.Root:
		w.t.Errorf("%s was built from another root than that of its predecessor", key)
	case version.Kind == "revert":
		w.checkRevert(key, parts[2], head, version)
	case !isUpload && head.Number > 0 && version.Root != head.Root:
		w.t.Errorf("%s (%s) changes the root", key, version.Kind)
	case version.KeepFrom < head.KeepFrom:
		w.t.Errorf("%s keeps less than its predecessor", key)
	}
	return true, nil
}

// checkRevert finds a version that a revert may have shown. The caller holds the mutex.
func (w *world) checkRevert(key, disk string, head, version chain.Version) {
	if version.Epoch != head.Epoch || version.Runner != head.Runner || version.KeepFrom < head.KeepFrom {
		w.t.Errorf("%s changes the holder, or keeps less than its predecessor", key)
	}
	if !w.roots[disk][version.Root] {
		w.t.Errorf("%s shows a root that the disk never had", key)
	}
}

// newProcess starts a process that is slow or fast: an upload may last for several passes, and a pass for many uploads.
func (w *world) newProcess(random *rand.Rand, odds int) *process {
	delay := []time.Duration{0, 100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[random.IntN(4)]
	own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	return &process{Store: w.store, world: w, random: own, delay: delay, odds: odds}
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
	checked, deleted, compacted := 0, 0, 0
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			result := simulate(t, seed)
			checked, deleted, compacted = checked+result.checked, deleted+result.deleted, compacted+result.compacted
		})
	}
	// How many passes a collector makes in one simulation depends on the load of the machine.
	if checked == 0 || deleted == 0 || compacted == 0 {
		t.Error("the simulations prove nothing")
	}
}

type simulated struct {
	// checked and compacted count versions, deleted the objects that the collectors deleted while others worked.
	checked, compacted, deleted int
}

func simulate(t *testing.T, seed uint64) simulated {
	ctx, random := context.Background(), rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, store: memory.New(), base: map[string]string{}, heads: map[string]chain.Version{}, made: map[string]bool{}, roots: map[string]map[string]bool{},
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
	t.Logf("%d versions checked, %d manifests, %d compactions, %d objects, %d deleted", checked, len(w.made), w.compacted, result.Objects, w.deleted)
	if checked == 0 {
		t.Error("the simulation checks nothing")
	}
	return simulated{checked: checked, compacted: w.compacted, deleted: w.deleted}
}
