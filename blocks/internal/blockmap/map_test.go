package blockmap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/cache"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

const org = "org"

func build(t testing.TB, source *blockmap.Source, base segment.Hash, size int64, changes ...blockmap.Change) (segment.Hash, blockmap.Stats) {
	t.Helper()
	ctx := context.Background()
	version, err := blockmap.OpenVersion(ctx, source, org, base, size)
	if err != nil {
		t.Fatal(err)
	}
	builder := blockmap.NewBuilder(ctx, version, segment.NewID())
	defer builder.Close()
	for _, change := range changes {
		if err := builder.Apply(ctx, change); err != nil {
			t.Fatal(err)
		}
	}
	root, stats, err := builder.Finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return root, stats
}

func data(offset int64, content []byte) blockmap.Change {
	return blockmap.Change{Offset: offset, Length: int64(len(content)), Read: func(part []byte, at int64) error {
		copy(part, content[at:])
		return nil
	}}
}

func noise(random *rand.Rand, length int64) []byte {
	content := make([]byte, length)
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	return content
}

// drawChanges makes ascending changes and applies them to the model.
func drawChanges(random *rand.Rand, model []byte) (changes []blockmap.Change) {
	for offset := int64(0); ; {
		offset += segment.PageBytes * random.Int64N(200)
		length := segment.PageBytes * (1 + random.Int64N(20))
		if random.IntN(10) == 0 {
			length = segment.PageBytes * random.Int64N(20_000)
		}
		length = min(length, int64(len(model))-offset)
		if length <= 0 {
			return changes
		}
		if random.IntN(3) == 0 || length > 1<<20 {
			clear(model[offset : offset+length])
			changes = append(changes, blockmap.Change{Offset: offset, Length: length, IsZero: true})
		} else {
			content := noise(random, length)
			copy(model[offset:], content)
			changes = append(changes, data(offset, content))
		}
		offset += length
	}
}

func check(t *testing.T, source *blockmap.Source, root segment.Hash, model []byte) {
	t.Helper()
	ctx := context.Background()
	version, err := blockmap.OpenVersion(ctx, source, org, root, int64(len(model)))
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, len(model))
	if err := version.ReadAt(ctx, content, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content, model) {
		t.Fatal("the content differs")
	}
	runs, err := version.Runs(ctx, 0, int64(len(model)))
	if err != nil {
		t.Fatal(err)
	}
	offset := int64(0)
	for _, run := range runs {
		if !run.HasData && len(bytes.Trim(model[offset:offset+run.Length], "\x00")) > 0 {
			t.Fatalf("%d bytes at %d should have data", run.Length, offset)
		}
		offset += run.Length
	}
}

func TestVersionsShowAllChangesAndOlderVersionsStay(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 2))
		store := memory.New()
		disk, err := cache.OpenDisk(t.TempDir(), 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		model := make([]byte, 130<<20+segment.PageBytes*3)
		var roots []segment.Hash
		var models [][]byte
		var root segment.Hash
		for range 7 {
			root, _ = build(t, blockmap.NewSource(store, disk), root, int64(len(model)), drawChanges(random, model)...)
			roots, models = append(roots, root), append(models, bytes.Clone(model))
		}
		for i, root := range roots {
			check(t, blockmap.NewSource(store, disk), root, models[i])
		}
		if disk.UsedBytes() > 8<<20 {
			t.Errorf("the cache has %d bytes", disk.UsedBytes())
		}
	}
}

