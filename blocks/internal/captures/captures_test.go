package captures_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coppice/blocks/internal/captures"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
	"coppice/blocks/testing/s3server"
)

const (
	mib  = 1 << 20
	page = 4096
)

// makeFile makes a sparse file with some pages of data at the given places.
func makeFile(t testing.TB, size int64, seed uint64, pages ...int64) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, 1))
	for _, at := range pages {
		content := make([]byte, min(page, size-at))
		for index := range content {
			content[index] = byte(random.Uint32N(8)) + 1
		}
		if _, err := file.WriteAt(content, at); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func upload(t testing.TB, store objects.Store, capture string, files ...*os.File) captures.Stored {
	t.Helper()
	stored, err := captures.New(store).Upload(context.Background(), jobOf(capture, files...))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func jobOf(capture string, files ...*os.File) captures.Job {
	job := captures.Job{Org: "o", Capture: capture, About: "about " + capture}
	for index, file := range files {
		job.Files = append(job.Files, captures.Source{Name: nameOf(index), File: file})
	}
	return job
}

func nameOf(index int) string { return []string{"ram", "devices", "image"}[index] }

func targets(t testing.TB, count int) (list []captures.Target) {
	for index := range count {
		list = append(list, captures.Target{Name: nameOf(index), File: makeFile(t, 0, 0)})
	}
	return list
}

func fetch(t testing.TB, store objects.Store, capture string, count int) ([]captures.Target, error) {
	t.Helper()
	into := targets(t, count)
	_, err := captures.New(store).Fetch(context.Background(), "o", capture, into)
	return into, err
}

func assertSame(t testing.TB, want, got *os.File) {
	t.Helper()
	a, errA := os.ReadFile(want.Name())
	b, errB := os.ReadFile(got.Name())
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Fatalf("the content differs: %d and %d bytes, %v, %v", len(a), len(b), errA, errB)
	}
}

func allocated(t testing.TB, file *os.File) int64 {
	t.Helper()
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Blocks * 512
}

func TestAFetchedCaptureHasTheSameContentAndTheSameHoles(t *testing.T) {
	stores := map[string]func(t *testing.T) objects.Store{
		"memory": func(*testing.T) objects.Store { return memory.New() },
		"s3": func(t *testing.T) objects.Store {
			store, err := objects.Open(context.Background(), s3server.Start(t), "")
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			ram := makeFile(t, 64*mib, 1, 0, 3*page, 7*mib+5*page, 63*mib, 64*mib-page)
			devices := makeFile(t, 3*mib+777, 2, 0, 3*mib)
			empty := makeFile(t, 0, 3)
			first := upload(t, store, "snap1", ram, devices, empty)
			if first.SentChunks != 5 || first.IsRepeated {
				t.Errorf("%+v", first)
			}
			into, err := fetch(t, store, "snap1", 3)
			if err != nil {
				t.Fatal(err)
			}
			assertSame(t, ram, into[0].File)
			assertSame(t, devices, into[1].File)
			assertSame(t, empty, into[2].File)
			if used := allocated(t, into[0].File); used > 6*page {
				t.Errorf("%d bytes are allocated for 5 pages and an extent tree", used)
			}
			found, err := captures.New(store).Find(context.Background(), "o", "snap1")
			if err != nil || found.About != "about snap1" || found.StoredBytes != first.StoredBytes {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
}

func TestEqualChunksOfAnOrganizationAreStoredOnce(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 8*mib, 1, 0, 2*mib, 5*mib)
	upload(t, store, "snap1", ram)
	if _, err := ram.WriteAt([]byte("changed"), 2*mib); err != nil {
		t.Fatal(err)
	}
	second := upload(t, store, "snap2", ram)
	if second.SentChunks != 1 || second.StoredBytes <= second.SentBytes {
		t.Errorf("%+v", second)
	}
	job := jobOf("snap1", ram)
	job.Org = "other"
	foreign, err := captures.New(store).Upload(context.Background(), job)
	if err != nil || foreign.SentChunks != 3 {
		t.Errorf("another organization: %+v, %v", foreign, err)
	}
	if again := upload(t, store, "snap2", ram); !again.IsRepeated || again.SentBytes != 0 {
		t.Errorf("a repeated upload: %+v", again)
	}
}

func TestAnUploadThatWasCutOffIsNotVisibleAndContinues(t *testing.T) {
	store := memory.New()
	pages := make([]int64, 40)
	for index := range pages {
		pages[index] = int64(index) * mib
	}
	ram := makeFile(t, 40*mib, 1, pages...)
	lost := errors.New("the process is killed")
	ctx, kill := context.WithCancelCause(context.Background())
	var count atomic.Int32
	store.After = func(operation, key string) error {
		if strings.Contains(key, "/chunks/") && operation == "create" {
			if count.Add(1) == 20 {
				kill(lost)
			}
		}
		return nil
	}
	if _, err := captures.New(store).Upload(ctx, jobOf("snap1", ram)); err == nil {
		t.Fatal("it succeeded")
	}
	store.After = nil
	if _, err := captures.New(store).Find(context.Background(), "o", "snap1"); !errors.Is(err, captures.ErrNoCapture) {
		t.Fatalf("it is visible: %v", err)
	}
	left := len(store.Keys("captures/o/chunks/"))
	second := upload(t, store, "snap1", ram)
	if left < 20 || second.SentChunks != 40-left {
		t.Errorf("%d chunks were stored, then %d", left, second.SentChunks)
	}
	into, err := fetch(t, store, "snap1", 1)
	if err != nil {
		t.Fatal(err)
	}
	assertSame(t, ram, into[0].File)
}

func TestEveryDamageOfAStoredCaptureIsReported(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, 4*mib, 1, 0, mib, 2*mib)
	upload(t, store, "snap1", ram)
	reported := 0
	for _, key := range append(store.Keys("captures/o/chunks/"), store.Keys("captures/o/manifests/")...) {
		whole, _ := store.Get(context.Background(), key, objects.Range{})
		for _, offset := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
			store.Damage(key, offset)
			into, err := fetch(t, store, "snap1", 1)
			if err == nil {
				assertSame(t, ram, into[0].File) // a bit of a zstd frame that means nothing
			} else if !errors.Is(err, segment.ErrCorrupt) {
				t.Errorf("%s, byte %d: %v", key, offset, err)
			}
			if err != nil {
				reported++
			}
			store.Damage(key, offset)
		}
	}
	if reported < 12 {
		t.Errorf("only %d damages are reported", reported)
	}
	key := store.Keys("captures/o/chunks/")[0]
	if err := store.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	_, err := fetch(t, store, "snap1", 1)
	if !errors.Is(err, segment.ErrCorrupt) || !strings.Contains(err.Error(), "snap1") {
		t.Errorf("a missing chunk: %v", err)
	}
}

func TestALocalFileWithTheContentIsNotFetched(t *testing.T) {
	store := memory.New()
	image := makeFile(t, 6*mib+100, 1, 0, 4*mib, 6*mib)
	upload(t, store, "snap1", image)
	var reads atomic.Int32
	store.Before = func(operation, key string) error {
		if operation == "get" && strings.Contains(key, "/chunks/") {
			reads.Add(1)
		}
		return nil
	}
	other := makeFile(t, 6*mib+100, 1, 0, 4*mib, 5*mib, 6*mib)
	for seed, want := range map[*os.File]bool{image: true, other: false, makeFile(t, mib, 1, 0): false} {
		into := targets(t, 1)
		into[0].Seed = seed
		reads.Store(0)
		fetched, err := captures.New(store).Fetch(context.Background(), "o", "snap1", into)
		if err != nil || (len(fetched.Same) == 1) != want || (reads.Load() == 0) != want {
			t.Errorf("want %v: %+v, %d reads, %v", want, fetched, reads.Load(), err)
		}
		if !want {
			assertSame(t, image, into[0].File)
		}
	}
}

func TestTargetsMustBeThoseOfTheCapture(t *testing.T) {
	store := memory.New()
	upload(t, store, "snap1", makeFile(t, mib, 1, 0))
	for _, count := range []int{0, 2} {
		if _, err := fetch(t, store, "snap1", count); !errors.Is(err, captures.ErrChanged) {
			t.Errorf("%d targets: %v", count, err)
		}
	}
	into := targets(t, 1)
	into[0].Name = "other"
	if _, err := captures.New(store).Fetch(context.Background(), "o", "snap1", into); !errors.Is(err, captures.ErrChanged) {
		t.Errorf("another name: %v", err)
	}
	if _, err := fetch(t, store, "snap9", 1); !errors.Is(err, captures.ErrNoCapture) {
		t.Errorf("an unknown capture: %v", err)
	}
}

func TestATransferFailsSoonWhileTheStoreIsAway(t *testing.T) {
	store := memory.New()
	ram := makeFile(t, mib, 1, 0)
	upload(t, store, "snap1", ram)
	away := objects.Limit(hanging{store}, 50*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if _, err := captures.New(away).Fetch(ctx, "o", "snap1", targets(t, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fetch: %v", err)
	}
	if _, err := captures.New(away).Upload(ctx, jobOf("snap2", makeFile(t, mib, 2, 0))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("upload: %v", err)
	}
}

// hanging answers no request about chunks.
type hanging struct{ objects.Store }

func (h hanging) Get(ctx context.Context, key string, part objects.Range) ([]byte, error) {
	if strings.Contains(key, "/chunks/") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Store.Get(ctx, key, part)
}

func (h hanging) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	if strings.Contains(key, "/chunks/") {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return h.Store.PutIfAbsent(ctx, key, content)
}
