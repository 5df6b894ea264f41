package drain_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/cache"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/drain"
	"coppice/blocks/internal/objects"
	"coppice/blocks/internal/segment"
)

const mib = 1 << 20

// text is data that does not compress.
func text(random *rand.Rand, length int) []byte {
	content := make([]byte, length)
	for i := range content {
		if content[i] = byte(random.Uint32()); i%2 == 0 {
			content[i] = 'x'
		}
	}
	return content
}

func openDirectory(b testing.TB) objects.Store {
	store, err := objects.OpenDirectory(filepath.Join(b.TempDir(), "objects"))
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// fill makes a version with one page in each leaf, so that its map has its full size.
func fill(b testing.TB, disks *chain.Disks, source *blockmap.Source, at chain.Holding, size int64) chain.Version {
	page := text(rand.New(rand.NewPCG(1, 1)), segment.PageBytes)
	result, err := drain.Apply(context.Background(), disks, source, drain.Job{Holding: at}, size,
		func(ctx context.Context, builder *blockmap.Builder) error {
			for offset := int64(0); offset < size; offset += blockmap.LeafBytes {
				if err := builder.Apply(ctx, change(offset, page)); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		b.Fatal(err)
	}
	return result.Version
}

func change(offset int64, content []byte) blockmap.Change {
	return blockmap.Change{Offset: offset, Length: int64(len(content)), Read: func(part []byte, at int64) error {
		copy(part, content[at:])
		return nil
	}}
}

func hold(b testing.TB, disks *chain.Disks, size int64) chain.Holding {
	ctx := context.Background()
	if _, err := disks.Create(ctx, "o", "d", size); err != nil {
		b.Fatal(err)
	}
	taken, err := disks.Take(ctx, "o", "d", "r", 0)
	if err != nil {
		b.Fatal(err)
	}
	return chain.Holding{Org: "o", Disk: "d", Runner: "r", Epoch: taken.Epoch}
}

func BenchmarkSnapshotAndFork(b *testing.B) {
	ctx := context.Background()
	for _, gib := range []int64{1, 10, 100} {
		store := openDirectory(b)
		disks, source := chain.New(store), blockmap.NewSource(store, nil)
		at := hold(b, disks, gib<<30)
		fill(b, disks, source, at, gib<<30)
		b.Run(fmt.Sprintf("snapshot-%dGiB", gib), func(b *testing.B) {
			for range b.N {
				if _, err := disks.Snapshot(ctx, at, "s"); err != nil {
					b.Fatal(err)
				}
			}
		})
		head, _ := disks.Head(ctx, "o", "d")
		count := 0
		b.Run(fmt.Sprintf("fork-%dGiB", gib), func(b *testing.B) {
			for range b.N {
				count++
				if _, err := disks.Fork(ctx, "o", "d", head.Number, fmt.Sprintf("f%d", count)); err != nil {
					b.Fatal(err)
				}
			}
		})
		root, _ := head.RootHash()
		b.Run(fmt.Sprintf("open-%dGiB", gib), func(b *testing.B) {
			for range b.N {
				if _, err := blockmap.OpenVersion(ctx, source, "o", root, gib<<30); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// realistic is what this program consists of, over and over: it compresses about 2:1.
func realistic(b testing.TB, length int) []byte {
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Repeat(own, length/len(own)+1)[:length]
}

func BenchmarkDrain(b *testing.B) {
	const size = 512 * mib
	content := text(rand.New(rand.NewPCG(1, 1)), 128*mib)
	for name, content := range map[string][]byte{"incompressible": content, "realistic": realistic(b, 128*mib)} {
		b.Run("sequential-128MiB-"+name, func(b *testing.B) {
			store := openDirectory(b)
			disks, source := chain.New(store), blockmap.NewSource(store, nil)
			at := hold(b, disks, size)
			b.SetBytes(int64(len(content)))
			b.ResetTimer()
			var stored int64
			for range b.N {
				stored += drainChanges(b, disks, source, at, size, []blockmap.Change{change(0, content)}).FrameBytes
			}
			b.ReportMetric(float64(stored)/float64(b.N*len(content)), "stored/changed")
		})
	}
	b.Run("random-4KiB-1000", func(b *testing.B) {
		store := openDirectory(b)
		disks, source := chain.New(store), blockmap.NewSource(store, nil)
		at := hold(b, disks, size)
		drainChanges(b, disks, source, at, size, []blockmap.Change{change(0, content)})
		b.SetBytes(1000 * segment.PageBytes)
		b.ResetTimer()
		var stored, changed int64
		for n := range b.N {
			var changes []blockmap.Change
			for i := range int64(1000) {
				changes = append(changes, change(i*128<<10, content[(n%1000)*4096:][:segment.PageBytes]))
			}
			stats := drainChanges(b, disks, source, at, size, changes)
			stored, changed = stored+stats.FrameBytes+stats.MapBytes, changed+stats.ChangedBytes
		}
		b.ReportMetric(float64(stored)/float64(changed), "stored/changed")
	})
	b.Run("plain-copy-128MiB", func(b *testing.B) {
		store := openDirectory(b)
		b.SetBytes(int64(len(content)))
		for n := range b.N {
			for at := 0; at < len(content); at += segment.MaxBytes {
				if err := store.Put(context.Background(), fmt.Sprintf("copy/%d/%d", n, at), content[at:at+segment.MaxBytes]); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func drainChanges(b testing.TB, disks *chain.Disks, source *blockmap.Source, at chain.Holding, size int64, changes []blockmap.Change) blockmap.Stats {
	result, err := drain.Apply(context.Background(), disks, source, drain.Job{Holding: at}, size,
		func(ctx context.Context, builder *blockmap.Builder) error {
			for _, each := range changes {
				if err := builder.Apply(ctx, each); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		b.Fatal(err)
	}
	return result.Stats
}

func BenchmarkRead(b *testing.B) {
	const size = 128 * mib
	ctx, store := context.Background(), openDirectory(b)
	disks := chain.New(store)
	at := hold(b, disks, size)
	drainChanges(b, disks, blockmap.NewSource(store, nil), at, size, []blockmap.Change{change(0, text(rand.New(rand.NewPCG(1, 1)), size))})
	head, _ := disks.Head(ctx, "o", "d")
	root, _ := head.RootHash()
	cached := filepath.Join(b.TempDir(), "cache")
	open := func(path string) *blockmap.Version {
		disk, err := cache.OpenDisk(path, 1<<30)
		if err != nil {
			b.Fatal(err)
		}
		version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(store, disk), "o", root, size)
		if err != nil {
			b.Fatal(err)
		}
		return version
	}
	page := make([]byte, segment.PageBytes)
	read := func(b *testing.B, version *blockmap.Version, offset int64) {
		if err := version.ReadAt(ctx, page, offset); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("first-read-cold", func(b *testing.B) {
		for n := range b.N {
			path := filepath.Join(cached, fmt.Sprint("cold", n))
			read(b, open(path), 64*mib)
			_ = os.RemoveAll(path)
		}
	})
	b.Run("4KiB-disk-cache", func(b *testing.B) {
		_ = open(cached).Prefetch(ctx, 0, size)
		version := open(cached)
		b.ResetTimer()
		for n := range b.N {
			read(b, version, int64(n)*7*segment.BlockBytes%size)
		}
	})
	b.Run("4KiB-memory", func(b *testing.B) {
		version := open(cached)
		for n := range b.N {
			read(b, version, int64(n)*segment.PageBytes%mib)
		}
	})
}