func TestAChangeTouchesOnlyItsLeafAndItsPages(t *testing.T) {
	const size = 100 << 30
	random, source := rand.New(rand.NewPCG(1, 1)), blockmap.NewSource(memory.New(), nil)
	var changes []blockmap.Change
	for offset := int64(0); offset < size; offset += blockmap.LeafBytes {
		changes = append(changes, data(offset, noise(random, segment.PageBytes)))
	}
	root, stats := build(t, source, segment.Hash{}, size, changes...)
	if stats.Leaves != 1600 {
		t.Errorf("%d leaves", stats.Leaves)
	}
	_, stats = build(t, source, root, size, data(5*blockmap.LeafBytes+8192, noise(random, segment.PageBytes)))
	if stats.Leaves != 1 || stats.FrameBytes > segment.PageBytes+32 || stats.MapBytes > 26<<10 {
		t.Errorf("%+v", stats)
	}
	empty, stats := build(t, source, root, size, blockmap.Change{Length: size, IsZero: true})
	if empty != (segment.Hash{}) || stats.Leaves != 0 {
		t.Errorf("trimming everything: root %s, %+v", empty, stats)
	}
}

func TestManySmallWritesOfABlockAreMerged(t *testing.T) {
	random, source := rand.New(rand.NewPCG(1, 1)), blockmap.NewSource(memory.New(), nil)
	model := make([]byte, segment.BlockBytes)
	var root segment.Hash
	for i := range int64(16) {
		content := noise(random, segment.PageBytes)
		copy(model[i*segment.PageBytes:], content)
		root, _ = build(t, source, root, int64(len(model)), data(i*segment.PageBytes, content))
		check(t, source, root, model)
	}
}

// A disk of which random pages are written drains block after block that has its largest number of frames.
func TestSmallWritesOfAFullBlockStoreLittle(t *testing.T) {
	random, source := rand.New(rand.NewPCG(1, 1)), blockmap.NewSource(memory.New(), nil)
	model := noise(random, segment.BlockBytes)
	root, _ := build(t, source, segment.Hash{}, int64(len(model)), data(0, model))
	var stored, changed int64
	for range 400 {
		offset, content := random.Int64N(16)*segment.PageBytes, noise(random, segment.PageBytes)
		copy(model[offset:], content)
		next, stats := build(t, source, root, int64(len(model)), data(offset, content))
		root, stored, changed = next, stored+stats.FrameBytes, changed+stats.ChangedBytes
	}
	check(t, source, root, model)
	if stored > changed*7/2 {
		t.Errorf("%d bytes stored for %d changed", stored, changed)
	}
}

func TestAFlippedByteOfTheStoreIsReportedAndOfTheCacheRepaired(t *testing.T) {
	random, store, directory := rand.New(rand.NewPCG(1, 1)), memory.New(), t.TempDir()
	disk, _ := cache.OpenDisk(directory, 1<<30)
	model := noise(random, 1<<20)
	root, _ := build(t, blockmap.NewSource(store, disk), segment.Hash{}, int64(len(model)), data(0, model))
	check(t, blockmap.NewSource(store, disk), root, model)
	files, _ := filepath.Glob(filepath.Join(directory, "*"))
	for i, path := range files {
		content, _ := os.ReadFile(path)
		content[len(content)/2] ^= 1
		_ = os.WriteFile(path, content[:len(content)-i%2], 0o600)
	}
	check(t, blockmap.NewSource(store, disk), root, model)
	for _, key := range store.Keys("blocks/") {
		store.Damage(key, 30)
		version, err := blockmap.OpenVersion(context.Background(), blockmap.NewSource(store, nil), org, root, int64(len(model)))
		if err == nil {
			err = version.ReadAt(context.Background(), make([]byte, len(model)), 0)
		}
		store.Damage(key, 30)
		if !errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestAFailedUploadFailsTheVersion(t *testing.T) {
	store := memory.New()
	store.Before = func(operation, key string) error {
		if strings.Contains(key, "/segments/") {
			return fmt.Errorf("refused")
		}
		return nil
	}
	ctx, source := context.Background(), blockmap.NewSource(store, nil)
	version, _ := blockmap.OpenVersion(ctx, source, org, segment.Hash{}, 1<<20)
	builder := blockmap.NewBuilder(ctx, version, segment.NewID())
	defer builder.Close()
	err := builder.Apply(ctx, data(0, bytes.Repeat([]byte("x"), 8192)))
	if err == nil {
		_, _, err = builder.Finish(ctx)
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}
