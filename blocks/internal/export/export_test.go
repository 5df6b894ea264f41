package export_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/export"
	"coppice/blocks/internal/segment"
	"coppice/blocks/testing/memory"
)

func runTool(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	output, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
	return string(output)
}

// makeVersion writes random data at some offsets, and the same to a sparse file.
func makeVersion(t *testing.T, store *memory.Store, size int64, offsets ...int64) (*blockmap.Version, string) {
	t.Helper()
	ctx, source := context.Background(), blockmap.NewSource(store, nil)
	model, err := os.Create(filepath.Join(t.TempDir(), "model"))
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	_ = model.Truncate(size)
	empty, _ := blockmap.OpenVersion(ctx, source, "o", segment.Hash{}, size)
	builder := blockmap.NewBuilder(ctx, empty, segment.NewID())
	defer builder.Close()
	random := rand.New(rand.NewPCG(1, 9))
	for _, offset := range offsets {
		content := make([]byte, min(segment.PageBytes*(1+random.Int64N(40)), size-offset))
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		_, _ = model.WriteAt(content, offset)
		err := builder.Apply(ctx, blockmap.Change{Offset: offset, Length: int64(len(content)),
			Read: func(part []byte, at int64) error { copy(part, content[at:]); return nil }})
		if err != nil {
			t.Fatal(err)
		}
	}
	root, _, err := builder.Finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	version, err := blockmap.OpenVersion(ctx, blockmap.NewSource(store, nil), "o", root, size)
	if err != nil {
		t.Fatal(err)
	}
	return version, model.Name()
}

func TestAnExportedImageIsValidAndHasTheContent(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		size    int64
		offsets []int64
	}{
		"empty":           {size: 4096},
		"odd end":         {5<<20 + 4096, []int64{0, 5 << 20}},
		"several tables":  {3*gib + 8192, []int64{4096, 400 << 20, gib + 65536, 3 * gib}},
		"far end":         {1100 * gib, []int64{1099 * gib}},
		"many tables":     {2049 * gib, []int64{0, 900 * gib, 2049*gib - 4096}},
		"data everywhere": {40 << 20, []int64{0, 1 << 20, 2 << 20, 5 << 20, 30 << 20, 40<<20 - 4096}},
	} {
		t.Run(name, func(t *testing.T) {
			version, model := makeVersion(t, memory.New(), test.size, test.offsets...)
			path := filepath.Join(t.TempDir(), "image.qcow2")
			out, _ := os.Create(path)
			if err := export.Qcow2(context.Background(), version, out); err != nil {
				t.Fatal(err)
			}
			_ = out.Close()
			if output := runTool(t, "qemu-img", "check", "-f", "qcow2", path); !strings.Contains(output, "No errors") {
				t.Error(output)
			}
			runTool(t, "qemu-img", "compare", "-f", "raw", "-F", "qcow2", model, path)
		})
	}
}

func TestARawExportToAFileIsSparseAndToAPipeIsWhole(t *testing.T) {
	version, model := makeVersion(t, memory.New(), 64<<20+4096, 4096, 20<<20, 50<<20)
	path := filepath.Join(t.TempDir(), "image")
	out, _ := os.Create(path)
	if err := export.Raw(context.Background(), version, out); err != nil {
		t.Fatal(err)
	}
	runTool(t, "cmp", model, path)
	info, _ := out.Stat()
	_ = out.Close()
	if allocated := info.Sys().(*syscall.Stat_t).Blocks * 512; allocated > 2<<20 {
		t.Errorf("the file has %d bytes", allocated)
	}
	read, write, _ := os.Pipe()
	var content bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = content.ReadFrom(read)
	}()
	if err := export.Raw(context.Background(), version, write); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	<-done
	if want, _ := os.ReadFile(model); !bytes.Equal(content.Bytes(), want) {
		t.Error("the stream differs")
	}
}

func TestAnExportOfDamagedDataFails(t *testing.T) {
	store := memory.New()
	version, _ := makeVersion(t, store, 8<<20, 0, 1<<20, 2<<20)
	for _, key := range store.Keys("blocks/o/segments/") {
		store.Damage(key, 100_000)
	}
	out, _ := os.Create(filepath.Join(t.TempDir(), "image"))
	defer out.Close()
	if err := export.Raw(context.Background(), version, out); err == nil {
		t.Error("a raw export succeeds")
	}
	if err := export.Qcow2(context.Background(), version, out); err == nil {
		t.Error("a qcow2 export succeeds")
	}
}
