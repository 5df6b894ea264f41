package captures_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"coppice/blocks/internal/captures"
	"coppice/blocks/testing/memory"
)

func collect(t testing.TB, store *memory.Store) captures.Collected {
	t.Helper()
	collector := &captures.Collector{Captures: captures.New(store), UploadTime: time.Hour}
	collected, err := collector.Collect(context.Background(), "o")
	if err != nil {
		t.Fatal(err)
	}
	return collected
}

func TestChunksOfADeletedCaptureGoUnlessAnotherCaptureNamesThem(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 4*mib, 1, 0, mib)
	upload(t, store, "snap1", ram)
	if _, err := ram.WriteAt([]byte("changed"), 0); err != nil {
		t.Fatal(err)
	}
	upload(t, store, "snap2", ram)
	if err := captures.New(store).Delete(context.Background(), "o", "snap1"); err != nil {
		t.Fatal(err)
	}
	if first := collect(t, store); first.Unused != 1 || first.DeletedObjects != 0 {
		t.Errorf("the first pass: %+v", first)
	}
	if second := collect(t, store); second.Unused != 0 || second.DeletedObjects != 1 {
		t.Errorf("the second pass: %+v", second)
	}
	into, err := fetch(t, store, "snap2", 1)
	if err != nil {
		t.Fatal(err)
	}
	assertSame(t, ram, into[0].File)
}

func TestACondemnedChunkIsWrittenAnew(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 4*mib, 1, 0, mib)
	upload(t, store, "snap1", ram)
	if err := captures.New(store).Delete(context.Background(), "o", "snap1"); err != nil {
		t.Fatal(err)
	}
	collect(t, store)
	if again := upload(t, store, "snap2", ram); again.SentChunks != 2 {
		t.Errorf("%+v", again)
	}
	if second := collect(t, store); second.DeletedObjects != 2 {
		t.Errorf("%+v", second)
	}
	if _, err := fetch(t, store, "snap2", 1); err != nil {
		t.Error(err)
	}
}

// An upload that found a chunk before it was condemned may name it much later.
func TestNothingIsDeletedWhileAnEarlierUploadRuns(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 4*mib, 1, 0, mib)
	upload(t, store, "snap1", ram)
	store.Before = func(operation, key string) error {
		if operation != "create" || !strings.Contains(key, "/manifests/snap2") {
			return nil
		}
		store.Before = nil
		if err := captures.New(store).Delete(context.Background(), "o", "snap1"); err != nil {
			t.Error(err)
		}
		for range 4 {
			if pass := collect(t, store); pass.DeletedObjects != 0 {
				t.Errorf("%+v", pass)
			}
		}
		return nil
	}
	if second := upload(t, store, "snap2", ram); second.SentChunks != 0 {
		t.Errorf("%+v", second)
	}
	for range 3 {
		if pass := collect(t, store); pass.DeletedObjects != 0 {
			t.Errorf("after the upload: %+v", pass)
		}
	}
	if _, err := fetch(t, store, "snap2", 1); err != nil {
		t.Error(err)
	}
}

func TestAnUploadThatTakesTooLongIsGivenUpAndCanBeRepeated(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 4*mib, 1, 0, mib)
	late := captures.New(store)
	store.Before = func(operation, key string) error {
		if operation != "create" || !strings.Contains(key, "/manifests/") {
			return nil
		}
		store.Before = nil
		old := captures.New(store)
		old.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		collector := &captures.Collector{Captures: old, UploadTime: time.Hour}
		for range 2 {
			if _, err := collector.Collect(context.Background(), "o"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	if _, err := late.Upload(context.Background(), jobOf("snap1", ram)); !errors.Is(err, captures.ErrConflict) {
		t.Fatalf("%v", err)
	}
	if left := store.Keys("captures/o/chunks/"); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	upload(t, store, "snap1", ram)
	if _, err := fetch(t, store, "snap1", 1); err != nil {
		t.Error(err)
	}
}

// TestNoCaptureLosesAChunk runs uploads, deletions and collectors against one store, in random order: each operation of
// the store may wait for others. Every capture that exists in the end, and none other, can be fetched.
func TestNoCaptureLosesAChunk(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runRandomly(t, seed) })
	}
}

func runRandomly(t *testing.T, seed uint64) {
	store := memory.New()
	var mutex sync.Mutex
	random := rand.New(rand.NewPCG(seed, 9))
	draw := func(n int) int {
		mutex.Lock()
		defer mutex.Unlock()
		return random.IntN(n)
	}
	store.Before = func(string, string) error {
		for range draw(50) {
			runtime.Gosched()
		}
		return nil
	}
	contents := make([]*os.File, 3)
	for index := range contents {
		// Neighbours share a chunk.
		contents[index] = makeFile(t, 3*mib, 1, int64(index%3)*mib, int64((index+1)%3)*mib)
	}
	kept := map[string]*os.File{}
	var group sync.WaitGroup
	for worker := range 3 {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := range 6 {
				name, content := fmt.Sprintf("snap%d-%d", worker, round), contents[draw(3)]
				if _, err := captures.New(store).Upload(context.Background(), jobOf(name, content)); err != nil {
					t.Error(err)
				}
				if draw(3) > 0 {
					if err := captures.New(store).Delete(context.Background(), "o", name); err != nil {
						t.Error(err)
					}
					continue
				}
				mutex.Lock()
				kept[name] = content
				mutex.Unlock()
			}
		}()
	}
	for range 2 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 8 {
				collector := &captures.Collector{Captures: captures.New(store), UploadTime: time.Hour}
				if _, err := collector.Collect(context.Background(), "o"); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	for name, content := range kept {
		into, err := fetch(t, store, name, 1)
		if err != nil {
			t.Fatal(err)
		}
		assertSame(t, content, into[0].File)
	}
	collect(t, store)
	if last := collect(t, store); last.Unused != 0 {
		t.Errorf("%+v", last)
	}
}

// A killed upload must not stop collections until it would be too old.
func TestTheNextUploadOfACaptureEndsTheOneThatWasKilled(t *testing.T) {
	store := memory.New()
	upload(t, store, "other", makeFile(t, 2*mib, 7, 0))
	ram := makeFile(t, 4*mib, 1, 0, mib)
	lost := errors.New("the process is killed")
	store.Before = func(operation, key string) error {
		if operation == "create" && strings.Contains(key, "/manifests/snap1") {
			return lost
		}
		return nil
	}
	if _, err := captures.New(store).Upload(context.Background(), jobOf("snap1", ram)); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	store.Before = nil
	if err := captures.New(store).Delete(context.Background(), "o", "other"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if pass := collect(t, store); pass.DeletedObjects != 0 {
			t.Errorf("%+v", pass)
		}
	}
	upload(t, store, "snap1", ram)
	if pass := collect(t, store); pass.DeletedObjects == 0 || len(store.Keys("captures/o/uploads/")) != 0 {
		t.Errorf("%+v", pass)
	}
	if _, err := fetch(t, store, "snap1", 1); err != nil {
		t.Error(err)
	}
	if err := captures.New(store).Delete(context.Background(), "o", "snap1"); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(t, store, "snap1", 1); !errors.Is(err, captures.ErrNoCapture) {
		t.Error(err)
	}
}
