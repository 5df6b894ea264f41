package cache_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"coppice/blocks/internal/cache"
)

const fileBytes = 10_000

func fill(disk *cache.Disk, first, count int) {
	for i := first; i < first+count; i++ {
		disk.Put(fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, fileBytes))
	}
}

func TestTheCacheKeepsItsLimitAndTheFilesUsedLast(t *testing.T) {
	const limit = 10 * (fileBytes + 4096)
	root := t.TempDir()
	disk, err := cache.OpenDisk(root, limit)
	if err != nil {
		t.Fatal(err)
	}
	fill(disk, 0, 10)
	if disk.Read("0", 5, 3) == nil {
		t.Fatal("a file is not kept")
	}
	fill(disk, 10, 9)
	entries, _ := os.ReadDir(root)
	if len(entries) != 10 || disk.UsedBytes() > limit {
		t.Errorf("%d files, %d bytes", len(entries), disk.UsedBytes())
	}
	if disk.Read("0", 0, 1) == nil || disk.Read("1", 0, 1) != nil {
		t.Error("not the oldest files are dropped")
	}
	disk.Put("0", []byte("short"))
	if disk.Read("0", 0, 6) != nil || string(disk.ReadAll("0")) != "short" {
		t.Error("a replaced file is read wrongly")
	}
	disk.Drop("0")
	if disk.ReadAll("0") != nil {
		t.Error("a dropped file is still read")
	}
}

func TestALaterProcessKeepsTheFilesAndRemovesUnfinishedOnes(t *testing.T) {
	root := t.TempDir()
	disk, _ := cache.OpenDisk(root, 1<<20)
	fill(disk, 0, 5)
	_ = os.WriteFile(filepath.Join(root, ".new-1"), nil, 0o600)
	disk, err := cache.OpenDisk(root, 3*(fileBytes+4096))
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(root)
	if len(entries) != 3 {
		t.Errorf("%d files", len(entries))
	}
	// Torn by a crash: it is shorter than its reader expects.
	_ = os.Truncate(filepath.Join(root, entries[0].Name()), 100)
	if disk.ReadAll(entries[0].Name()) != nil && disk.Read(entries[0].Name(), 0, fileBytes) != nil {
		t.Error("a torn file is served")
	}
}

func TestManyUsersShareTheCache(t *testing.T) {
	disk, _ := cache.OpenDisk(t.TempDir(), 20*(fileBytes+4096))
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 100 {
				fill(disk, i%30, 1)
				if content := disk.ReadAll(fmt.Sprint(i % 30)); content != nil && content[0] != byte(i%30) {
					t.Error("another file's content")
				}
			}
		}()
	}
	group.Wait()
}

func TestMemoryKeepsItsLimit(t *testing.T) {
	memory := cache.NewMemory[int, string](30)
	for i := range 10 {
		memory.Add(i, "x", 10)
		memory.Find(0)
	}
	_, hasFirst := memory.Find(0)
	_, hasSecond := memory.Find(1)
	_, hasLast := memory.Find(9)
	if !hasFirst || hasSecond || !hasLast {
		t.Error(hasFirst, hasSecond, hasLast)
	}
	memory.Add(100, "too large", 31)
	if _, ok := memory.Find(100); ok {
		t.Error("a value above the limit is kept")
	}
}
